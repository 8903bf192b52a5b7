package scenarios_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// wantOfMemory is what Go's runtime says before it ends a process that gets no more memory.
var wantOfMemory = regexp.MustCompile(`out of memory|cannot allocate memory`)

// outOfMemory lets the leader run out of memory after it has removed a pod and before that is gone, for which a finalizer
// gives the time.
func outOfMemory(s *bedtest.Scenario) {
	const finalizer = "testbed.piraeus.io/wait"
	w := s.Workload("db")
	w.Volumes[0].Diskful = true
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	pod := s.Start(w)
	setFinalizers(s, &pod, finalizer)
	var starved bed.ControllerProcess
	killed(s, w, kill{"the leader", acting, func(*bedtest.Scenario) error {
		waitUntil(s, "the controller to delete the pod", func() bool {
			s.Must(s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&pod), &pod))
			return pod.DeletionTimestamp != nil
		})
		starved = starveLeader(s)
		if attachmentOf(s, volumeOf(w), pod.Spec.NodeName) == "" {
			s.T.Error("the volume was detached under a pod")
		}
		setFinalizers(s, &pod)
		return nil
	}})
	if n := podsCreated(s); n != 2 {
		s.T.Errorf("%d pods were created, want one and one replacement", n)
	}
	// It leads no more, so that it cannot have lost its Lease since.
	if now := processOf(s, starved.Pod); now.Starts != starved.Starts+1 {
		s.T.Errorf("%s was started %d times, want once more after %d", starved.Pod, now.Starts, starved.Starts)
	}
}

// starveLeader lets the leader have no more memory than it has, while the resources in LINSTOR become more, until it ends of
// that and its kubelet has started it again. It returns the process that ended.
func starveLeader(s *bedtest.Scenario) bed.ControllerProcess {
	s.T.Helper()
	const (
		atATime = 500
		most    = 20000 // an end to it, should it not work
	)
	leader, err := s.Leader(s.Ctx)
	s.Must(err)
	starved := processOf(s, leader)
	if err := s.StarveController(leader); errors.Is(err, errors.ErrUnsupported) {
		s.T.Skip(err)
	} else {
		s.Must(err)
	}
	resources := 0
	waitUntil(s, "the leader to run out of memory", func() bool {
		if processOf(s, leader).Starts > starved.Starts {
			return true
		}
		for range min(atATime, most-resources) {
			s.Must(s.LINSTOR.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{
				Name: fmt.Sprintf("%s-more-%d", s.Name, resources), Replicas: []drbd.ReplicaSpec{{Node: s.Nodes[1]}, {Node: s.Nodes[2]}},
			}}))
			resources++
		}
		return false
	})
	s.T.Logf("%s ended beside %d resources more", leader, resources)
	log, err := os.ReadFile(filepath.Join(s.LogDir, leader+".log"))
	s.Must(err)
	if !wantOfMemory.Match(log) {
		s.T.Errorf("the log of %s does not say that it ended for want of memory", leader)
	}
	return starved
}

// processOf returns the newest process of a pod of the controller.
func processOf(s *bedtest.Scenario, pod string) bed.ControllerProcess {
	s.T.Helper()
	all := s.ControllerProcesses()
	i := slices.IndexFunc(all, func(p bed.ControllerProcess) bool { return p.Pod == pod })
	if i < 0 {
		s.T.Fatalf("pod %q of the controller has no process", pod)
	}
	return all[i]
}
