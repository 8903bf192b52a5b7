package scenarios_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/oracle"
)

// TestAnyProcessIsKilled crashes the node of a workload, and in the act kills each process that has a part in it. Nobody
// needs to do anything.
//
//nolint:tparallel // each kill disturbs the whole bed
func TestAnyProcessIsKilled(t *testing.T) {
	t.Parallel()
	bed := bedtest.Own(t, "scenarios-killed", quick)
	s := bedtest.New(t, bed, 3)
	takeTime(s)
	w := s.Workload("db")
	w.Volumes[0].Diskful = true
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	s.Start(w)
	kills := map[string]func() error{
		"LINSTOR": func() error { bed.LINSTOR.Restart(); return nil },
		"the leader of the controller": func() error {
			leader, err := bed.Leader(s.Ctx)
			if err != nil {
				return err
			}
			return bed.KillController(leader, syscall.SIGKILL)
		},
	}
	for _, name := range []testbed.Component{testbed.Etcd, testbed.APIServer, testbed.ControllerManager, testbed.Scheduler, testbed.Attacher} {
		kills[string(name)] = func() error { return bed.Kill(name) }
	}
	judge := oracle.Watch(bed) // a watch would end with the API server
	defer judge.Stop()
	for name, kill := range kills {
		t.Run(name, func(t *testing.T) {
			killed(s.Within(t), w, kill)
			wrong, err := judge.Wrong()
			s.Must(err)
			for _, what := range wrong {
				t.Error(what)
			}
		})
	}
	judge.Stop() // it would have too much to look at
	t.Run("the leader of the controller, for want of memory", func(t *testing.T) { outOfMemory(bedtest.New(t, bed, 3)) })
	nothingTold(t, bed)
}

// killed crashes the node of a workload and calls kill when the controller has begun to act.
func killed(s *bedtest.Scenario, w testbed.Workload, kill func() error) {
	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	lost, crashed := pod.Spec.NodeName, time.Now()
	s.Crash(lost)
	waitUntil(s, "the controller to act", func() bool { return keptAway(s, lost) })
	s.Must(kill())
	// How long that takes is told and not judged: another leader may have to be elected that has seen nothing of the loss, and
	// Kubernetes may have to verify its attachments.
	s.WaitMoved(w, lost, crashed)
	movedCleanly(s, w, lost)
	s.Return(lost)
	waitHealthy(s, volumeOf(w))
	s.Must(s.WaitController(s.Ctx))
	waitUntil(s, "one pod of the workload", func() bool {
		pods, err := s.Pods(s.Ctx, w)
		s.Must(err)
		return len(pods) == 1 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	})
	var node corev1.Node
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Name: lost}, &node))
	if len(node.Spec.Taints) > 0 {
		s.T.Errorf("taints left on %s: %s", lost, fmt.Sprint(node.Spec.Taints))
	}
}
