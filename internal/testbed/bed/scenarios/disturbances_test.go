package scenarios_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// TestDisturbances plays what would disturb other scenarios, one after the other on a bed of its own:
// crowds that use up the control plane's rate limits, and the end of LINSTOR, of the leader, or of most
// nodes. DRBD and the grace are quick there, so that many fail-overs fit into little time.
//
//nolint:tparallel // each scenario disturbs the whole bed
func TestDisturbances(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-disturbances", quick)
	for _, scenario := range []struct {
		name string
		play func(*bedtest.Scenario)
	}{
		{"one volume moves ten times, also after a restart of LINSTOR", tenTimes},
		{"a new leader finishes what the old one began", leaderDies},
		{"a node that crashes together with LINSTOR is lost once LINSTOR is back", linstorDiesToo},
		{"nothing moves while most nodes seem lost, and then it does", mostLost},
		{"the check names all that is wrong", checkNamesAll},
		{"nothing moves beside a node agent of 1.x, and then it does", besideAgents},
		{"thirty volumes of one node move together", crowd},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.play(bedtest.New(t, b, 3)) })
	}
	nothingForbidden(t, b)
}

// calm is long enough for the controller of that bed to act, which it must not.
const calm = 25 * time.Second

// crowd is the crash of a node with thirty volumes. Each that would have to wait until Kubernetes itself
// verifies its attachments would take up to a minute.
func crowd(s *bedtest.Scenario) {
	const volumes = 30
	lost := s.Nodes[0]
	var workloads []bed.Workload
	var names []string
	for i := range volumes {
		w := s.Workload(fmt.Sprintf("db%02d", i))
		w.Nodes = s.Nodes[:2]
		workloads, names = append(workloads, w), append(names, volumeOf(w))
		s.Must(s.Deploy(s.Ctx, w))
	}
	for _, w := range workloads {
		_, err := s.WaitRunning(s.Ctx, w, lost)
		s.Must(err)
	}
	crashed := time.Now()
	s.Crash(lost)
	for _, w := range workloads {
		_, err := s.WaitRunning(s.Ctx, w, s.Nodes[1])
		s.Must(err)
	}
	delay := attachDelay(s, names...)
	s.T.Logf("%d pods run elsewhere %s after the crash, all attached %s after the first was removed",
		volumes, time.Since(crashed), delay)
	for _, w := range workloads {
		movedCleanly(s, w, lost)
	}
	if n := podsCreated(s); n != 2*volumes {
		s.T.Errorf("%d pods were created, want %d", n, 2*volumes)
	}
}

// tenTimes crashes the node of a pod, or takes DRBD's network from it, again and again. LINSTOR restarts
// in between.
func tenTimes(s *bedtest.Scenario) {
	w := s.Workload("db")
	w.Volumes[0].Diskful = true
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	pod := s.Start(w)
	for round := range 10 {
		lost := pod.Spec.NodeName
		began := time.Now()
		if round%2 == 0 {
			s.Crash(lost)
		} else {
			s.IsolateDRBD(lost)
		}
		s.WaitMoved(w, lost, began)
		movedCleanly(s, w, lost)
		s.RejoinDRBD(lost)
		s.Return(lost)
		if round == 4 {
			s.LINSTOR.Restart()
		}
		waitHealthy(s, volumeOf(w))
		var err error
		pod, err = s.WaitRunning(s.Ctx, w)
		s.Must(err)
	}
	if n := podsCreated(s); n != 11 {
		s.T.Errorf("%d pods were created, want one and ten replacements", n)
	}
}

// waitHealthy waits until all nodes of the scenario have their data, LINSTOR says so, and they take pods and will go on to: with
// the mark of the keep-away taint that taint can come back when Kubernetes takes its own from the node.
func waitHealthy(s *bedtest.Scenario, resource string) {
	s.T.Helper()
	waitUntil(s, "all nodes to be healthy", func() bool {
		return !slices.ContainsFunc(s.Nodes, func(name string) bool {
			state, _ := s.DRBD.Replica(resource, name)
			node := nodeOf(s, name)
			return state.DiskState != drbd.UpToDate || s.LINSTOR.ConnectionStatus(name) != "ONLINE" ||
				len(node.Spec.Taints) > 0 || node.Annotations[annotationKeepAway] != ""
		})
	})
}

// leaderDies takes the power from the leader's node after it has removed a pod and before that is gone,
// for which a finalizer gives the time.
func leaderDies(s *bedtest.Scenario) {
	const finalizer = "testbed.piraeus.io/wait"
	lost := s.Nodes[0]
	w := s.Workload("db")
	pod := s.Start(w)
	setFinalizers(s, &pod, finalizer)
	crashed := time.Now()
	s.Crash(lost)
	waitUntil(s, "the controller to delete the pod", func() bool {
		s.Must(s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&pod), &pod))
		return pod.DeletionTimestamp != nil
	})
	leader, err := s.Leader(s.Ctx)
	s.Must(err)
	var leading corev1.Pod
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Namespace: bed.ControllerNamespace, Name: leader}, &leading))
	s.Crash(leading.Spec.NodeName)
	s.T.Cleanup(func() { s.Return(leading.Spec.NodeName) })
	if attachmentOf(s, volumeOf(w), lost) == "" {
		s.T.Error("the volume was detached under a pod")
	}
	setFinalizers(s, &pod)

	s.WaitMoved(w, lost, crashed)
	movedCleanly(s, w, lost)
	next, err := s.Leader(s.Ctx)
	s.Must(err)
	if next == leader {
		s.T.Errorf("%s still leads", next)
	}
	s.Return(lost)
	waitUntil(s, "the taint of the leader that died to go", func() bool { return !keptAway(s, lost) })
	if n := podsCreated(s); n != 2 {
		s.T.Errorf("%d pods were created, want one and one replacement", n)
	}
}

// linstorDiesToo takes the power from a node and from LINSTOR, as when that ran there. Without LINSTOR's
// word nothing happens.
func linstorDiesToo(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	s.LINSTOR.Stop()
	s.Crash(s.Nodes[0])
	leftAlone(s, calm, pod)
	started := time.Now()
	s.LINSTOR.Start()
	s.WaitMoved(w, s.Nodes[0], started)
	movedCleanly(s, w, s.Nodes[0])
}

// mostLost takes the power from most nodes of the bed. To the controller it is its view that is suspect
// then, until fewer are lost.
func mostLost(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	others := slices.DeleteFunc(s.DRBD.Nodes(), func(node string) bool { return slices.Contains(s.Nodes, node) })
	s.Crash(append([]string{s.Nodes[0]}, others...)...)
	s.T.Cleanup(func() { s.Return(others...) })
	leftAlone(s, calm, pod)
	waitEvent(s, eventGuardTripped, "Deployment", bed.ControllerNamespace, bed.ControllerName)
	returned := time.Now()
	s.Return(others...)
	s.WaitMoved(w, s.Nodes[0], returned)
	movedCleanly(s, w, s.Nodes[0])
	waitEvent(s, eventGuardOpened, "Deployment", bed.ControllerNamespace, bed.ControllerName)
}

// setFinalizers gives a pod some finalizers, or takes them away.
func setFinalizers(s *bedtest.Scenario, pod *corev1.Pod, finalizers ...string) {
	s.T.Helper()
	changed := pod.DeepCopy()
	changed.Finalizers = finalizers
	s.Must(s.Client.Patch(s.Ctx, changed, client.MergeFrom(pod)))
	s.T.Logf("pod %s has finalizers %v", pod.Name, finalizers)
}
