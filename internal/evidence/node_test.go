package evidence

import (
	"testing"
	"time"
)

// at is a moment, in seconds.
func at(seconds int) Moment { return Moment(time.Duration(seconds) * time.Second) }

// story is what is known of node x of a resource with disks on x and b and a tie-breaker on t.
type story struct {
	node      Node
	fence     Fence
	replica   Replica
	satellite Satellite
}

// begun is a story in which x runs the majority that was read first, at 10 s.
func begun() *story {
	s := &story{
		replica: Replica{
			Peer: Peer{Node: "x", Kind: WithDisk, Wanted: true}, Resource: "pvc-1", Reporting: true, Since: at(1), Read: at(20),
			Others: []Peer{{Node: "b", Kind: WithDisk, Wanted: true}, {Node: "t", Kind: WithoutDisk, Diskless: true, Wanted: true}},
		},
		satellite: Satellite{Online: true, LastOnline: at(25), Alive: at(15)},
	}
	s.fence.Judge(Reading{Quorum: Majority, Disks: 2, Diskless: 1, Old: true, End: at(10)})
	s.lists("b", "t")
	s.see()
	return s
}

// lists lets x report connections.
func (s *story) lists(peers ...string) {
	s.node.Meet(peers, at(30), at(30), at(1), true, func(string) Moment { return 0 })
}

func (s *story) see() { s.node.See(s.replica, s.satellite, &s.fence) }

// sets lets a person set the quorum off and back, read at 40 s and at 50 s.
func (s *story) sets() {
	s.fence.Judge(Reading{Quorum: "off", ByUser: true, Marked: true, Disks: 2, Diskless: 1, End: at(40)})
	s.fence.Judge(Reading{Quorum: Majority, ByUser: true, Marked: true, Disks: 2, Diskless: 1, End: at(50)})
}

// turns lets LINSTOR set the quorum off and back by itself, read at 40 s and at 50 s, while the replicas stay.
func (s *story) turns() {
	s.fence.Judge(Reading{Quorum: "off", Disks: 1, Diskless: 2, End: at(40)})
	s.fence.Judge(Reading{Quorum: Majority, Disks: 2, Diskless: 1, End: at(50)})
}

// restarts lets the satellite of x be away from 60 s to 70 s, and be ONLINE for a minute and more after that.
func (s *story) restarts() {
	s.satellite.Away, s.satellite.Back, s.satellite.LastOnline = at(60), at(70), at(140)
	s.replica.Since, s.replica.Read = at(71), at(140)
}

