package evacuation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// TestActive has whose evacuation is at work by its conditions.
func TestActive(t *testing.T) {
	t.Parallel()
	of := func(reason Reason) *Condition { return &Condition{Reason: reason} }
	for name, test := range map[string]struct {
		conditions Conditions
		want       bool
	}{
		"it has just been tainted":     {Conditions{}, true},
		"it is copied":                 {Conditions{Safe: of(Copying)}, true},
		"it is safe and stays":         {Conditions{Safe: of(CopiedElsewhere)}, false},
		"it leaves":                    {Conditions{Safe: of(CopiedElsewhere), Evacuated: of(Leaving)}, true},
		"it leaves, and that is known": {Conditions{Evacuated: of(Leaving)}, true},
		"it has left":                  {Conditions{Evacuated: of(NothingLeft)}, false},
	} {
		if got := test.conditions.active(); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	if AnswerOf(nil) != Unknown || AnswerOf(new(false)) != No || AnswerOf(new(true)) != Yes {
		t.Error("an answer is not what its pointer says")
	}
}

// TestNeeds has that each need is one.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for _, needs := range []Needs{{Placed: true}, {Definitions: []string{"a"}}, {Attachments: true}, {Snapshots: true}, {Marked: true}, {Version: true}} {
		if !needs.Any() {
			t.Errorf("%+v is no need", needs)
		}
	}
	if (Needs{}).Any() {
		t.Error("none is one")
	}
}

// TestQuorumWithoutTheNode has what majority is left.
func TestQuorumWithoutTheNode(t *testing.T) {
	t.Parallel()
	gone := func(nodes ...string) edit {
		return func(in *Input) {
			for _, node := range nodes {
				the(node, func(n *Node) { n.Online = No })(in)
			}
		}
	}
	none := func(*Input) {}
	for name, test := range map[string]struct {
		replicas []Replica
		edit     edit
		keeps    bool
	}{
		"two disks and a tie-breaker":             {[]Replica{disk(nodeA), disk(nodeB), diskless(nodeC)}, none, true},
		"two disks and no tie-breaker":            {[]Replica{disk(nodeA), disk(nodeB)}, none, false},
		"a tie-breaker that is away":              {[]Replica{disk(nodeA), disk(nodeB), diskless(nodeC)}, gone(nodeC), false},
		"one of two tie-breakers that is away":    {[]Replica{disk(nodeA), disk(nodeB), diskless(nodeC), diskless(nodeD)}, gone(nodeC), false},
		"three disks":                             {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC)}, none, true},
		"three disks, of which one is away":       {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC)}, gone(nodeC), false},
		"one of three disks that is deleted":      {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC, flagged(flagDelete))}, none, false},
		"one of three disks that DRBD deletes":    {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC, flagged(flagDRBDDelete))}, none, false},
		"one of three disks that is inactive":     {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC, flagged(flagInactive))}, none, false},
		"three disks and a tie-breaker, one away": {[]Replica{disk(nodeA), disk(nodeB), disk(nodeC), diskless(nodeD)}, gone(nodeC), false},
		"a disk alone and two tie-breakers":       {[]Replica{disk(nodeA), diskless(nodeB), diskless(nodeC)}, none, false},
		"the tie-breaker itself":                  {[]Replica{diskless(nodeA), disk(nodeB), disk(nodeC)}, none, true},
		"the tie-breaker of a disk alone":         {[]Replica{diskless(nodeA), disk(nodeB), disk(nodeC)}, gone(nodeC), false},
	} {
		v := volume("pvc-1", test.replicas...)
		v.Quorum = evidence.Majority
		s := assess(tainted(Everything, with(v), test.edit))
		if got := s.keepsQuorum(v); got != test.keeps {
			t.Errorf("%s: %t, want %t", name, got, test.keeps)
		}
		if v.Quorum = "off"; !s.keepsQuorum(v) {
			t.Errorf("%s: without quorum there is some to lose", name)
		}
	}
}

