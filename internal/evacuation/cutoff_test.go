package evacuation

import (
	"testing"
	"time"
)

// TestACopyThatIsCutOff has when a further copy is made of a volume whose disk on N is connected to no other that is UpToDate.
func TestACopyThatIsCutOff(t *testing.T) {
	t.Parallel()
	apart := func(node string) Replica { return disk(node, connected()) }
	says := func(props map[string]string, replicas ...Replica) edit {
		v := volume("pvc-1", replicas...)
		v.Mark = MarkOf("pvc-1", props)
		return with(v)
	}
	ours := map[string]string{PropBalance: balanceOff, PropMark: markA}
	ofAnother := map[string]string{PropBalance: balanceOff, PropMark: nodeD}
	copied := wanted{CopyingState, "False Copying", "", Autoplace, ""}
	blocked := wanted{Blocked, "False PeerOffline", "", Nothing, "pvc-1: its disk here is not connected to that on node-b"}
	for name, test := range map[string]struct {
		edit edit
		want wanted
	}{
		"one copy is tried: only that connection may be missing": {says(nil, apart(nodeA), apart(nodeB)), copied},
		"also where another node's evacuation has made one":      {says(ofAnother, apart(nodeA), apart(nodeB)), copied},
		"none after that": {says(ours, apart(nodeA), apart(nodeB)), blocked},
		"none where a person's own setting leaves no trace of the try": {says(map[string]string{PropBalance: "true"}, apart(nodeA), apart(nodeB)), blocked},
		"another one where the first is not good":                      {says(ours, apart(nodeA), disk(nodeB, state("Outdated"), connected())), copied},
		"another one where the first is on a node that leaves": {
			edited(says(ours, apart(nodeA), apart(nodeB)), the(nodeB, func(n *Node) { n.Going = true })), copied,
		},
		"all of them are named": {
			says(ours, apart(nodeA), apart(nodeC), apart(nodeB)), wanted{Blocked, "False PeerOffline", "", Nothing, "node-b, node-c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.want.check(t, tainted(LastCopies, test.edit))
		})
	}
}

// TestACopyOfNothing has that a copy without a disk to be copied from is not waited for, and holds up no other.
func TestACopyOfNothing(t *testing.T) {
	t.Parallel()
	in := tainted(LastCopies, with(
		volume("pvc-1", disk(nodeA, state("Failed")), disk(nodeB, state(diskInconsistent))), volume("pvc-2", disk(nodeA)),
	), func(in *Input) { in.Settings.MaxCopies = 1 })
	plan := PlanFor(in)
	if plan.Step.Call != Autoplace || len(plan.Step.Copies) != 1 || plan.Step.Copies[0].Resource != "pvc-2" {
		t.Errorf("pvc-2 gets no copy: %+v", plan.Step)
	}
	if plan.Volumes[0].Reason != PeerOffline {
		t.Errorf("what has nothing to be copied from is %s", plan.Volumes[0].Reason)
	}
}

// wantCopy checks whether a copy is waited for, where nothing has changed for so long and one copy may be made at a time. Where it does not come, the
// volume has that reason and message, and another volume gets its copy.
func wantCopy(t *testing.T, name string, v Volume, unchanged time.Duration, comes bool, reason Reason, message string) {
	t.Helper()
	plan := PlanFor(tainted(LastCopies, with(v, volume("pvc-2", disk(nodeA))), unchangedFrom(unchanged), func(in *Input) { in.Settings.MaxCopies = 1 }))
	if got := plan.Volumes[0]; !comes && (got.Reason != reason || got.Message != message) || comes && got.Reason != Copying {
		t.Errorf("%s: %+v", name, got)
	}
	if copies := plan.Step.Copies; comes && len(copies) > 0 || !comes && (len(copies) != 1 || copies[0].Resource != "pvc-2") {
		t.Errorf("%s: LINSTOR is told %+v", name, plan.Step)
	}
}

