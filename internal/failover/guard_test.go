package failover

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// timeline is a cluster as a process sees it, which looks at it every two seconds.
type timeline struct {
	*testing.T
	memory GuardMemory
	limit  Limit
	view   View
	// began is when the story did.
	began time.Time
	last  string
}

var halfOfThem = Limit{Percent: true, Value: 50}

// watched is a timeline of nodes that have all been well for an hour.
func watched(t *testing.T, names string) *timeline {
	t.Helper()
	l := &timeline{T: t, limit: halfOfThem, began: now}
	l.view = View{Now: now, Up: ago(time.Hour)}
	for name := range strings.FieldsSeq(names) {
		l.view.Satellites = append(l.view.Satellites, Satellite{Name: name, Online: true, LastOnline: now})
	}
	l.until(0)
	return l
}

func (l *timeline) node(name string) *Satellite {
	i := slices.IndexFunc(l.view.Satellites, func(s Satellite) bool { return s.Name == name })
	if i < 0 {
		l.Fatalf("there is no node %s", name)
	}
	return &l.view.Satellites[i]
}

func (l *timeline) away(names ...string) {
	for _, name := range names {
		l.node(name).Online = false
	}
}

func (l *timeline) back(names ...string) {
	for _, name := range names {
		s := l.node(name)
		s.Online, s.LostVolume = true, false
	}
}

func (l *timeline) loses(names ...string) {
	for _, name := range names {
		l.node(name).LostVolume = true
	}
}

