package evacuation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// TestQuorumOff has of which volumes LINSTOR will switch quorum off.
func TestQuorumOff(t *testing.T) {
	t.Parallel()
	majority := func(replicas ...Replica) edit {
		v := volume("pvc-1", replicas...)
		v.Quorum = evidence.Majority
		return with(v)
	}
	three := func(in *Input) { in.Nodes = in.Nodes[:3] }
	wants := func(n int) edit { return func(in *Input) { in.Volumes[0].PlaceCount = n } }
	for name, test := range map[string]struct {
		edit edit
		off  bool
	}{
		"two disks and a tie-breaker on three nodes": {edited(three, majority(disk(nodeA), disk(nodeB), diskless(nodeC))), true},
		"the node of the tie-breaker":                {edited(three, majority(diskless(nodeA), disk(nodeB), disk(nodeC)), func(in *Input) { in.Snapshots.N = 1 }), true},
		"two disks and a tie-breaker on four nodes":  {majority(disk(nodeA), disk(nodeB), diskless(nodeC)), false},
		"three disks, of which none can move":        {edited(three, majority(disk(nodeA), disk(nodeB), disk(nodeC))), false},
		"three disks, of which LINSTOR wants two":    {edited(three, majority(disk(nodeA), disk(nodeB), disk(nodeC)), wants(2)), true},
		"two disks, of which LINSTOR wants one": {edited(majority(disk(nodeA), disk(nodeB), diskless(nodeC)), wants(1), func(in *Input) {
			in.Volumes[0].Mark = Mark{"pvc-1", []string{markA}, "false"}
		}), false},
		"the same on four nodes":                    {edited(majority(disk(nodeA), disk(nodeB), disk(nodeC)), wants(2)), false},
		"a fourth node that is evicted is no place": {edited(majority(disk(nodeA), disk(nodeB), diskless(nodeC)), the(nodeD, func(n *Node) { n.Evicted = true })), true},
		"a quorum that a person has set is not changed": {
			edited(three, majority(disk(nodeA), disk(nodeB), diskless(nodeC)), func(in *Input) { in.Volumes[0].UserQuorum = true }), false,
		},
		"quorum that is off stays off": {edited(three, with(volume("pvc-1", disk(nodeA), disk(nodeB)))), false},
	} {
		plan := PlanFor(tainted(Everything, test.edit))
		if plan.Step.Call != Evacuate {
			t.Fatalf("%s: LINSTOR is not told: %+v", name, plan)
		}
		if off := slices.Equal(plan.QuorumOff, []string{"pvc-1"}); off != test.off || plan.Step.Asking.QuorumOff != len(plan.QuorumOff) {
			t.Errorf("%s: %v, want %t", name, plan.QuorumOff, test.off)
		}
	}
}

// TestTraps has that a copy comes first where LINSTOR would use a node that leaves, whatever it is told.
func TestTraps(t *testing.T) {
	t.Parallel()
	other := alsoLeaving(nodeD, time.Minute, Conditions{})
	trap := func(replicas ...Replica) edit {
		v := volume("pvc-1", replicas...)
		v.Definition.PlaceCount = 2
		return with(v)
	}
	for name, test := range map[string]struct {
		edit edit
		want Call
	}{
		"the tie-breaker is on the other node":                {edited(other, trap(disk(nodeA), disk(nodeB), diskless(nodeD))), Autoplace},
		"one of two tie-breakers is":                          {edited(other, trap(disk(nodeA), disk(nodeB), diskless(nodeC), diskless(nodeD))), Evacuate},
		"there is none":                                       {edited(other, trap(disk(nodeA), disk(nodeB))), Evacuate},
		"there are enough copies elsewhere":                   {edited(other, trap(disk(nodeA), disk(nodeB), disk(nodeC), diskless(nodeD))), Evacuate},
		"no other node leaves":                                {trap(disk(nodeA), disk(nodeB), diskless(nodeD)), Evacuate},
		"no copy can be made":                                 {edited(other, trap(disk(nodeA), disk(nodeB), diskless(nodeD)), the(nodeC, func(n *Node) { n.Cordoned = true })), Nothing},
		"LINSTOR cannot be told anyway, and takes one by one": {edited(other, trap(disk(nodeA), disk(nodeB), diskless(nodeD)), func(in *Input) { in.Version.Spares = false }), Evacuate},
	} {
		plan := PlanFor(tainted(Everything, test.edit))
		if plan.Step.Call != test.want {
			t.Errorf("%s: %+v, want %q", name, plan, test.want)
		}
		if test.want == Autoplace && !slices.Equal(plan.Step.Copies[0].Targets, []string{nodeB, nodeC}) {
			t.Errorf("%s: %+v", name, plan.Step)
		}
	}
	refused := tainted(Everything, other, trap(disk(nodeA), disk(nodeB), diskless(nodeD)), func(in *Input) {
		in.Memory.Refused = map[string]Refusal{"pvc-1": {Until: now.Add(time.Minute), Words: "no storage pool", Nodes: in.Eligible()}}
	})
	if plan := PlanFor(refused); plan.Step.Call != Nothing || conditionText(plan.Conditions.Evacuated) != "False NoTarget" ||
		plan.Conditions.Evacuated.Message != "pvc-1: no storage pool" {
		t.Errorf("what LINSTOR has refused a moment ago it is asked for again: %+v", plan)
	}
	refused.Volumes = append(refused.Volumes, volume("pvc-0", disk(nodeA), disk(nodeB), disk(nodeC), diskless(nodeD)))
	refused.Volumes[1].Definition.PlaceCount = 4
	if plan := PlanFor(refused); !slices.Equal(plan.NoTarget, []string{"pvc-0"}) || plan.Conditions.Evacuated.Message != "pvc-1: no storage pool" {
		t.Errorf("LINSTOR's own words do not come first: %+v", plan.Conditions.Evacuated)
	}
	unread := tainted(Everything, other, trap(disk(nodeA), disk(nodeB), diskless(nodeD)))
	unread.Volumes[0].Definition = nil
	if plan := PlanFor(unread); !slices.Equal(plan.Needs.Definitions, []string{"pvc-1"}) {
		t.Errorf("the place count is not read: %+v", plan)
	}
}

