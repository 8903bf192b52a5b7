package scenarios_test

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// cutSuspended is a living node that loses DRBD's network, with what Piraeus sets up: whoever has the
// volume open hangs, so that the pod can not stop by itself.
func cutSuspended(s *bedtest.Scenario) { cutDRBD(s, drbd.OnNoQuorumSuspendIO) }

// cutFailing is the same where reads and writes fail instead, so that the pod stops when it is told to.
func cutFailing(s *bedtest.Scenario) {
	cutDRBD(s, drbd.OnNoQuorumIOError)
	if graces := gracesGiven(s); len(graces) != 1 {
		s.T.Errorf("pods were deleted with grace periods %v, want one deletion: this pod stops by itself", graces)
	}
}

// cutDRBD cuts a living node from DRBD's network and mends it much later.
func cutDRBD(s *bedtest.Scenario, onNoQuorum string) {
	lost := s.Nodes[0]
	w := s.Workload("db")
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: onNoQuorum}
	s.Start(w)
	cut := time.Now()
	s.IsolateDRBD(lost)
	s.WaitMoved(w, lost, cut)
	moved := movedCleanly
	if onNoQuorum == drbd.OnNoQuorumSuspendIO {
		moved = movedSafely
	}
	moved(s, w, lost)
	if graces := gracesGiven(s); len(graces) == 0 || graces[0] != 10 {
		s.T.Errorf("pods were deleted with grace periods %v, want the node asked first, with 10 s", graces)
	}
	waitEvent(s, eventNodeLost, "Node", "", lost)

	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	s.Unchanged(pod, patience)
	s.RejoinDRBD(lost)
	waitUntil(s, "node "+lost+" to have its data again", func() bool {
		state, _ := s.DRBD.Replica(volumeOf(w), lost)
		return state.DiskState == drbd.UpToDate
	})
	waitUntil(s, "the taint to go from node "+lost, func() bool { return !keptAway(s, lost) })
	movedCleanly(s, w, lost)
	if n := podsCreated(s); n != 2 {
		s.T.Errorf("%d pods were created, want one and one replacement: it was put back on the node that was cut", n)
	}
}
