package evacuation

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMarkBeforeCopy has what is set before a copy is made.
func TestMarkBeforeCopy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		props map[string]string
		want  *Change
	}{
		"balancing is switched off": {
			nil, &Change{Resource: "pvc-1", Set: map[string]string{PropMark: markA, PropBalance: "false"}},
		},
		"what a person has set is not touched":   {map[string]string{PropBalance: "true"}, nil},
		"what a person has switched off neither": {map[string]string{PropBalance: "false"}, nil},
		"what is marked for the node stays":      {map[string]string{PropBalance: "false", PropMark: markA}, nil},
		"what is marked for another is for this, too": {
			map[string]string{PropBalance: "false", PropMark: markB},
			&Change{Resource: "pvc-1", Set: map[string]string{PropMark: markA + "," + markB}},
		},
	} {
		mark := MarkOf("pvc-1", test.props)
		if got := mark.With(markA); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		plan := PlanFor(tainted(Everything, func(in *Input) { in.Volumes[0].Definition.Mark = mark }))
		if got := plan.Step.Copies[0].Mark; got != (test.want != nil) {
			t.Errorf("%s: the plan marks it %t", name, got)
		}
	}
}

// A copy does not count if a person lets LINSTOR's balancing remove it, with a mark on the definition or without.
func TestACopyThatBalancingMayRemoveIsNotSafe(t *testing.T) {
	t.Parallel()
	for name, props := range map[string]map[string]string{
		"without a mark": {PropBalance: "true"},
		"with a mark":    {PropBalance: "true", PropMark: markA},
	} {
		for _, mode := range []Mode{LastCopies, Everything} {
			in := tainted(mode, with(volume("pvc-1", disk(nodeA), disk(nodeB))), func(in *Input) {
				in.Volumes[0].PlaceCount, in.Volumes[0].Mark = 1, MarkOf("pvc-1", props)
			})
			plan := PlanFor(in)
			if conditionText(plan.Conditions.Safe) != "False BalancingEnabled" || plan.Step.Call != Nothing {
				t.Errorf("%s: %+v", name, plan)
			}
		}
	}
}

// TestCopiesThatAreKept has which copies that there are already are kept from LINSTOR's balancing, before the node is called safe.
func TestCopiesThatAreKept(t *testing.T) {
	t.Parallel()
	wants := func(n int, props map[string]string) edit {
		return func(in *Input) { in.Volumes[0].PlaceCount, in.Volumes[0].Mark = n, MarkOf("pvc-1", props) }
	}
	two := with(volume("pvc-1", disk(nodeA), disk(nodeB)))
	three := with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC)))
	offline := the(nodeC, func(n *Node) { n.Online = No })
	ours := map[string]string{PropBalance: "false", PropMark: markA}
	for name, test := range map[string]struct {
		edit edit
		kept bool // else the node is safe at once
	}{
		"the only copy where the group wants one disk":          {edited(two, wants(1, nil)), true},
		"the only copy where nobody knows what the group wants": {edited(two, wants(0, nil)), true},
		"no copy where the group wants them":                    {edited(two, wants(2, nil)), false},
		"no copy while enough of them stay":                     {edited(three, wants(2, nil)), false},
		"each copy where all of them may go":                    {edited(three, wants(1, nil)), true},
		"the good copy beside one that nobody reaches":          {edited(three, offline, wants(2, nil)), true},
		"the good copy beside one of which nothing is known": {
			edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, state("")))), offline, wants(2, nil)), true,
		},
		"the good copy beside a disk that is being removed": {
			edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), func() Replica { r := diskless(nodeC); r.Flags = []string{"DISK_REMOVING"}; return r }())), wants(2, nil)), true,
		},
		"no copy while another one is on its way": {
			edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), disk(nodeC, syncing(10)))), wants(2, nil)), false,
		},
		"no copy where a person has switched balancing off":                 {edited(two, wants(1, map[string]string{PropBalance: "False"})), false},
		"also a copy of which somebody has taken off that balancing is off": {edited(two, wants(1, map[string]string{PropMark: markA})), true},
		"no copy that is kept already":                                      {edited(two, wants(1, ours)), false},
		"no copy of what the node has no disk of":                           {edited(with(volume("pvc-1", diskless(nodeA), disk(nodeB), disk(nodeC))), wants(1, nil)), false},
		"also a copy that is kept for another node": {
			edited(two, wants(1, map[string]string{PropBalance: "false", PropMark: nodeD})), true,
		},
		"no copy beside a replica without a disk": {edited(with(volume("pvc-1", disk(nodeA), disk(nodeB), diskless(nodeC))), wants(2, nil)), false},
	} {
		plan := PlanFor(tainted(LastCopies, test.edit))
		want := Plan{State: Safe}
		if test.kept {
			want = Plan{State: CopyingState, Step: Step{Call: Properties, Mark: []string{"pvc-1"}}}
		}
		isSafe := plan.Conditions.Safe.Status == True
		if plan.State != want.State || isSafe == test.kept || plan.Step.Call != want.Step.Call || !slices.Equal(plan.Step.Mark, want.Step.Mark) {
			t.Errorf("%s: got %+v, want %+v", name, plan, want)
		}
		if test.kept && plan.Conditions.Safe.Reason != Copying {
			t.Errorf("%s: the node says %s", name, plan.Conditions.Safe.Reason)
		}
		if strings.Contains(plan.Conditions.Safe.Message, "%") {
			t.Errorf("%s: nothing is copied, and the node says %q", name, plan.Conditions.Safe.Message)
		}
	}
}

