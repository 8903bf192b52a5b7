package failover

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// seen are the words of an answer on one node.
var (
	unseenOnline = SeenNode{Online: known(true), Connected: known(false)}
	seenOnline   = SeenNode{Online: known(true), Connected: known(true)}
)

func known(b bool) Fact[bool] { return Fact[bool]{Known: true, Value: b} }

// answer is an answer on A of the given age, which took a moment.
func answer(age time.Duration, a SeenNode) Sight {
	return Sight{Began: ago(age), Ended: ago(age).Add(20 * time.Millisecond), Nodes: map[string]SeenNode{nodeA: a}}
}

func TestBlindness(t *testing.T) {
	t.Parallel()
	// blindly is a LINSTOR that has been blind for A in every answer of the last while.
	blindly := func(b *Blindness, from, to time.Duration) {
		for age := from; age >= to; age -= time.Second {
			b.Observe(answer(age, unseenOnline))
		}
	}
	for name, tc := range map[string]struct {
		observe func(*Blindness)
		// void tells whether LINSTOR's words on A are void, proven whether it may be restarted for that.
		void, proven bool
	}{
		"no answer":   {observe: func(*Blindness) {}},
		"one answer":  {observe: func(b *Blindness) { b.Observe(answer(0, unseenOnline)) }},
		"two answers": {observe: func(b *Blindness) { blindly(b, time.Second, 0) }},
		"answers of ten seconds": {
			observe: func(b *Blindness) { blindly(b, 11*time.Second, 0) }, void: true, proven: true,
		},
		"answers of less than ten seconds": {observe: func(b *Blindness) { blindly(b, 10*time.Second, 0) }},
		"two answers of which nobody knows what was in between": {observe: func(b *Blindness) {
			b.Observe(answer(12*time.Second, unseenOnline))
			b.Observe(answer(0, unseenOnline))
		}},
		"the newest answer is old": {
			observe: func(b *Blindness) { blindly(b, 20*time.Second, 3*time.Second) }, void: true,
		},
		"the last one was not answered": {
			observe: func(b *Blindness) { blindly(b, 20*time.Second, time.Second); b.Unanswered() }, void: true,
		},
		"one in between was not answered": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, 8*time.Second)
			b.Unanswered()
			blindly(b, 7*time.Second, 0)
		}},
		"one in between took long": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, 8*time.Second)
			slow := answer(7*time.Second, unseenOnline)
			slow.Ended = slow.Began.Add(ActAge + time.Millisecond)
			b.Observe(slow)
			blindly(b, 4*time.Second, 0)
		}},
		"two answers that are just near enough, and exactly ten seconds": {observe: func(b *Blindness) {
			for _, began := range []time.Duration{10 * time.Second, 5 * time.Second, 0} {
				b.Observe(Sight{Began: ago(began), Ended: ago(began), Nodes: map[string]SeenNode{nodeA: unseenOnline}})
			}
		}, void: true, proven: true},
		"two answers that are just too far apart": {observe: func(b *Blindness) {
			for _, began := range []time.Duration{10*time.Second + 1, 5 * time.Second, 0} {
				b.Observe(Sight{Began: ago(began), Ended: ago(began), Nodes: map[string]SeenNode{nodeA: unseenOnline}})
			}
		}},
		"one in between took just not too long": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, 8*time.Second)
			slow := answer(7*time.Second, unseenOnline)
			slow.Ended = slow.Began.Add(ActAge)
			b.Observe(slow)
			blindly(b, 4*time.Second, 0)
		}, void: true, proven: true},
		"it does not say whether it has a connection": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, 8*time.Second)
			b.Observe(answer(7*time.Second, SeenNode{Online: known(true)}))
			blindly(b, 6*time.Second, 0)
		}},
		"it does not say what it calls the node": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, time.Second)
			b.Observe(answer(0, SeenNode{Connected: known(false)}))
		}, void: true},
		"it has a connection again": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, time.Second)
			b.Observe(answer(0, seenOnline))
		}},
		"it calls the node OFFLINE": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, time.Second)
			b.Observe(answer(0, SeenNode{Online: known(false), Connected: known(false)}))
		}},
		"it no longer lists the node": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, time.Second)
			b.Observe(Sight{Began: now, Ended: now})
		}},
		"it had a connection in between": {observe: func(b *Blindness) {
			blindly(b, 15*time.Second, 8*time.Second)
			b.Observe(answer(7*time.Second, seenOnline))
			blindly(b, 6*time.Second, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b Blindness
			tc.observe(&b)
			_, void := b.Nodes()[nodeA]
			until, proven := b.Proof(Node{Name: nodeA, LeaseKnown: true, LeaseSilence: time.Hour}, now, 20*time.Second)
			if void != tc.void || proven != tc.proven {
				t.Errorf("void %t, proven %t, want %t and %t", void, proven, tc.void, tc.proven)
			}
			if proven && (until.Before(now) || until.Sub(now) > ActAge) {
				t.Errorf("it may be acted on for %s", until.Sub(now))
			}
			if void && !b.Suspects() {
				t.Error("it is not asked for any more")
			}
			if _, other := b.Proof(Node{Name: nodeB, LeaseKnown: true, LeaseSilence: time.Hour}, now, 20*time.Second); other {
				t.Error("proven for a node that it says nothing of")
			}
		})
	}
}