func TestWhatCountsAsEvidence(t *testing.T) {
	t.Parallel()
	reports := func(asked int, list ...Report) func(*story) {
		return func(s *story) { s.satellite.Reports = s.satellite.Reports.With(list, at(asked)) }
	}
	failed := Report{ID: "ErrorReport-1-x-1.log", Message: "Failed to adjust DRBD resource pvc-1"}
	for name, c := range map[string]struct {
		happens   []func(*story)
		confirmed bool
	}{
		"what was read first, of a node that is alive": {confirmed: true},
		"a quorum that a person set and took back":     {happens: []func(*story){(*story).sets}},
		"a restart of the satellite, without a look at its error reports": {
			happens: []func(*story){(*story).sets, (*story).restarts},
		},
		"a restart of the satellite, and no error report a minute later": {
			happens: []func(*story){(*story).sets, (*story).restarts, reports(131)}, confirmed: true,
		},
		"a restart of the satellite, and error reports that were read too early": {
			happens: []func(*story){(*story).sets, (*story).restarts, reports(129)},
		},
		"an adjust that failed again": {happens: []func(*story){(*story).sets, (*story).restarts, reports(131, failed)}},
		"an adjust that failed before the restart": {
			happens:   []func(*story){(*story).sets, reports(55, failed), (*story).restarts, reports(131, failed)},
			confirmed: true,
		},
		"an adjust that failed in an older process": {
			happens: []func(*story){(*story).sets, (*story).restarts, reports(131, failed,
				Report{ID: "ErrorReport-2-x-1.log", Message: "Failed to adjust DRBD resource pvc-10"})},
			confirmed: true,
		},
		"a storage command that hung": {
			happens: []func(*story){(*story).sets, (*story).restarts, reports(131,
				Report{ID: "ErrorReport-1-x-1.log", Exception: "ChildProcessTimeoutException", Message: "External command timed out"})},
		},
		"a quorum that LINSTOR set without a new replica":           {happens: []func(*story){(*story).turns}},
		"a restart after that, without a look at its error reports": {happens: []func(*story){(*story).turns, (*story).restarts}},
		"a restart after that, and an adjust that failed again":     {happens: []func(*story){(*story).turns, (*story).restarts, reports(131, failed)}},
		"a restart after that, and no error report a minute later": {
			happens: []func(*story){(*story).turns, (*story).restarts, reports(131)}, confirmed: true,
		},
		"a restart of less than a minute ago": {
			happens: []func(*story){(*story).sets, (*story).restarts, func(s *story) { s.satellite.LastOnline = at(129) }, reports(131)},
		},
		"a restart, and a peer that the node does not list": {happens: []func(*story){(*story).sets, func(s *story) {
			s.replica.Others = append(s.replica.Others, Peer{Node: "d", Kind: WithDisk, Wanted: true, Listed: at(30), Lacked: at(29)})
		}, (*story).restarts, reports(131)}},
		"a peer that came ten seconds after the quorum": {happens: []func(*story){(*story).sets, func(s *story) {
			s.replica.Others = append(s.replica.Others, Peer{Node: "d", Kind: WithDisk, Wanted: true, Listed: at(62), Lacked: at(61)})
			s.node.Meet([]string{"b", "t", "d"}, at(63), at(63), at(1), true, func(string) Moment { return 0 })
		}}, confirmed: true},
		"a peer that came right after the quorum": {happens: []func(*story){(*story).sets, func(s *story) {
			s.replica.Others = append(s.replica.Others, Peer{Node: "d", Kind: WithDisk, Wanted: true, Listed: at(59), Lacked: at(58)})
			s.node.Meet([]string{"b", "t", "d"}, at(63), at(63), at(1), true, func(string) Moment { return 0 })
		}}},
		"a peer that came together with the replica": {happens: []func(*story){(*story).sets, func(s *story) {
			s.replica.Lacked = at(61)
			s.replica.Others = append(s.replica.Others, Peer{Node: "d", Kind: WithDisk, Wanted: true, Listed: at(62), Lacked: at(61)})
			s.node.Meet([]string{"b", "t", "d"}, at(63), at(63), at(1), true, func(string) Moment { return 0 })
		}}},
		"a peer that the node listed before LINSTOR did": {happens: []func(*story){(*story).sets, func(s *story) {
			s.node.Meet([]string{"b", "t", "d"}, at(45), at(45), at(1), true, func(string) Moment { return 0 })
			s.replica.Others = append(s.replica.Others, Peer{Node: "d", Kind: WithDisk, Wanted: true, Listed: at(62), Lacked: at(61)})
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			for _, happens := range c.happens {
				happens(s)
				s.see()
			}
			if got := s.node.Confirmed(&s.fence); got != c.confirmed {
				t.Errorf("confirmed: %t, want %t", got, c.confirmed)
			}
		})
	}
}

func TestFirstSightNeedsANodeThatIsAlive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(*story)
		confirmed bool
	}{
		"ONLINE ten seconds later, with a sign of life":          {func(*story) {}, true},
		"without a sign of life since":                           {func(s *story) { s.satellite.Alive = at(9) }, false},
		"ONLINE for less than ten seconds":                       {func(s *story) { s.satellite.LastOnline = at(19) }, false},
		"not ONLINE any more":                                    {func(s *story) { s.satellite.Online = false }, false},
		"reporting nothing":                                      {func(s *story) { s.replica.Reporting = false }, false},
		"named by another process":                               {func(s *story) { s.node.Tell(at(5), at(5)) }, false},
		"a person's quorum, without a look at its error reports": {func(s *story) { s.fence.person = true }, false},
		"a person's quorum, and a storage command that failed once": {func(s *story) {
			s.fence.person = true
			s.satellite.Reports = s.satellite.Reports.With([]Report{{ID: "ErrorReport-1-x-1.log", Message: "External command timed out"}}, at(12))
		}, true},
		"a person's quorum, and an adjust that failed": {func(s *story) {
			s.fence.person = true
			s.satellite.Reports = s.satellite.Reports.With([]Report{{ID: "ErrorReport-1-x-1.log", Message: "Failed to adjust DRBD resource pvc-1"}}, at(12))
		}, false},
		"created while LINSTOR was followed, before any of that": {func(s *story) { s.node.Created, s.satellite.Alive, s.replica.Lacked = true, 0, at(9) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			s.node = Node{}
			s.lists("b", "t")
			c.change(s)
			s.see()
			if got := s.node.Confirmed(&s.fence); got != c.confirmed {
				t.Errorf("confirmed: %t, want %t", got, c.confirmed)
			}
		})
	}
}