// TestAMarkThatLinstorRefuses has that it is told why a copy is not safe, and that other volumes get theirs meanwhile.
func TestAMarkThatLinstorRefuses(t *testing.T) {
	t.Parallel()
	refused := func(in *Input) {
		in.Volumes[0].PlaceCount = 1
		in.Memory.Failed = map[Call]Failure{Properties: {Times: 1, At: now.Add(-time.Second), Words: "pvc-1: locked"}}
	}
	plan := PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB)), volume("pvc-2", disk(nodeA))), refused))
	if plan.Step.Call != Autoplace || len(plan.Step.Copies) != 1 || plan.Step.Copies[0].Resource != "pvc-2" {
		t.Errorf("pvc-2 gets no copy: %+v", plan.Step)
	}
	plan = PlanFor(tainted(LastCopies, with(volume("pvc-1", disk(nodeA), disk(nodeB))), refused))
	if c := plan.Conditions.Safe; c.Status != False || c.Reason != LinstorRefuses || !strings.Contains(c.Message, "pvc-1: locked") || plan.Step.Call != Nothing {
		t.Errorf("the node says %+v, and LINSTOR is told %+v", c, plan.Step)
	}
}

// TestMarksGo has what is taken away of marks, and when.
func TestMarksGo(t *testing.T) {
	t.Parallel()
	marked := func(props map[string]string) edit {
		return func(in *Input) { in.Marked = Marks{true, []Mark{MarkOf("pvc-1", props)}} }
	}
	ours := map[string]string{PropBalance: "false", PropMark: markA}
	both := map[string]string{PropBalance: "false", PropMark: markA + ", Node-B"}
	all := Change{Resource: "pvc-1", Delete: []string{PropMark, PropBalance}}
	gone := edited(with(volume("pvc-1", diskless(nodeA), disk(nodeC))), asked(time.Hour, 1))
	other := alsoLeaving(nodeB, time.Minute, Conditions{Safe: &Condition{}})
	for name, test := range map[string]struct {
		edit edit
		want []Change
	}{
		"both on return": {edited(safely, untainted, marked(ours)), []Change{all}},
		"both when the node has no disk of it any more": {edited(gone, marked(ours)), []Change{all}},
		"none while the node has a disk of it": {
			edited(with(volume("pvc-1", disk(nodeA), disk(nodeC))), asked(time.Second, 1), marked(ours)), nil,
		},
		"only this node while another leaves": {
			edited(gone, other, marked(both)), []Change{{Resource: "pvc-1", Set: map[string]string{PropMark: "node-b"}}},
		},
		"only this node where nobody evacuates the other any more": {
			edited(gone, marked(both)), []Change{{Resource: "pvc-1", Set: map[string]string{PropMark: "node-b"}}},
		},
		"none of others": {edited(gone, marked(map[string]string{PropBalance: "false", PropMark: markB})), nil},
		"only the mark where a person has set balancing since": {
			edited(gone, marked(map[string]string{PropBalance: "true", PropMark: markA})), []Change{{Resource: "pvc-1", Delete: []string{PropMark}}},
		},
		"none of a definition without a mark": {edited(gone, marked(map[string]string{PropBalance: "false"})), nil},
	} {
		in := tainted(Everything, test.edit)
		plan := PlanFor(in)
		var got []Change
		for _, resource := range plan.Step.Unmark {
			i := slices.IndexFunc(in.Marked.All, func(m Mark) bool { return m.Resource == resource })
			got = append(got, *in.Marked.All[i].Without(plan.Step.Entry))
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v by %+v", name, got, test.want, plan)
		}
	}
}