// What is void is so since the first answer of the first row, and LINSTOR is asked on until it sees.
func TestSinceWhenLinstorIsBlind(t *testing.T) {
	t.Parallel()
	var b Blindness
	if b.Suspects() {
		t.Error("a LINSTOR that was never asked is suspected")
	}
	b.Observe(answer(time.Minute, unseenOnline))
	if !b.Suspects() {
		t.Error("a LINSTOR that may be blind is not suspected")
	}
	b.Unanswered()
	if b.Suspects() {
		t.Error("a LINSTOR that does not answer is suspected")
	}
	for age := 59 * time.Second; age > 0; age -= time.Second {
		if age == 30*time.Second {
			b.Unanswered()
			continue
		}
		b.Observe(answer(age, unseenOnline))
	}
	if got, want := b.Nodes()[nodeA], ago(59*time.Second).Add(20*time.Millisecond); !got.Equal(want) {
		t.Errorf("blind since %s, want %s", got, want)
	}
}

// The kubelet must have been silent at the first of the answers already.
func TestBlindnessIsProvenOnlyOfANodeWhoseKubeletWasSilentAllTheTime(t *testing.T) {
	t.Parallel()
	var b Blindness
	for age := 12 * time.Second; age >= 0; age -= time.Second {
		b.Observe(answer(age, unseenOnline))
	}
	for name, tc := range map[string]struct {
		node Node
		want bool
	}{
		"for 20 s at the first answer":               {Node{LeaseKnown: true, LeaseSilence: 32 * time.Second}, true},
		"for less than 20 s at the first answer":     {Node{LeaseKnown: true, LeaseSilence: 31 * time.Second}, false},
		"for exactly 20 s at the first answer":       {Node{LeaseKnown: true, LeaseSilence: 32*time.Second - 20*time.Millisecond}, true},
		"not at all":                                 {Node{LeaseKnown: true}, false},
		"as far as is known":                         {Node{LeaseSilence: time.Hour}, false},
		"for too short for one that is rarely heard": {Node{LeaseKnown: true, LeaseSilence: 32 * time.Second, LeaseGap: 30 * time.Second}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.node.Name, tc.node.Satellite = "a.example.com", nodeA
			if _, ok := b.Proof(tc.node, now, 20*time.Second); ok != tc.want {
				t.Errorf("proven: %t, want %t", ok, tc.want)
			}
		})
	}
}

// LINSTOR has been known to be blind for an hour. Of those answers two must have come ten seconds apart while the kubelet was silent.
func TestBlindnessIsProvenOfANodeWhoseKubeletFallsSilentLater(t *testing.T) {
	t.Parallel()
	var b Blindness
	for age := time.Hour; age >= 0; age -= time.Second {
		b.Observe(answer(age, unseenOnline))
	}
	for silence, want := range map[time.Duration]bool{
		20 * time.Second: false, 37*time.Second - 1: false, 37 * time.Second: true, 2 * time.Hour: true,
	} {
		node := Node{Name: "a.example.com", Satellite: nodeA, LeaseKnown: true, LeaseSilence: silence}
		if _, ok := b.Proof(node, now, 20*time.Second); ok != want {
			t.Errorf("a kubelet silent for %s: proven: %t, want %t", silence, ok, want)
		}
	}
}

func TestNothingFollowsFromTheWordsOfABlindLinstor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := eitherInput(t)
		for _, node := range []string{nodeA, nodeB, nodeC, nodeT} {
			blindFor(node)(&in)
		}
		if len(in.Resource.Replicas) == 0 {
			return
		}
		if d := Decide(in); d.Verdict == Lost || d.Verdict == Pending {
			t.Fatalf("%s %s", d.Verdict, d.Reason)
		}
	})
}