// TestStuck has when a node says that LINSTOR does not get on with what it was told, so that others need not wait.
func TestStuck(t *testing.T) {
	t.Parallel()
	left := func(changes ...func(*Replica)) edit {
		return with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, changes...)))
	}
	for name, test := range map[string]struct {
		edit  edit
		stuck bool
	}{
		"what is not settled after a minute":     {edited(left(state(diskInconsistent)), asked(10*time.Minute, 1), unchangedFrom(time.Minute)), true},
		"what has changed since":                 {edited(left(state(diskInconsistent)), asked(10*time.Minute, 1), unchangedFrom(time.Minute-1)), false},
		"what syncs, though nobody says how far": {edited(left(syncing(-1)), asked(10*time.Minute, 1), unchangedFrom(time.Hour)), false},
		"what somebody else had begun before":    {edited(left(state(diskInconsistent)), unchangedFrom(time.Hour)), true},
		"a volume elsewhere that syncs meanwhile": {edited(left(state(diskInconsistent)), asked(10*time.Minute, 1), unchangedFrom(time.Hour), func(in *Input) {
			in.Volumes = append(in.Volumes, volume("pvc-2", disk(nodeC), disk(nodeD, syncing(1))))
		}), true},
	} {
		want := wanted{LeavingState, "True CopiedElsewhere", "False Leaving", Nothing, "waiting until LINSTOR has settled: pvc-1"}
		if test.stuck {
			want.evacuated, want.says = "False LeavingStalled", "nothing has changed for a minute; LINSTOR said: no such pool"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want.check(t, tainted(Everything, test.edit, func(in *Input) { in.Memory.NotMoved = "no such pool" }))
		})
	}
	used := PlanFor(tainted(Everything, with(volume("pvc-1", disk(nodeA, inUse), disk(nodeB))), asked(10*time.Minute, 1), unchangedFrom(time.Hour)))
	if got := conditionText(used.Conditions.Evacuated); got != "False WaitingForDrain" {
		t.Errorf("what is used again is %s", got)
	}
	silent := PlanFor(tainted(Everything, left(state(diskInconsistent)), asked(10*time.Minute, 1), unchangedFrom(time.Hour)))
	if strings.Contains(silent.Conditions.Evacuated.Message, "said") {
		t.Errorf("LINSTOR has said nothing: %q", silent.Conditions.Evacuated.Message)
	}
}

// TestDoNotTarget has which nodes LINSTOR is told not to use.
func TestDoNotTarget(t *testing.T) {
	t.Parallel()
	plan := PlanFor(tainted(Everything, safely, alsoLeaving(nodeD, time.Minute, Conditions{}), the(nodeC, func(n *Node) { n.Going = true })))
	if want := []string{nodeC, nodeD}; !slices.Equal(plan.Step.DoNotTarget, want) {
		t.Errorf("got %+v, want %v", plan.Step, want)
	}
}