// until lets time pass to that long after the start.
func (l *timeline) until(at time.Duration) {
	l.Helper()
	for end := l.began.Add(at); ; {
		for i := range l.view.Satellites {
			if s := &l.view.Satellites[i]; s.Online {
				s.LastOnline = l.view.Now
			}
		}
		l.last = l.memory.Observe(l.view, l.limit)
		if !l.view.Now.Before(end) {
			return
		}
		l.view.Now = latest(l.view.Now, minTime(l.view.Now.Add(2*time.Second), end))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (l *timeline) open() {
	l.Helper()
	if l.last != "" {
		l.Errorf("after %s the guard is closed: %s", l.view.Now.Sub(l.began), l.last)
	}
}

// closed fails unless the guard is closed and says so many of so many nodes.
func (l *timeline) closed(says string) {
	l.Helper()
	if l.last == "" || !strings.HasPrefix(l.last, says) {
		l.Errorf("after %s the guard says %q, want %q", l.view.Now.Sub(l.began), l.last, says)
	}
}

func TestTheGuardInTime(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		nodes string
		story func(*timeline)
	}{
		"one node of three dies, as the holder of a disk or the tie-breaker": {"a b t", func(l *timeline) {
			l.away("t")
			l.until(10 * time.Second)
			l.open()
			l.loses("t")
			l.until(20 * time.Second)
			l.open()
		}},
		"two of three nodes die": {"a b t", func(l *timeline) {
			l.away("a", "t")
			l.until(10 * time.Second)
			l.closed("2 of 3 nodes seem lost at once (a, t)")
		}},
		"three of five nodes die, and those that are left are the cluster two minutes later": {"a b c d e", func(l *timeline) {
			l.away("a", "b")
			l.until(4 * time.Second)
			l.open()
			l.away("c")
			l.until(6 * time.Second)
			l.closed("3 of 5 nodes")
			l.until(2*time.Minute - time.Second)
			l.closed("3 of 5 nodes")
			l.until(2 * time.Minute)
			l.open()
		}},
		"two of five nodes have been away for long, and a third one dies": {"a b c d e", func(l *timeline) {
			l.away("a", "b")
			l.until(time.Hour)
			l.away("c")
			l.loses("c")
			l.until(time.Hour + 10*time.Second)
			l.open()
			l.away("d")
			l.until(time.Hour + 20*time.Second)
			l.closed("2 of 3 nodes seem lost at once (c, d)")
		}},
		"the satellites are upgraded one at a time": {"a b c", func(l *timeline) {
			for i, node := range []string{"a", "b", "c"} {
				begin := time.Duration(i) * 30 * time.Second
				l.away(node)
				l.until(begin + 25*time.Second)
				l.open()
				l.back(node)
				l.until(begin + 30*time.Second)
				l.open()
			}
		}},
		"a switch isolates all nodes, and they come back one by one": {"a b c d", func(l *timeline) {
			l.away("a", "b", "c", "d")
			l.until(90 * time.Second)
			l.closed("4 of 4 nodes")
			l.back("a")
			l.until(92 * time.Second)
			l.closed("3 of 4 nodes")
			l.back("b")
			l.until(94 * time.Second)
			l.open()
		}},
		"a poison pod kills a node every 50 seconds": {"a b c d e", func(l *timeline) {
			for i, node := range []string{"a", "b"} {
				l.away(node)
				l.until(time.Duration(i+1) * 50 * time.Second)
				l.open()
			}
			l.away("c")
			l.until(102 * time.Second)
			l.closed("3 of 5 nodes seem lost at once (a, b, c)")
		}},
		"one node after the other is lost for good, and each counts for two minutes": {"a b c d e", func(l *timeline) {
			for i, node := range []string{"a", "b", "c"} {
				l.away(node)
				l.until(time.Duration(i+1) * 3 * time.Minute)
				l.open()
			}
		}},
		"a node is lost although its satellite answers": {"a b t", func(l *timeline) {
			l.loses("a", "b")
			l.until(10 * time.Second)
			l.closed("2 of 3 nodes")
			l.back("b")
			l.until(12 * time.Second)
			l.open()
		}},
		"a lost volume on a node is forgotten like the node, and counts again when its satellite leaves": {"a b t", func(l *timeline) {
			l.loses("a")
			l.until(time.Hour)
			l.away("b")
			l.until(time.Hour + 2*time.Second)
			l.open() // of b and t
			l.away("a")
			l.until(time.Hour + 4*time.Second)
			l.closed("2 of 3 nodes")
		}},
		"a node that has been away for long is lost only then": {"a b t", func(l *timeline) {
			l.away("a")
			l.until(time.Hour)
			l.loses("a")
			l.away("b")
			l.until(time.Hour + 2*time.Second)
			l.closed("2 of 3 nodes")
		}},
		"what is lost on a dead node comes and goes with those that could take it over": {"a b c d e", func(l *timeline) {
			l.away("a", "b")
			l.loses("a", "b")
			l.until(time.Hour)
			l.node("a").LostVolume, l.node("b").LostVolume = false, false
			l.until(time.Hour + 2*time.Second)
			l.loses("a", "b")
			l.away("c")
			l.until(time.Hour + 4*time.Second)
			l.open()
		}},
		"a node that is away already when the process starts is newly lost": {"a", func(l *timeline) {
			l.view.Satellites = append(l.view.Satellites, Satellite{Name: "b"}, Satellite{Name: "c"})
			l.until(2 * time.Second)
			l.closed("2 of 3 nodes seem lost at once (b, c)")
			l.until(2*time.Second + GuardQuiet)
			l.open()
		}},
		"a loss counts for two minutes, whatever follows": {"a b c d e f", func(l *timeline) {
			l.away("a", "b", "c")
			l.until(100 * time.Second)
			l.open()
			l.away("d")
			l.until(102 * time.Second)
			l.closed("4 of 6 nodes")
			l.back("d")
			l.until(200 * time.Second)
			l.open()
			l.away("e")
			l.until(202 * time.Second)
			l.open() // two of the last three are there
		}},
		"a node that was back for a moment is newly lost again": {"a b c", func(l *timeline) {
			l.away("a", "b")
			l.until(time.Hour)
			l.open()
			for _, name := range []string{"a", "b"} {
				l.node(name).LastOnline = l.view.Now.Add(time.Second)
			}
			l.until(time.Hour + 2*time.Second)
			l.closed("2 of 3 nodes")
		}},
		"a node that is lost already does not become so again": {"a b c", func(l *timeline) {
			l.away("a", "b")
			l.until(time.Minute)
			l.loses("a")
			l.until(GuardQuiet + 2*time.Second)
			l.open()
		}},
		"nothing is forgotten while LINSTOR is away, nor because it was": {"a b c", func(l *timeline) {
			l.away("a", "b")
			l.until(10 * time.Second)
			l.view.Up = time.Time{}
			l.until(10 * time.Minute)
			l.closed("2 of 3 nodes")
			l.view.Up = l.view.Now
			l.until(10*time.Minute + GuardQuiet - time.Second)
			l.closed("2 of 3 nodes")
			l.until(10*time.Minute + GuardQuiet)
			l.open()
		}},
		"LINSTOR restarts and its satellites are back one by one": {"a b c", func(l *timeline) {
			l.view.Up, l.view.Replicas = l.view.Now, 10
			l.away("a", "b", "c")
			l.until(2 * time.Second)
			l.closed("LINSTOR came back a moment ago and knows the state of 0 of 10 replicas only")
			l.back("a", "b", "c")
			l.view.Reporting = 4
			l.until(4 * time.Second)
			l.closed("LINSTOR came back a moment ago and knows the state of 4 of 10 replicas only")
			l.view.Reporting = 5
			l.until(6 * time.Second)
			l.open()
			l.view.Reporting = 4
			l.until(2*time.Minute - time.Second)
			l.closed("LINSTOR came back")
			l.until(2 * time.Minute)
			l.open()
		}},
		"LINSTOR is away before most of its replicas were heard of": {"a b c", func(l *timeline) {
			l.view.Up, l.view.Replicas, l.view.Reporting = time.Time{}, 10, 4
			l.until(10 * time.Minute)
			l.closed("LINSTOR came back a moment ago and knows the state of 4 of 10 replicas only")
		}},
		"a node that is added and well is no loss": {"a b c d e", func(l *timeline) {
			l.away("a", "b", "c", "d")
			l.until(time.Minute)
			l.view.Satellites = append(l.view.Satellites, Satellite{Name: "f", Online: true})
			l.until(2*time.Minute - time.Second)
			l.closed("4 of 6 nodes")
			l.until(2 * time.Minute)
			l.open()
		}},
		"a node that was back counts from when it left again": {"a b c", func(l *timeline) {
			l.away("a")
			l.until(10 * time.Second)
			l.back("a")
			l.until(20 * time.Second)
			l.away("b")
			l.until(30 * time.Second)
			l.away("a")
			l.until(2*time.Minute + 19*time.Second)
			l.closed("2 of 3 nodes") // a would not count since 2:00 if it had not been back
			l.until(2*time.Minute + 20*time.Second)
			l.open()
		}},
		"a node with a lost volume is not lost again when its satellite leaves": {"a b c", func(l *timeline) {
			l.loses("a", "b")
			l.until(time.Minute)
			l.away("a", "b")
			l.node("a").LastOnline = l.view.Now.Add(time.Second)
			l.until(2*time.Minute - time.Second)
			l.closed("2 of 3 nodes")
			l.until(2 * time.Minute)
			l.open()
		}},
		"a node that is back but still has a lost volume is not lost again": {"a b c", func(l *timeline) {
			l.away("a", "b")
			l.loses("a", "b")
			l.until(time.Minute)
			l.node("a").Online = true
			l.until(2*time.Minute - time.Second)
			l.closed("2 of 3 nodes")
			l.until(2 * time.Minute)
			l.open()
		}},
		"a node that LINSTOR no longer lists does not count": {"a b c", func(l *timeline) {
			l.away("a", "b")
			l.until(2 * time.Second)
			l.view.Satellites = l.view.Satellites[1:]
			l.until(4 * time.Second)
			l.open()
		}},
		"a number limits as well as a percentage": {"a b c d", func(l *timeline) {
			l.limit = Limit{Value: 1}
			l.away("a")
			l.until(2 * time.Second)
			l.open()
			l.away("b")
			l.until(4 * time.Second)
			l.closed("2 of 4 nodes")
		}},
		"none may be lost, and none is": {"a b", func(l *timeline) {
			l.limit = Limit{}
			l.until(2 * time.Second)
			l.open()
		}},
		"a hundred per cent never closes it": {"a b", func(l *timeline) {
			l.limit = Limit{Percent: true, Value: 100}
			l.away("a", "b")
			l.until(2 * time.Second)
			l.open()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.story(watched(t, tc.nodes))
		})
	}
}

// What happened to one volume says nothing of its node.
func TestWhichLossesSpeakOfTheNode(t *testing.T) {
	t.Parallel()
	for reason, want := range map[Reason]bool{
		QuorumLost: true, NodeUnreachable: true, Demoted: false, ForcedIOErrors: false, ReplicaGone: false, "": false, Exempt: false,
	} {
		if got := SpeaksOfTheNode(reason); got != want {
			t.Errorf("%q: %t, want %t", reason, got, want)
		}
	}
}

// The loss is told whatever a gate says.
func TestADecisionTellsTheLossBehindAGate(t *testing.T) {
	t.Parallel()
	exempt := func(in *Input) { in.Pods[0].Exempt = true }
	for name, tc := range map[string]struct {
		input   Input
		verdict Verdict
		loss    Reason
	}{
		"a node that is well":                        {input: healthy(), verdict: NotLost},
		"a crashed node":                             {crashed(), Lost, NodeUnreachable},
		"a crashed node with an exempt pod":          {apply(crashed(), exempt), Blocked, NodeUnreachable},
		"a volume closed under an exempt pod":        {apply(demoted(), exempt), Blocked, Demoted},
		"a node without quorum, by an exempt pod":    {apply(isolated(), exempt), Blocked, QuorumLost},
		"a crashed node whose pod has been there 1s": {apply(crashed(), func(in *Input) { in.Pods[0].Since = ago(time.Second) }), Pending, NodeUnreachable},
	} {
		if d := Decide(tc.input); d.Verdict != tc.verdict || d.Loss != tc.loss {
			t.Errorf("%s: %s for %q, want %s for %q", name, d.Verdict, d.Loss, tc.verdict, tc.loss)
		}
	}
}

func apply(in Input, e edit) Input {
	e(&in)
	return in
}

// The next loss is imagined beside those that are there, and nothing of that is remembered.
func TestTheGuardImaginesANodeLost(t *testing.T) {
	t.Parallel()
	l := watched(t, "a b c d")
	l.away("a")
	l.until(2 * time.Second)
	imagine := func(node, want string) {
		t.Helper()
		if got := l.memory.Imagine(l.view, node, l.limit); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("with %s lost, too, the guard would say %q, want %q", node, got, want)
		}
	}
	imagine("b", "")
	l.away("b")
	l.until(4 * time.Second)
	imagine("c", "3 of 4 nodes seem lost at once (a, b, c)")
	imagine("a", "") // is lost already
	imagine("elsewhere", "")
	l.until(6 * time.Second)
	l.open()
	l.until(time.Hour)
	imagine("c", "")
	imagine("b", "") // its satellite has been away for long: 1 of 3
	l.loses("a")
	l.until(time.Hour + time.Second)
	l.away("c")
	l.until(time.Hour + 2*time.Second)
	imagine("a", "2 of 3 nodes") // no other than now
	l.closed("2 of 3 nodes")
}

func TestParseLimit(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]Limit{
		"0": {}, "3": {Value: 3}, "0%": {Percent: true}, "50%": {Percent: true, Value: 50}, "100%": {Percent: true, Value: 100}, "101": {Value: 101},
	} {
		if got, err := ParseLimit(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseLimit(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "-1", "101%", "many", "1.5", "50 %"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("ParseLimit(%q) = %v, want an error", text, got)
		}
	}
}
