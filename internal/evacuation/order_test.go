package evacuation

import (
	"testing"
	"time"
)

// TestOrder has which node goes first.
func TestOrder(t *testing.T) {
	t.Parallel()
	at := func(safe, evacuated Reason) Conditions {
		return Conditions{Safe: &Condition{Reason: safe}, Evacuated: &Condition{Reason: evacuated}}
	}
	two := func(in *Input) { in.Settings.MaxNodes = 2 }
	for name, test := range map[string]struct {
		edit  edit
		waits bool
	}{
		"one that copies goes on before one that came later":       {alsoLeaving(nodeB, 2*time.Hour, at(Copying, Copying)), true},
		"one that leaves goes on before one that came later":       {alsoLeaving(nodeB, 2*time.Hour, at(CopiedElsewhere, Leaving)), true},
		"one that is about to begin goes first":                    {alsoLeaving(nodeB, 2*time.Hour, Conditions{}), true},
		"of two at the same time the first by its name goes first": {the(nodeB, func(n *Node) { n.Evacuate, n.Since, n.Name = []Taint{{"", "NoSchedule"}}, now.Add(-time.Hour), "a" }), true},
		"of two at the same time the second holds up nobody":       {alsoLeaving(nodeB, time.Hour, at(Copying, Copying)), false},
		"one that came later holds up nobody":                      {alsoLeaving(nodeB, time.Minute, at(Copying, Copying)), false},
		"one that has not been noted yet holds up nobody": {
			the(nodeB, func(n *Node) { n.Evacuate = []Taint{{"", "NoSchedule"}} }), false,
		},
		"one that is safe holds up nobody":            {alsoLeaving(nodeB, 2*time.Hour, at(CopiedElsewhere, WaitingForDrain)), false},
		"one that has no target holds up nobody":      {alsoLeaving(nodeB, 2*time.Hour, at(NoTarget, NoTarget)), false},
		"one that LINSTOR does not move is not at it": {alsoLeaving(nodeB, 2*time.Hour, at(CopiedElsewhere, LeavingStalled)), false},
		"one that is offline holds up nobody":         {alsoLeaving(nodeB, 2*time.Hour, at(SatelliteOffline, SatelliteOffline)), false},
		"one that has left holds up nobody":           {alsoLeaving(nodeB, 2*time.Hour, at(CopiedElsewhere, NothingLeft)), false},
		"one that is refused holds up nobody": {
			edited(alsoLeaving(nodeB, 2*time.Hour, Conditions{}), the(nodeB, func(n *Node) { n.Evacuate[0].Effect = "NoExecute" })), false,
		},
		"two go together where two may":   {edited(two, alsoLeaving(nodeB, 2*time.Hour, at(Copying, Copying))), false},
		"a third one waits where two may": {edited(two, alsoLeaving(nodeB, 2*time.Hour, at(Copying, Copying)), alsoLeaving(nodeC, 3*time.Hour, at(Copying, Copying))), true},
	} {
		for step, volumes := range map[string]edit{"copies": with(volume("pvc-1", disk(nodeA))), "leaves": with(volume("pvc-1", disk(nodeA), disk(nodeD)))} {
			plan := PlanFor(tainted(Everything, volumes, test.edit))
			if waits := plan.Step.Call == Nothing && plan.Conditions.Evacuated.Reason == AnotherNodeFirst; waits != test.waits {
				t.Errorf("%s, when it %s: waits %t, want %t: %+v", name, step, waits, test.waits, plan)
			}
		}
	}
}

// TestOvertaken has whom a node waits for that came first and was drained last.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	leaves := Conditions{Safe: &Condition{Reason: CopiedElsewhere}, Evacuated: &Condition{Reason: Leaving}}
	copies := Conditions{Safe: &Condition{Reason: Copying}, Evacuated: &Condition{Reason: Copying}}
	two := func(in *Input) { in.Settings.MaxNodes = 2 }
	for name, test := range map[string]struct {
		edit  edit
		waits bool
	}{
		"one that came later and leaves already":           {edited(safely, alsoLeaving(nodeC, time.Minute, leaves)), true},
		"but not after LINSTOR was told":                   {edited(safely, asked(10*time.Minute, 1), unchangedFrom(time.Hour), alsoLeaving(nodeC, time.Minute, leaves)), false},
		"nor for one that is still copied":                 {edited(safely, alsoLeaving(nodeC, time.Minute, copies)), false},
		"nor for a copy":                                   {alsoLeaving(nodeC, time.Minute, leaves), false},
		"nor for one that returns":                         {edited(safely, the(nodeC, func(n *Node) { n.Since, n.Conditions = now.Add(-time.Minute), leaves })), false},
		"nor where two may":                                {edited(safely, two, alsoLeaving(nodeC, time.Minute, leaves)), false},
		"nor where two may and the other one came earlier": {edited(safely, two, alsoLeaving(nodeC, 2*time.Hour, leaves)), false},
		"but where two may and both others leave": {
			edited(safely, two, alsoLeaving(nodeC, 2*time.Hour, leaves), alsoLeaving(nodeD, time.Minute, leaves)), true,
		},
	} {
		plan := PlanFor(tainted(Everything, test.edit))
		if waits := plan.Step.Call == Nothing && plan.Conditions.Evacuated.Reason == AnotherNodeFirst; waits != test.waits {
			t.Errorf("%s: waits %t, want %t: %+v", name, waits, test.waits, plan)
		}
	}
}