func TestADiskThatLinstorHasChangedIsUncertainUntilTheNodeSeesIt(t *testing.T) {
	t.Parallel()
	gone := func(string) (Kind, bool) { return 0, false }
	s := begun()
	s.replica.Others[0].Kind, s.replica.Others[0].Diskless, s.replica.Others[0].Toggled = WithoutDisk, true, at(40) // b has lost its disk
	s.replica.Others[1].Kind, s.replica.Others[1].Diskless, s.replica.Others[1].Toggled = WithDisk, false, at(40)   // t has got one
	votes := func() map[string]Kind {
		kinds := map[string]Kind{}
		for _, v := range s.node.Votes(s.replica, gone) {
			kinds[v.Node] = v.May
		}
		return kinds
	}
	const either = WithDisk | WithoutDisk
	if got := votes(); got["b"] != either || got["t"] != either || !s.node.Overlooks(s.replica) {
		t.Errorf("before it is seen: %v", got)
	}
	s.replica.UpToDate, s.replica.SeenAt = 2, at(45)
	s.see()
	if got := votes(); got["t"] != either {
		t.Errorf("two copies, of which one may be that of b: %v", got)
	}
	s.replica.Others[0].Detached = true
	s.see()
	if got := votes(); got["b"] != either || got["t"] != WithDisk || s.node.Overlooks(s.replica) {
		t.Errorf("two copies, and b has none: %v", got)
	}
}

func TestWhomANodeDoesNotListItMayCountOrNot(t *testing.T) {
	t.Parallel()
	s := begun()
	s.replica.Others = append(s.replica.Others, Peer{Node: "c", Kind: Absent, Diskless: true, Wanted: true, Listed: at(40), Lacked: at(39)})
	votes := s.node.Votes(s.replica, func(string) (Kind, bool) { return 0, false })
	if Alike(votes, votes) {
		t.Errorf("%v are certain, although x does not list the client c", votes)
	}
}

func TestAPeerThatLinstorHasForgottenStaysUntilThereIsEvidence(t *testing.T) {
	t.Parallel()
	s := begun()
	s.node.Meet([]string{"t"}, at(60), at(60), at(1), true, func(string) Moment { return at(50) })
	if !s.node.Counts("b") {
		t.Error("b went without evidence")
	}
	s.restarts()
	s.see()
	s.node.Meet([]string{"t"}, at(141), at(141), at(1), true, func(string) Moment { return at(50) })
	if s.node.Counts("b") {
		t.Error("b stays although x has applied what came later")
	}
}

func TestAReplicaThatWasDeletedUnconfirmedIsUnconfirmedWhenItIsBack(t *testing.T) {
	t.Parallel()
	for name, unconfirmed := range map[string]bool{"unconfirmed": true, "confirmed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			if unconfirmed {
				s.sets()
			}
			s.node.Leave(&s.fence, at(60))
			s.node.Return(at(80))
			s.see()
			if got := s.node.Confirmed(&s.fence); got == unconfirmed {
				t.Errorf("confirmed: %t", got)
			}
		})
	}
}

func TestAQuorumThatAPersonSetsAnewMayHaveBeenAnother(t *testing.T) {
	t.Parallel()
	s := begun()
	s.fence.Judge(Reading{Quorum: Majority, ByUser: true, Marked: true, Disks: 2, Diskless: 1, End: at(50)})
	if s.node.Confirmed(&s.fence) {
		t.Error("confirmed, although the definition's quorum was set between two readings")
	}
	s = begun()
	s.fence.Judge(Reading{Quorum: Majority, ByUser: true, Disks: 2, Diskless: 1, End: at(50)})
	if !s.node.Confirmed(&s.fence) {
		t.Error("unconfirmed, because a group has the same quorum now")
	}
}
