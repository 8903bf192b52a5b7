package scenarios_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// oneBadVolume is one volume that loses its connections on a node whose other volume is well.
func oneBadVolume(s *bedtest.Scenario) {
	lost := s.Nodes[0]
	bad, good := s.Workload("bad"), s.Workload("good")
	bad.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	// Nothing but the taint tells the scheduler to prefer another node, and its own preferences may outweigh that.
	bad.Nodes = s.Nodes[:2]
	s.Start(bad)
	neighbour := s.Start(good)
	for _, peer := range s.Nodes[1:] {
		s.DRBD.CutResourceLink(volumeOf(bad), lost, peer)
	}
	waitUntil(s, "the taint", func() bool { return keptAway(s, lost) })
	if !tainted(s, lost, taintLostQuorum, corev1.TaintEffectPreferNoSchedule) {
		s.T.Errorf("taints %v, want a soft one: the other volume is well", nodeOf(s, lost).Spec.Taints)
	}
	waitUntil(s, "the pod of the bad volume to be removed", func() bool { return len(gracesGiven(s)) > 0 })
	s.Unchanged(neighbour, patience)
	for _, peer := range s.Nodes[1:] {
		s.DRBD.HealResourceLink(volumeOf(bad), lost, peer)
	}
	_, err := s.WaitRunning(s.Ctx, bad)
	s.Must(err)
	waitUntil(s, "the taint to go", func() bool { return !keptAway(s, lost) })
	s.Unchanged(neighbour, patience)
}

// handedOver is a node that stays dead until Kubernetes keeps pods away from it itself.
func handedOver(s *bedtest.Scenario) {
	lost := s.Nodes[0]
	w := s.Workload("db")
	s.Start(w)
	s.Crash(lost)
	waitUntil(s, "the taint", func() bool { return tainted(s, lost, taintLostQuorum, corev1.TaintEffectNoSchedule) })
	if tainted(s, lost, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule) {
		s.T.Fatal("Kubernetes has kept pods away before the controller did")
	}
	waitUntil(s, "Kubernetes' taint to take over", func() bool {
		return !keptAway(s, lost) && tainted(s, lost, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
	})
	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	s.Return(lost)
	waitUntil(s, "the node to take pods again", func() bool { return len(nodeOf(s, lost).Spec.Taints) == 0 })
	s.Unchanged(pod, patience)
}

// tainted tells whether a node has a taint.
func tainted(s *bedtest.Scenario, node, key string, effect corev1.TaintEffect) bool {
	s.T.Helper()
	return slices.ContainsFunc(nodeOf(s, node).Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == effect })
}
