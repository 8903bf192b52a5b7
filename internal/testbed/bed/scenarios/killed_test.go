package scenarios_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/oracle"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// TestAnyProcessIsKilled crashes the node of a workload, and in the act kills each process that has a part in it, the leader also
// before and after. Nobody needs to do anything.
//
//nolint:tparallel // each kill disturbs the whole bed
func TestAnyProcessIsKilled(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-killed", quick)
	s := bedtest.New(t, b, 3)
	w := s.Workload("db")
	w.Volumes[0].Diskful = true
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	s.Start(w)
	var leaders, others []kill
	for how, signal := range map[string]syscall.Signal{"": syscall.SIGKILL, ", by SIGTERM": syscall.SIGTERM} {
		for when, begun := range moments {
			leaders = append(leaders, kill{"the leader of the controller " + when + how, begun, func(s *bedtest.Scenario) error {
				leader, err := b.Leader(s.Ctx)
				if err != nil {
					return err
				}
				return b.KillController(leader, signal)
			}})
		}
	}
	for _, name := range []bed.Component{bed.Etcd, bed.APIServer, bed.ControllerManager, bed.Scheduler, bed.Attacher} {
		others = append(others, kill{string(name), acting, func(*bedtest.Scenario) error { return b.Kill(name) }})
	}
	others = append(others, kill{"LINSTOR", acting, func(*bedtest.Scenario) error { b.LINSTOR.Restart(); return nil }})
	judge := oracle.Watch(b) // a watch would end with the API server
	defer judge.Stop()
	for _, k := range inTurn(leaders, others) {
		t.Run(k.name, func(t *testing.T) {
			killed(s.Within(t), w, k)
			wrong, err := judge.Wrong()
			s.Must(err)
			for _, what := range wrong {
				t.Error(what)
			}
		})
	}
	judge.Stop() // it would have too much to look at
	t.Run("the leader of the controller, for want of memory", func(t *testing.T) { outOfMemory(bedtest.New(t, b, 3)) })
	nothingTold(t, b)
}

// moment tells whether the time has come to kill a process, by the pod that is lost.
type moment func(s *bedtest.Scenario, lost *corev1.Pod) bool

// kill is how to kill a process, and when.
type kill struct {
	name  string
	begun moment
	do    func(*bedtest.Scenario) error
}

// moments are when the leader is killed. What else takes part is killed when the leader begins to act.
var moments = map[string]moment{
	"before the loss is known": func(*bedtest.Scenario, *corev1.Pod) bool { return true },
	"when it begins to act":    acting,
	"when the pod is gone":     isReplaced,
}

// inTurn takes from either list in turn: while something else is killed, the replica that took the place of a killed leader grows up.
func inTurn(leaders, others []kill) (kills []kill) {
	for i := range max(len(leaders), len(others)) {
		if i < len(leaders) {
			kills = append(kills, leaders[i])
		}
		if i < len(others) {
			kills = append(kills, others[i])
		}
	}
	return kills
}

func acting(s *bedtest.Scenario, lost *corev1.Pod) bool { return keptAway(s, lost.Spec.NodeName) }

// isReplaced tells whether a pod is gone, and another one of its name may be there.
func isReplaced(s *bedtest.Scenario, lost *corev1.Pod) bool {
	var pod corev1.Pod
	err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(lost), &pod)
	s.Must(client.IgnoreNotFound(err))
	return err != nil || pod.UID != lost.UID
}

// hasGrownUpStandby tells whether a replica that does not lead is no newcomer: where all have just started, which is not what a cluster
// loses a leader with, one may lead that has never heard of the node that is lost then, and would wait for it.
func hasGrownUpStandby(s *bedtest.Scenario) bool {
	leader, err := s.Leader(s.Ctx)
	if err != nil {
		return false // nobody leads at the moment
	}
	var pods corev1.PodList
	s.Must(s.Client.List(s.Ctx, &pods, client.InNamespace(bed.ControllerNamespace)))
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Name != leader && len(pod.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(pod.Status.ContainerStatuses,
			func(c corev1.ContainerStatus) bool {
				return c.State.Running == nil || time.Since(c.State.Running.StartedAt.Time) <= time.Minute
			})
	})
}

// killed crashes the node of a workload and kills a process when the time has come.
func killed(s *bedtest.Scenario, w bed.Workload, k kill) {
	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	waitUntil(s, "a standby that has seen what nodes run", func() bool { return hasGrownUpStandby(s) })
	lost, crashed := pod.Spec.NodeName, time.Now()
	s.Crash(lost)
	waitUntil(s, "the moment to come", func() bool { return k.begun(s, &pod) })
	s.Must(k.do(s))
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
