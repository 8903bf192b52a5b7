package evacuation

import (
	"slices"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// TestGoodCopyElsewhere has each clause of what a good copy is.
func TestGoodCopyElsewhere(t *testing.T) {
	t.Parallel()
	type row struct {
		edit edit
		good bool
	}
	tests := map[string]row{
		"a disk that is UpToDate":             {with(volume("pvc-1", disk(nodeA), disk(nodeB))), true},
		"one of two disks":                    {with(volume("pvc-1", disk(nodeA), disk(nodeC, state("Outdated")), disk(nodeB))), true},
		"a disk, while this one is not":       {with(volume("pvc-1", disk(nodeA, state("Failed")), disk(nodeB))), true},
		"a disk, while this one is not known": {with(volume("pvc-1", disk(nodeA, state(""), connected()), disk(nodeB, connected()))), false},
		"a disk that may have missed what this one has": {
			with(volume("pvc-1", disk(nodeA, state("Consistent"), connected()), disk(nodeB, connected()))), false,
		},
		"a disk, not connected to this one, which is behind": {
			with(volume("pvc-1", disk(nodeA, state("Outdated"), connected()), disk(nodeB, connected()))), true,
		},
		"a disk, not connected to this one, of which one volume is behind": {
			with(volume("pvc-1", disk(nodeA, disks("Outdated", diskUpToDate), connected()), disk(nodeB, disks(diskUpToDate, diskUpToDate), connected()))), false,
		},
		"a disk that LINSTOR may move away":  {with(volume("pvc-1", disk(nodeA), disk(nodeB, moves))), false},
		"a disk beside one that it may move": {with(volume("pvc-1", disk(nodeA, moves), disk(nodeB, moves), disk(nodeC))), true},
		"a disk that syncs to others":        {with(volume("pvc-1", disk(nodeA), disk(nodeB, alsoSyncing))), true},
		"the disk on the node itself":        {with(volume("pvc-1", disk(nodeA))), false},
		"a replica without a disk":           {with(volume("pvc-1", disk(nodeA), diskless(nodeB))), false},
		"one of its volumes that is not":     {with(volume("pvc-1", disk(nodeA), disk(nodeB, disks(diskUpToDate, diskInconsistent)))), false},
		"one of its volumes that is missing": {with(volume("pvc-1", disk(nodeA, disks(diskUpToDate, diskUpToDate)), disk(nodeB))), false},
		"a replica without volumes":          {with(volume("pvc-1", disk(nodeA), disk(nodeB, disks()))), false},
		"a node that LINSTOR forgot":         {with(volume("pvc-1", disk(nodeA), disk("node-x"))), false},
		"a node that is not ONLINE":          {the(nodeB, func(n *Node) { n.Online = No }), false},
		"a node that may be ONLINE":          {the(nodeB, func(n *Node) { n.Online = Unknown }), false},
		"a node that is not Ready":           {the(nodeB, func(n *Node) { n.Ready = No }), false},
		"a node that may be Ready":           {the(nodeB, func(n *Node) { n.Ready = Unknown }), false},
		"a node that is cordoned":            {the(nodeB, func(n *Node) { n.Cordoned = true }), true},
		"a node that leaves":                 {the(nodeB, func(n *Node) { n.Evacuate = []Taint{{"", "NoSchedule"}} }), false},
		"a node with any such taint":         {the(nodeB, func(n *Node) { n.Evacuate = []Taint{{"what", "NoExecute"}} }), false},
		"a node that is switched off":        {the(nodeB, func(n *Node) { n.Going = true }), false},
		"a node flagged EVACUATE":            {the(nodeB, func(n *Node) { n.Evacuating = true }), false},
		"a node flagged EVICTED":             {the(nodeB, func(n *Node) { n.Evicted = true }), false},
	}
	for _, flag := range []string{"DELETE", "DRBD_DELETE", "EVICTED", "EVACUATE", "INACTIVE"} {
		tests["a replica flagged "+flag] = row{with(volume("pvc-1", disk(nodeA), disk(nodeB, flagged(flag)))), false}
	}
	for _, word := range []string{"", "Inconsistent", "SyncTarget", "Outdated", "Consistent", "DUnknown", "Failed", "Diskless", "Attaching", "Negotiating"} {
		tests["a disk that is "+quoted(word)] = row{with(volume("pvc-1", disk(nodeA), disk(nodeB, state(word)))), false}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := assess(tainted(Everything, safely, test.edit))
			if got := s.goodElsewhere(s.Volumes[0]); got != test.good {
				t.Errorf("got %t, want %t", got, test.good)
			}
		})
	}
}