// TestOldLinstor has that one node leaves at a time where LINSTOR cannot be told which nodes not to use.
func TestOldLinstor(t *testing.T) {
	t.Parallel()
	old := edited(safely, func(in *Input) { in.Version.Spares, in.Settings.MaxNodes = false, 3 })
	waiting := Conditions{Safe: &Condition{Status: True, Reason: CopiedElsewhere}, Evacuated: &Condition{Status: False, Reason: WaitingForDrain}}
	left := Conditions{Safe: waiting.Safe, Evacuated: &Condition{Status: True, Reason: NothingLeft}}
	if plan := PlanFor(tainted(Everything, old, the(nodeD, func(n *Node) { n.Going = true }))); plan.Step.Call != Evacuate || plan.Step.DoNotTarget != nil {
		t.Errorf("alone it is not told without a body: %+v", plan.Step)
	}
	if plan := PlanFor(tainted(Everything, old, alsoLeaving(nodeD, 2*time.Hour, waiting))); plan.Step.Call != Nothing {
		t.Errorf("it is told while another node is to leave first: %+v", plan.Step)
	}
	if plan := PlanFor(tainted(Everything, old, alsoLeaving(nodeD, 2*time.Hour, left))); plan.Step.Call != Evacuate {
		t.Errorf("it is not told although the other node has left: %+v", plan)
	}
	if plan := PlanFor(tainted(Everything, old, alsoLeaving(nodeD, time.Minute, waiting))); plan.Step.Call != Evacuate {
		t.Errorf("it is not told although it goes first: %+v", plan)
	}
}

// TestBegin has what is noted of a node on its first look.
func TestBegin(t *testing.T) {
	t.Parallel()
	fresh := edited(func(in *Input) { in.Progress = nil }, the(nodeA, func(n *Node) { n.Since = time.Time{} }))
	behind := alsoLeaving(nodeB, time.Hour, Conditions{Safe: &Condition{Reason: Copying}})
	if p := PlanFor(tainted(LastCopies, fresh, behind)).Progress; p == nil || p.Mode != LastCopies || !p.Since.Equal(now) {
		t.Errorf("a node that waits does not get its place: %v", p)
	}
	if p := PlanFor(tainted(Everything, fresh, the(nodeA, func(n *Node) { n.Since = now.Add(-time.Second) }))).Progress; !p.Since.Equal(now.Add(-time.Second)) {
		t.Errorf("the place that it has is not noted: %v", p)
	}
	if p := PlanFor(tainted(Everything, fresh, func(in *Input) { in.Halt.DryRun = true })).Progress; p != nil {
		t.Errorf("a dry run notes %v", p)
	}
	if p := PlanFor(tainted(Everything, func(in *Input) { in.Progress.Mode = LastCopies })).Progress; p.Mode != Everything || !p.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("another value of the taint is not noted, or the place is lost: %v", p)
	}
	safe := PlanFor(tainted(LastCopies, safely)).Progress
	if safe.Safe == nil || !safe.Safe.Equal(now) {
		t.Errorf("it is not noted that the node is safe: %v", safe)
	}
	crashed := PlanFor(tainted(LastCopies, safely, func(in *Input) { in.Progress = safe }, the(nodeA, func(n *Node) { n.Online = No }))).Progress
	if crashed.Safe == nil {
		t.Error("a node that goes silent is not known to be safe any more")
	}
	unsafe := PlanFor(tainted(LastCopies, func(in *Input) { in.Progress = safe })).Progress
	if unsafe.Safe != nil {
		t.Error("a node that is not safe is noted as safe")
	}
}