// TestACopyOfWhichNoWordComes has that a replica of which nobody here has heard why it has no disk is waited for three minutes, and holds up no others then.
func TestACopyOfWhichNoWordComes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left Replica
		from time.Duration
		made bool
	}{
		"after three minutes":          {disk(nodeB, state("")), 3 * time.Minute, false},
		"before":                       {disk(nodeB, state("")), 3*time.Minute - 1, true},
		"one that waits for its sync":  {disk(nodeB, state(diskInconsistent)), time.Hour, true},
		"one of which no volume is":    {disk(nodeB, disks()), time.Hour, false},
		"one that copies all the same": {disk(nodeB, syncing(10)), time.Hour, true},
	} {
		wantCopy(t, name, volume("pvc-1", disk(nodeA), test.left), test.from, test.made, NoTarget, "its copy on node-b has not come about: LINSTOR has no word on it, and nothing has changed for three minutes")
	}
	elsewhere := PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeC), disk(nodeB, state(""))), volume("pvc-2", disk(nodeA))), unchangedFrom(time.Hour),
		func(in *Input) { in.Settings.MaxCopies = 1 }))
	if elsewhere.Step.Call != Nothing {
		t.Errorf("that nothing has changed here says nothing of a copy between others: %+v", elsewhere.Step)
	}
}

// TestACopyThatIsApart has that a copy which is connected to no disk with the data is not waited for, and holds up no other volume.
func TestACopyThatIsApart(t *testing.T) {
	t.Parallel()
	inconsistent := state(diskInconsistent)
	for name, test := range map[string]struct {
		replicas []Replica
		from     time.Duration
		comes    bool
	}{
		"three minutes after its sync was broken off": {
			[]Replica{disk(nodeA, connected()), disk(nodeB, inconsistent, connected())}, 3 * time.Minute, false,
		},
		"before": {[]Replica{disk(nodeA, connected()), disk(nodeB, inconsistent, connected())}, 3*time.Minute - 1, true},
		"where the other end denies the connection": {
			[]Replica{disk(nodeA, connected(nodeB)), disk(nodeB, inconsistent, apart(nodeA))}, time.Hour, false,
		},
		"where only a disk without the data is connected": {
			[]Replica{disk(nodeA, connected()), disk(nodeB, inconsistent, connected(nodeC)), disk(nodeC, inconsistent, connected(nodeB))}, time.Hour, false,
		},
		"one that is connected waits for its turn": {[]Replica{disk(nodeA), disk(nodeB, inconsistent)}, time.Hour, true},
		"one that another one can feed":            {[]Replica{disk(nodeA, connected()), disk(nodeB, inconsistent, connected(nodeC)), disk(nodeC, moves, connected(nodeB))}, time.Hour, true},
		"one that copies":                          {[]Replica{disk(nodeA, connected()), disk(nodeB, syncing(10), connected())}, time.Hour, true},
	} {
		wantCopy(t, name, volume("pvc-1", test.replicas...), test.from, test.comes, PeerOffline, "its copy on node-b is connected to no disk that is UpToDate, and nothing has changed for three minutes")
	}
}

// TestACopyThatWasNotMade has that LINSTOR's words are told where it has left a replica behind that its satellite could not make, that no other one is asked
// for beside it, and that it holds up no other volume.
func TestACopyThatWasNotMade(t *testing.T) {
	t.Parallel()
	refused := func(in *Input) {
		in.Settings.MaxCopies = 1
		in.Memory.Refused = map[string]Refusal{"pvc-1": {Until: now.Add(-time.Hour), Words: "Failed to create the logical volume", Nodes: in.Eligible()}}
	}
	for name, test := range map[string]struct {
		left Replica
		made bool
	}{
		"a new replica":                   {disk(nodeB, state("")), false},
		"a replica without any volume":    {disk(nodeB, disks()), false},
		"a tie-breaker that gets no disk": {func() Replica { r := diskless(nodeB); r.Flags = []string{"DISK_ADD_REQUESTED"}; return r }(), false},
		"one that was made all the same":  {disk(nodeB, syncing(10)), true},
		"a tie-breaker that got its disk": {disk(nodeB, syncing(10), flagged("DISK_ADDING")), true},
		"one that waits for its sync":     {disk(nodeB, state(diskInconsistent)), true},
	} {
		plan := PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeA), test.left), volume("pvc-2", disk(nodeA))), refused))
		want := VolumeState{Reason: NoTarget, Message: "its copy on node-b has not come about: Failed to create the logical volume"}
		if got := plan.Volumes[0]; !test.made && (got.Reason != want.Reason || got.Message != want.Message) || test.made && got.Reason != Copying {
			t.Errorf("%s: %+v", name, got)
		}
		if copies := plan.Step.Copies; test.made && len(copies) > 0 || !test.made && (len(copies) != 1 || copies[0].Resource != "pvc-2") {
			t.Errorf("%s: LINSTOR is told %+v", name, plan.Step)
		}
	}
}