// TestWordsOnADisk has what each of DRBD's words says of a disk.
func TestWordsOnADisk(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]struct{ becomes, behind, votes bool }{
		"":             {becomes: true},
		"UpToDate":     {votes: true},
		"Consistent":   {votes: true},
		"Outdated":     {behind: true, votes: true},
		"Inconsistent": {becomes: true, behind: true, votes: true},
		"SyncTarget":   {becomes: true, behind: true, votes: true},
		"Attaching":    {becomes: true},
		"Negotiating":  {becomes: true},
		"Failed":       {behind: true},
		"Diskless":     {behind: true},
		"DUnknown":     {},
	} {
		onItsWay := PlanFor(tainted(Everything, with(volume("pvc-1", disk(nodeA), disk(nodeB, state(word))))))
		if got := onItsWay.Step.Call == Nothing && conditionText(onItsWay.Conditions.Safe) == "False Copying"; got != want.becomes {
			t.Errorf("a copy that is %q is on its way: %t", word, got)
		}
		apart := assess(tainted(Everything, with(volume("pvc-1", disk(nodeA, state(word), connected()), disk(nodeB, connected())))))
		if got := apart.goodElsewhere(apart.Volumes[0]); got != want.behind {
			t.Errorf("a copy that is not connected is good where the disk here is %q: %t", word, got)
		}
		three := volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state(word)))
		three.Quorum = evidence.Majority
		if got := assess(tainted(Everything, with(three))).keepsQuorum(three); got != want.votes {
			t.Errorf("a disk that is %q makes a majority with another: %t", word, got)
		}
	}
}

func alsoSyncing(r *Replica) { r.Syncing = true }

// disks gives a replica a disk for each word.
func disks(words ...string) func(*Replica) {
	return func(r *Replica) {
		r.Disks = make(map[int]string)
		for n, word := range words {
			r.Disks[n] = word
		}
	}
}