// TestMarkOfOthers has that a mark which does not name a node is left alone, also where a person has switched balancing off.
func TestMarkOfOthers(t *testing.T) {
	t.Parallel()
	for _, mark := range []Mark{{"pvc-1", []string{markB}, balanceOff}, {"pvc-1", nil, balanceOff}} {
		if change := mark.Without(markA); change != nil {
			t.Errorf("of %+v is made %+v", mark, change)
		}
	}
}

// TestUnfinishedMoves has that what LINSTOR may still move is told when a node returns.
func TestUnfinishedMoves(t *testing.T) {
	t.Parallel()
	moved := with(volume("pvc-1", disk(nodeA, moves), disk(nodeB)), volume("pvc-2", disk(nodeA)))
	plan := PlanFor(tainted(Everything, moved, untainted))
	if plan.State != Returned || !reflect.DeepEqual(plan.Unfinished, []string{"pvc-1"}) {
		t.Errorf("got %+v", plan)
	}
}

// TestProgress has that a node's annotation is read as it was written.
func TestProgress(t *testing.T) {
	t.Parallel()
	at := now
	p := Progress{Mode: LastCopies, Since: now, Safe: &at, Asked: &at, Asks: 2, QuorumOff: 3}
	read, err := ParseProgress(p.String())
	if err != nil || !read.Equal(p) {
		t.Errorf("got %s, %v", read, err)
	}
	if _, err := ParseProgress("yes"); err == nil {
		t.Error("nonsense is read")
	}
}

// Progress is written on nodes, where another release of the controller reads it.
func TestProgressIsWrittenInTheFormOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for form, p := range map[string]Progress{
		`{"mode":"last-copies","since":"2026-11-01T12:00:00Z","safe":"2026-11-01T12:00:00Z","asked":"2026-11-01T12:00:00Z","asks":2,"quorumOff":3}`: {
			Mode: LastCopies, Since: at, Safe: &at, Asked: &at, Asks: 2, QuorumOff: 3,
		},
		`{"mode":"","since":"2026-11-01T12:00:00Z"}`: {Mode: Everything, Since: at},
	} {
		if text := p.String(); text != form {
			t.Errorf("written as %s, want %s", text, form)
		}
		if read, err := ParseProgress(form); err != nil || !reflect.DeepEqual(read, p) {
			t.Errorf("%s is read as %+v (%v)", form, read, err)
		}
	}
}

// TestMarksOfOthersStay has that a mark without the node is none to change.
func TestMarksOfOthersStay(t *testing.T) {
	t.Parallel()
	for _, m := range []Mark{{}, {"pvc-1", []string{markB}, "false"}} {
		if change := m.Without(markA); change != nil {
			t.Errorf("%+v: got %+v", m, change)
		}
	}
}