// TestCorners has what the tables of the states do not show.
func TestCorners(t *testing.T) {
	t.Parallel()
	ahead := alsoLeaving(nodeD, 2*time.Hour, Conditions{Safe: &Condition{Reason: Copying}})
	majority := func(v Volume) Volume { v.Quorum = evidence.Majority; return v }
	wants := func(n int) edit { return func(in *Input) { in.Volumes[0].PlaceCount = n } }
	removing := func() Replica { r := diskless(nodeA); r.Flags = []string{"DISK_REMOVING"}; return r }
	runRows(t, map[string]row{
		"a copy that is deleted is not on its way": {
			edit: with(volume("pvc-1", disk(nodeA), disk(nodeB, syncing(1), flagged(flagDelete)))),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"a tie-breaker that is being created is no copy on its way": {
			edit: with(volume("pvc-1", disk(nodeA), Replica{Node: nodeB, Diskless: true, Disks: map[int]string{0: ""}})),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"a copy of which one volume is done is on its way": {
			edit: with(volume("pvc-1", disk(nodeA, disks(diskUpToDate, diskUpToDate)), disk(nodeB, disks(diskUpToDate, diskSyncTarget)))),
			want: wanted{CopyingState, "False Copying", "False Copying", Nothing, ""},
		},
		"a disk that is deleted is no source": {
			edit: with(volume("pvc-1", disk(nodeA, flagged(flagDelete)))), want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"a node without a disk is not safe while nobody reaches the only disk": {
			mode: LastCopies, edit: edited(with(volume("pvc-1", diskless(nodeA), disk(nodeB))), the(nodeB, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False PeerOffline", "", Nothing, ""},
		},
		"a node without a disk is not safe while the only disk is about to go": {
			mode: LastCopies, edit: with(volume("pvc-1", diskless(nodeA), disk(nodeB, flagged(flagDelete)))),
			want: wanted{Blocked, "False PeerOffline", "", Nothing, ""},
		},
		"a node without a disk needs none elsewhere where there is no DRBD layer": {
			mode: LastCopies, edit: with(Volume{Resource: "pvc-1", Quorum: "off", Replicas: []Replica{diskless(nodeA), {Node: nodeB}}}),
			want: wanted{Safe, "True CopiedElsewhere", "", Nothing, ""},
		},
		"a disk that is being removed is copied where the other one leaves, too": {
			edit: edited(with(volume("pvc-1", removing(), disk(nodeB))), alsoLeaving(nodeB, time.Minute, Conditions{})),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"disks that are too many are no copies where none of them is good": {
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB, state("Outdated")), disk(nodeC, state("Outdated")))), wants(1)),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"the disks of a volume of which the node has none are not its to keep": {
			edit: edited(with(volume("pvc-1", diskless(nodeA), disk(nodeB), disk(nodeC)), volume("pvc-2", disk(nodeA))), wants(0)),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"what LINSTOR has refused is told before what has no place": {
			edit: edited(alsoLeaving(nodeD, time.Minute, Conditions{}), the(nodeC, func(n *Node) { n.Cordoned = true }), with(
				volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeD)), volume("pvc-2", disk(nodeA), disk(nodeB), diskless(nodeD)),
			), func(in *Input) {
				in.Volumes[0].Definition.PlaceCount, in.Volumes[1].Definition.PlaceCount = 2, 2
				in.Memory.Refused = map[string]Refusal{"pvc-2": {Until: now.Add(time.Minute), Words: "Not enough available nodes", Nodes: in.Eligible()}}
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False NoTarget", Nothing, "pvc-2: Not enough"},
		},
		"a disk that DRBD deletes is no source": {
			edit: with(volume("pvc-1", disk(nodeA, flagged(flagDRBDDelete)))), want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"a disk that is inactive is no source": {
			edit: with(volume("pvc-1", disk(nodeA, flagged(flagInactive)))), want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"old words on an offline disk are no source": {
			edit: edited(with(volume("pvc-1", disk(nodeA, state("Outdated")), disk(nodeB))), the(nodeB, func(n *Node) { n.Online = No })),
			want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"a volume without volumes has no good copy": {
			edit: with(volume("pvc-1", disk(nodeA, disks()), disk(nodeB, disks()))),
			want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"a replica without a disk that calls it UpToDate is no good copy": {
			edit: with(volume("pvc-1", disk(nodeA), func() Replica { r := diskless(nodeB); r.Disks[0] = diskUpToDate; return r }())),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"a volume without a good disk keeps nothing from leaving a node that has no disk of it": {
			edit: with(volume("pvc-1", diskless(nodeA), disk(nodeB, state("Failed")))),
			want: wanted{Evacuated, "False PeerOffline", "True NothingLeft", Nothing, ""},
		},
		"a disk that is being removed is one as long as it is there": {
			edit: with(volume("pvc-1", removing())), want: wanted{Blocked, "False PeerOffline", "False PeerOffline", Nothing, ""},
		},
		"a node whose disk is being removed has not left": {
			edit: edited(with(volume("pvc-1", removing(), disk(nodeB))), asked(time.Second, 1)),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "being added or removed"},
		},
		"an offline replica of which nothing is known holds up nothing": {
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, disks()))), the(nodeC, func(n *Node) { n.Online = No })),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a tie-breaker of which nothing is known is being created": {
			edit: with(volume("pvc-1", disk(nodeA), disk(nodeB), Replica{Node: nodeC, Diskless: true, Disks: map[int]string{0: ""}})),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "being created on node-c"},
		},
		"what is exactly two seconds old is new enough": {
			edit: edited(safely, func(in *Input) { in.Linstor.Asked, in.Attachments.Read = now.Add(-MaxAge), now.Add(-MaxAge) }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"what is pinned may leave once it is drained": {
			edit: edited(safely, func(in *Input) { in.Volumes[0].Claims[0].Attached, in.Volumes[0].Claims[0].Elsewhere = true, false }),
			want: wanted{Draining, "False AffinityPinned", "False WaitingForDrain", Nothing, ""},
		},
		"what is used here without a disk may be pinned here, too": {
			edit: edited(safely, with(volume("pvc-1", diskless(nodeA), disk(nodeB))), func(in *Input) {
				in.Volumes[0].Claims[0].Attached, in.Volumes[0].Claims[0].Elsewhere = true, false
			}),
			want: wanted{Evacuated, "False AffinityPinned", "True NothingLeft", Nothing, ""},
		},
		"what was just replaced is not safe until its claim is bound": {
			edit: edited(safely, func(in *Input) { in.Volumes[0].Claims[0].Attached, in.Volumes[0].Claims[0].Lost = true, true }),
			want: wanted{Draining, "False AffinityPinned", "False WaitingForDrain", Nothing, ""},
		},
		"what is not attached here may have lost its claim": {
			edit: edited(safely, func(in *Input) { in.Volumes[0].Claims[0].Lost = true }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"what would have no quorum may leave once it is drained": {
			edit: edited(with(majority(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC)))), the(nodeC, func(n *Node) { n.Online = No })),
			want: wanted{LeavingState, "False QuorumWouldBeLost", "False Leaving", Evacuate, ""},
		},
		"what is not attached here is not pinned here": {
			edit: edited(safely, func(in *Input) { in.Volumes[0].Claims[0].Elsewhere = false }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a copy on its way is told while another node goes first": {
			edit: edited(with(volume("pvc-1", disk(nodeA), disk(nodeB, syncing(41)))), ahead),
			want: wanted{CopyingState, "False Copying", "False Copying", Nothing, "41 %"},
		},
		"a node that returns goes before nobody": {
			edit: edited(ahead, the(nodeD, func(n *Node) { n.Evacuate = nil })),
			want: wanted{CopyingState, "False Copying", "False Copying", Autoplace, ""},
		},
		"a node that returns has nothing to leave first where LINSTOR is old": {
			edit: edited(safely, ahead, the(nodeD, func(n *Node) { n.Evacuate = nil }), func(in *Input) { in.Version.Spares, in.Settings.MaxNodes = false, 3 }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a node that stays leaves nobody waiting where LINSTOR is old": {
			edit: edited(safely, ahead, the(nodeD, func(n *Node) { n.Evacuate[0].Value = "last-copies" }), func(in *Input) {
				in.Version.Spares, in.Settings.MaxNodes = false, 3
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a node that is off leaves nobody waiting where LINSTOR is old": {
			edit: edited(safely, ahead, the(nodeD, func(n *Node) { n.Online = No }), func(in *Input) { in.Version.Spares, in.Settings.MaxNodes = false, 3 }),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a node that may be off leaves others waiting where LINSTOR is old": {
			edit: edited(safely, ahead, the(nodeD, func(n *Node) { n.Online = Unknown }), func(in *Input) { in.Version.Spares, in.Settings.MaxNodes = false, 3 }),
			want: wanted{Waiting, "True CopiedElsewhere", "False AnotherNodeFirst", Nothing, nodeD},
		},
		"a node that is refused leaves nobody waiting where LINSTOR is old": {
			edit: edited(safely, ahead, the(nodeD, func(n *Node) { n.Evacuate[0].Effect = "NoExecute" }), func(in *Input) {
				in.Version.Spares, in.Settings.MaxNodes = false, 3
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"an annotation without a count is one call": {
			edit: edited(safely, asked(time.Minute, 0), unchangedFrom(time.Hour)),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"a mark goes with the disk, while others are left": {
			edit: edited(safely, asked(time.Second, 1), func(in *Input) {
				in.Volumes = append(in.Volumes, volume("pvc-2", diskless(nodeA), disk(nodeB)))
				in.Marked.All = []Mark{{"pvc-1", []string{markA}, "false"}, {"pvc-2", []string{markA}, "false"}}
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Properties, ""},
		},
		"a node that returns waits for LINSTOR": {
			edit: edited(asked(time.Hour, 1), untainted, the(nodeA, func(n *Node) { n.Listed = false }), func(in *Input) { in.Linstor.Problem = "no" }),
			want: wanted{Returning, "Unknown LinstorStale", "", Nothing, ""},
		},
		"what LINSTOR has no place for is told when a trap has to be avoided": {
			edit: edited(alsoLeaving(nodeD, time.Minute, Conditions{}), with(volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeD))), func(in *Input) {
				in.Volumes[0].Definition.PlaceCount = 2
			}, the(nodeC, func(n *Node) { n.Cordoned = true })),
			want: wanted{LeavingState, "True CopiedElsewhere", "False NoTarget", Nothing, "pvc-1"},
		},
		"how many copies are wanted may not be known": {
			edit: edited(alsoLeaving(nodeD, time.Minute, Conditions{}), with(volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeD))), func(in *Input) {
				in.Volumes[0].Definition.PlaceCount = 0
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Autoplace, ""},
		},
		"where it is not known how many copies are wanted those that LINSTOR wants by default are enough": {
			edit: edited(alsoLeaving(nodeD, time.Minute, Conditions{}), with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC), diskless(nodeD))), func(in *Input) {
				in.Volumes[0].Definition.PlaceCount = 0
			}),
			want: wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Evacuate, ""},
		},
		"of how many volumes quorum is off is told": {
			edit: edited(with(), asked(time.Hour, 1), func(in *Input) { in.Progress.QuorumOff = 2 }),
			want: wanted{Evacuated, "True CopiedElsewhere", "True NothingLeft", Nothing, "quorum off for 2 volumes"},
		},
	})
}

// TestNothingIsSaidOfNothing has a message without what there is none of.
func TestNothingIsSaidOfNothing(t *testing.T) {
	t.Parallel()
	plan := PlanFor(tainted(Everything, with()))
	if got := plan.Conditions.Evacuated.Message; got != "no disk and no snapshot is left" {
		t.Errorf("got %q", got)
	}
}

// TestWhatIsReadWhen has what is read of a node in which state.
func TestWhatIsReadWhen(t *testing.T) {
	t.Parallel()
	unread := func(in *Input) { in.Marked, in.Snapshots = Marks{}, Count{} }
	left := func(in *Input) { in.Conditions = same(True, NothingLeft, "") }
	for name, test := range map[string]struct {
		edit edit
		want Needs
	}{
		"a node that waits for its drain": {edited(safely, func(in *Input) { in.Volumes[0].Claims[0].Attached = true }), Needs{}},
		"a node that leaves":              {edited(safely, asked(time.Minute, 1)), Needs{Snapshots: true, Marked: true}},
		"a node that has left":            {edited(with(), asked(time.Minute, 1)), Needs{Snapshots: true, Marked: true}},
		"a node that had something left":  {edited(with(), func(in *Input) { in.Conditions.Evacuated = &Condition{Status: False} }), Needs{Snapshots: true, Marked: true}},
		"a node that had nothing":         {with(), Needs{Snapshots: true, Marked: true}},
		"a node that had not left before": {
			edited(with(), func(in *Input) { in.Conditions = same(False, Leaving, "") }), Needs{Snapshots: true, Marked: true},
		},
		"a node that had left before": {edited(with(), left), Needs{Snapshots: true}},
		"a node that had left before, when LINSTOR was told": {
			edited(with(), left, asked(time.Minute, 1)), Needs{Snapshots: true, Marked: true},
		},
		"a node that returns": {edited(safely, untainted), Needs{Marked: true}},
		"marks alone":         {edited(safely, asked(time.Minute, 1), func(in *Input) { in.Snapshots.Known = true }), Needs{Snapshots: true, Marked: true}},
	} {
		got := PlanFor(tainted(Everything, unread, test.edit)).Needs
		if got.Snapshots != test.want.Snapshots || got.Marked != test.want.Marked {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	if plan := PlanFor(tainted(Everything, with(), left, func(in *Input) { in.Marked = Marks{} })); plan.Needs.Any() {
		t.Errorf("of a node that had left before, and that LINSTOR was never told of, marks are read: %+v", plan.Needs)
	}
	noMarks := PlanFor(tainted(Everything, with(), asked(time.Minute, 1), func(in *Input) { in.Marked = Marks{} }))
	noSnapshots := PlanFor(tainted(Everything, safely, asked(time.Minute, 1), func(in *Input) { in.Snapshots = Count{} }))
	if !noMarks.Needs.Marked || !noSnapshots.Needs.Snapshots {
		t.Errorf("what is missing is not read: %+v, %+v", noMarks.Needs, noSnapshots.Needs)
	}
}

// TestSafetyIsNoted has that a node that waits for its drain is noted as safe, or not.
func TestSafetyIsNoted(t *testing.T) {
	t.Parallel()
	attached := func(in *Input) { in.Volumes[0].Claims[0].Attached = true }
	if p := PlanFor(tainted(Everything, safely, attached)).Progress; p.Safe == nil {
		t.Errorf("a node that is safe is noted as %s", p)
	}
	pinned := func(in *Input) { in.Volumes[0].Claims[0].Elsewhere = false }
	if p := PlanFor(tainted(Everything, safely, attached, pinned, func(in *Input) { in.Progress.Safe = &in.Now })).Progress; p.Safe != nil {
		t.Errorf("a node that is not safe is noted as %s", p)
	}
}

// TestSafetyEnds has that a node is not noted as safe any more once its conditions do not say so: its loss would not count for the guard.
func TestSafetyEnds(t *testing.T) {
	t.Parallel()
	wasSafe := func(in *Input) { in.Progress.Safe = &in.Now }
	for name, edit := range map[string]edit{
		"its taint means nothing":     the(nodeA, func(n *Node) { n.Evacuate[0].Value = "all" }),
		"LINSTOR does not list it":    the(nodeA, func(n *Node) { n.Listed = false }),
		"somebody else evacuates it":  the(nodeA, func(n *Node) { n.Evacuating = true }),
		"a copy is to be made for it": with(volume("pvc-1", disk(nodeA))),
	} {
		plan := PlanFor(tainted(Everything, safely, wasSafe, edit))
		if plan.Conditions.Safe.Status != False || plan.Progress == nil || plan.Progress.Safe != nil {
			t.Errorf("%s: it is %+v, and noted as %s", name, plan.Conditions.Safe, plan.Progress)
		}
	}
	if plan := PlanFor(tainted(Everything, the(nodeA, func(n *Node) { n.Evacuate[0].Value = "all" }), func(in *Input) { in.Progress = nil })); plan.Progress != nil {
		t.Errorf("a taint that means nothing is noted: %s", plan.Progress)
	}
}

// TestUnlistedNodes has that nodes which LINSTOR does not know are neither named to it nor counted.
func TestUnlistedNodes(t *testing.T) {
	t.Parallel()
	stranger := edited(alsoLeaving(nodeD, time.Minute, Conditions{}), the(nodeD, func(n *Node) { n.Listed = false }))
	v := volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeC))
	v.Quorum = evidence.Majority
	plan := PlanFor(tainted(Everything, with(v), stranger))
	if plan.Step.Call != Evacuate || slices.Contains(plan.Step.DoNotTarget, nodeD) {
		t.Errorf("LINSTOR is told %+v", plan.Step)
	}
	if len(plan.QuorumOff) != 1 {
		t.Errorf("a node that LINSTOR does not know is a place for a tie-breaker: %v", plan.QuorumOff)
	}
	evacuating := the(nodeD, func(n *Node) { n.Evacuating = true })
	if plan := PlanFor(tainted(Everything, with(v), evacuating)); len(plan.QuorumOff) != 1 {
		t.Errorf("a node that is evacuated is a place for a tie-breaker: %v", plan.QuorumOff)
	}
	for _, flag := range []string{flagDelete, flagDRBDDelete, flagInactive} {
		three := volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, flagged(flag)))
		three.Quorum = evidence.Majority
		if plan := PlanFor(tainted(Everything, with(three), evacuating)); len(plan.QuorumOff) != 1 {
			t.Errorf("a disk flagged %s counts: %v", flag, plan.QuorumOff)
		}
	}
}

// TestUnread has what is said of a node that cannot be read.
func TestUnread(t *testing.T) {
	t.Parallel()
	progress := &Progress{Mode: Everything}
	both := Unread(same(True, CopiedElsewhere, ""), progress, "no answer")
	if conditionText(both.Conditions.Safe) != "Unknown LinstorStale" || conditionText(both.Conditions.Evacuated) != "Unknown LinstorStale" ||
		both.Conditions.Safe.Message != "no answer" || both.Progress != progress || both.Step.Call != Nothing || both.Again != Interval {
		t.Errorf("got %+v", both)
	}
	if one := Unread(Conditions{Safe: &Condition{Status: True}}, progress, "no answer"); one.Conditions.Evacuated != nil {
		t.Errorf("a node of which only last copies are made gets %+v", one.Conditions)
	}
}

// TestNeedsInWords has that all that must be read is named.
func TestNeedsInWords(t *testing.T) {
	t.Parallel()
	all := Needs{Placed: true, Definitions: []string{"pvc-1"}, Attachments: true, Snapshots: true, Marked: true, Version: true}.String()
	if all != "where its replicas are, resource definition pvc-1 with its group, attachments, snapshots, marks of resource definitions, its version" {
		t.Errorf("got %q", all)
	}
	if none := (Needs{}).String(); none != "" {
		t.Errorf("got %q", none)
	}
}

// TestFingerprint has what counts as a change: not who uses a replica, or which are connected, but for a copy that is to come.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	told := asked(time.Minute, 1)
	before := func(edits ...edit) string {
		return tainted(Everything, append([]edit{safely}, edits...)...).Fingerprint()
	}
	for name, c := range map[string]struct {
		edit    edit
		changes bool
	}{
		"a pod elsewhere":                     {with(volume("pvc-1", disk(nodeA), disk(nodeB, inUse))), false},
		"a connection":                        {with(volume("pvc-1", disk(nodeA), disk(nodeB, connected(), apart(nodeA)))), false},
		"a sync":                              {with(volume("pvc-1", disk(nodeA), disk(nodeB, syncing(10)))), true},
		"a disk":                              {with(volume("pvc-1", disk(nodeA), disk(nodeB, state("Outdated")))), true},
		"a flag":                              {with(volume("pvc-1", disk(nodeA), disk(nodeB, flagged("INACTIVE")))), true},
		"a replica":                           {with(volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeC))), true},
		"a move":                              {with(volume("pvc-1", disk(nodeA, moves), disk(nodeB))), true},
		"a snapshot, which is compared apart": {edited(safely, func(in *Input) { in.Snapshots.N = 1 }), false},
		"a volume that is not there":          {with(volume("pvc-1", disk(nodeA), disk(nodeB)), volume("pvc-2", disk(nodeB))), false},
	} {
		if changes := before(told) != tainted(Everything, c.edit, told).Fingerprint(); changes != c.changes {
			t.Errorf("%s: changes %t, want %t", name, changes, c.changes)
		}
	}
	comes := func(to ...string) string {
		return tainted(LastCopies, with(volume("pvc-1", disk(nodeA, connected()), disk(nodeB, state(diskInconsistent), connected(to...))))).Fingerprint()
	}
	if comes(nodeA) == comes() {
		t.Error("that a copy has lost the disk that it is to be copied from is no change")
	}
}

// A node of which only last copies are made has not been told to leave, and a flag is ours only if LINSTOR says so.
func TestANodeThatStaysIsNotToldToLeave(t *testing.T) {
	t.Parallel()
	in := tainted(LastCopies, safely, asked(time.Hour, 2), func(in *Input) { in.Progress.QuorumOff = 3 })
	if plan := PlanFor(in); plan.Step.Call != Restore || plan.Progress.Asks != 0 || plan.Progress.asked() || plan.Progress.QuorumOff != 0 {
		t.Errorf("with a flag of ours: %+v", plan)
	}
	for name, evacuator := range map[string]string{"nobody's": "", "another cluster's": "other"} {
		the(nodeA, func(n *Node) { n.Evacuator = evacuator })(&in)
		if plan := PlanFor(in); plan.Step.Call != Nothing || plan.Conditions.Safe.Reason != EvacuatedByOther {
			t.Errorf("with a flag that is %s: %+v", name, plan)
		}
		returns := PlanFor(tainted(LastCopies, safely, asked(time.Hour, 2), untainted, the(nodeA, func(n *Node) { n.Evacuator = evacuator })))
		if returns.Step.Call != Nothing {
			t.Errorf("a node returns with a flag that is %s: %+v", name, returns)
		}
	}
}

// TestAnotherName has that a node which LINSTOR does not list has not returned while one that was evacuated may be it by another name.
func TestAnotherName(t *testing.T) {
	t.Parallel()
	unlisted := the(nodeA, func(n *Node) { n.Listed, n.Evacuating = false, false })
	other := func(evacuating bool, name string) edit {
		return func(in *Input) {
			in.Nodes = append(in.Nodes, Node{Name: name, Satellite: "n1", Listed: true, Online: Yes, Evacuating: evacuating, Evacuator: cluster})
		}
	}
	for name, c := range map[string]struct {
		in    Input
		holds bool
	}{
		"one that is flagged and no node of Kubernetes": {tainted(Everything, asked(time.Hour, 1), untainted, unlisted, other(true, "")), true},
		"one, where the driver has named the node": {
			tainted(Everything, asked(time.Hour, 1), untainted, unlisted, other(true, ""), the(nodeA, func(n *Node) { n.Named = true })), false,
		},
		"one that is not flagged":          {tainted(Everything, asked(time.Hour, 1), untainted, unlisted, other(false, "")), false},
		"one that is a node of Kubernetes": {tainted(Everything, asked(time.Hour, 1), untainted, unlisted, other(true, "worker-1")), false},
		"LINSTOR was told nothing":         {tainted(Everything, untainted, unlisted, other(true, "")), false},
		"the node is listed":               {tainted(Everything, asked(time.Hour, 1), untainted, the(nodeA, func(n *Node) { n.Evacuating = false }), other(true, "")), false},
	} {
		plan := PlanFor(c.in)
		if holds := plan.State == Returning && plan.Conditions.Safe != nil && plan.Conditions.Safe.Reason == NotASatellite; holds != c.holds {
			t.Errorf("%s: holds %t, want %t: %+v", name, holds, c.holds, plan)
		}
	}
}

// TestNoTargetBesideAMove has that a node is told why a copy that it sees does not count.
func TestNoTargetBesideAMove(t *testing.T) {
	t.Parallel()
	full := func(in *Input) { in.Volumes[0].Definition.Nodes = []string{nodeA, nodeB} }
	plan := PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB, moves))), full))
	if got := plan.Volumes[0]; got.Reason != NoTarget || !strings.Contains(got.Message, "its disk on node-b does not count") {
		t.Errorf("got %+v", got)
	}
	plan = PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB, state("Outdated")))), full))
	if got := plan.Volumes[0]; strings.Contains(got.Message, "does not count") {
		t.Errorf("got %+v", got)
	}
}