// TestTargets has what LINSTOR may choose from for a copy.
func TestTargets(t *testing.T) {
	t.Parallel()
	group := func(nodes ...string) edit {
		return func(in *Input) { in.Volumes[0].Definition.Nodes = nodes }
	}
	for name, test := range map[string]struct {
		edit edit
		want []string
	}{
		"all but the node itself":   {group(), []string{nodeB, nodeC, nodeD}},
		"those of the group's list": {group(nodeA, nodeC), []string{nodeC}},
		"none that leaves":          {alsoLeaving(nodeC, 1, Conditions{}), []string{nodeB, nodeD}},
		"none that is switched off": {the(nodeC, func(n *Node) { n.Going = true }), []string{nodeB, nodeD}},
		"none that is evicted":      {the(nodeC, func(n *Node) { n.Evicted = true }), []string{nodeB, nodeD}},
		"none that others evacuate": {the(nodeC, func(n *Node) { n.Evacuating = true }), []string{nodeB, nodeD}},
		"none that is cordoned":     {the(nodeC, func(n *Node) { n.Cordoned = true }), []string{nodeB, nodeD}},
		"none that is not Ready":    {the(nodeC, func(n *Node) { n.Ready = No }), []string{nodeB, nodeD}},
		"none that may be Ready":    {the(nodeC, func(n *Node) { n.Ready = Unknown }), []string{nodeB, nodeD}},
		"none that is not ONLINE":   {the(nodeC, func(n *Node) { n.Online = No }), []string{nodeB, nodeD}},
		"none that is no satellite": {the(nodeC, func(n *Node) { n.Listed = false }), []string{nodeB, nodeD}},
		"a list of which none is left": {
			edited(group(nodeA, nodeC), the(nodeC, func(n *Node) { n.Cordoned = true })), nil,
		},
		"a list of which each has a disk": {edited(with(volume("pvc-1", disk(nodeA), disk(nodeC, state("Failed")))), group(nodeC)), nil},
		"a list with a tie-breaker":       {edited(with(volume("pvc-1", disk(nodeA), diskless(nodeC))), group(nodeC)), []string{nodeC}},
		"none from which LINSTOR would move the disk again": {
			with(volume("pvc-1", disk(nodeA), diskless(nodeC, moves))), []string{nodeB, nodeD},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := tainted(Everything, test.edit)
			in.Settings.MaxNodes = 2
			plan := PlanFor(in)
			if test.want == nil {
				if plan.Step.Call != Nothing || !slices.Equal(plan.NoTarget, []string{"pvc-1"}) {
					t.Fatalf("something is placed: %+v", plan)
				}
				return
			}
			if plan.Step.Call != Autoplace || !slices.Equal(plan.Step.Copies[0].Targets, test.want) {
				t.Errorf("got %+v, want %v", plan.Step, test.want)
			}
		})
	}
}

// TestPace has how many copies are made at a time.
func TestPace(t *testing.T) {
	t.Parallel()
	single := func(name string) Volume { return volume(name, disk(nodeA)) }
	on := func(name string) Volume { return volume(name, disk(nodeA), disk(nodeB, syncing(1))) }
	for name, test := range map[string]struct {
		volumes []Volume
		want    int
	}{
		"all where they are few":            {[]Volume{single("1"), single("2")}, 2},
		"no more than may be":               {[]Volume{single("1"), single("2"), single("3"), single("4")}, 3},
		"fewer beside those on their way":   {[]Volume{on("1"), on("2"), single("3"), single("4")}, 1},
		"none beside enough on their way":   {[]Volume{on("1"), on("2"), on("3"), single("4")}, 0},
		"those for other nodes count":       {[]Volume{volume("1", disk(nodeC), disk(nodeB, syncing(1))), single("2"), single("3"), single("4")}, 2},
		"those that nobody waits for don't": {[]Volume{volume("1", disk(nodeA), disk(nodeC), disk(nodeB)), single("2"), single("3"), single("4")}, 3},
	} {
		in := tainted(Everything, with(test.volumes...))
		in.Settings.MaxCopies = 3
		if plan := PlanFor(in); len(plan.Step.Copies) != test.want {
			t.Errorf("%s: %d copies, want %d", name, len(plan.Step.Copies), test.want)
		}
	}
}

// TestCopiesReadDefinitions has what is read of a volume before it is copied.
func TestCopiesReadDefinitions(t *testing.T) {
	t.Parallel()
	in := tainted(Everything, with(volume("1", disk(nodeA)), volume("2", disk(nodeA)), volume("3", disk(nodeA), disk(nodeB))))
	for i := range in.Volumes {
		in.Volumes[i].Definition = nil
	}
	plan := PlanFor(in)
	if plan.Step.Call != Nothing || !slices.Equal(plan.Needs.Definitions, []string{"1", "2"}) {
		t.Errorf("got %+v", plan)
	}
}

// TestNothingBecomesUpToDateOfNothing has that a replica without a volume, of which none is known, does not pass for one that is being filled.
func TestNothingBecomesUpToDateOfNothing(t *testing.T) {
	t.Parallel()
	bare := Replica{Node: nodeB, Disks: map[int]string{}}
	if volume("pvc-1", Replica{Node: nodeA, Disks: map[int]string{}}, bare).becomes(bare) {
		t.Error("a replica of no volume becomes UpToDate")
	}
}
