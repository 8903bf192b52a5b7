package linstor

import (
	"slices"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// fences checks that whatever the nodes may run has a quorum of the word, and that no vote in it is of a replica whose node cannot be
// asked: such an operation holds no fail-over up.
func (w *world) fences() {
	w.t.Helper()
	r, _ := w.Resource("R")
	if r.InDoubt || r.Quorum != "majority" {
		w.t.Errorf("at %g s the quorum is %q, in doubt: %v", w.now, r.Quorum, r.InDoubt)
	}
	for _, replica := range r.Replicas {
		if !replica.Confirmed || replica.Gone {
			w.t.Errorf("at %g s %s is not confirmed (votes %v)", w.now, replica.Node, replica.Votes)
		}
		for _, vote := range replica.Votes {
			if w.replicas[vote.Node] == nil && !slices.Contains(r.Left, vote.Node) && vote.May != evidence.Absent {
				w.t.Errorf("at %g s %s may count %v, and nobody can ask it", w.now, replica.Node, vote)
			}
		}
	}
}

// comes has LINSTOR place a replica, whose node says so, and which all have met half a second later.
func (w *world) comes(name string) {
	w.wait(0.1)
	w.add(name)
	node := name[:1]
	w.says(node)
	w.look()
	w.wait(0.5)
	w.meet(node)
	w.look()
	w.wait(1) // as the feed does
	w.look()
}

// goes has LINSTOR delete a replica: its node takes it down first.
func (w *world) goes(node string) {
	w.wait(0.1)
	w.replicas[node].leaving = true
	w.look()
	w.wait(0.5)
	w.replicas[node].quiet = true
	for other := range w.replicas {
		w.disconnect(node, other)
	}
	w.look()
	w.wait(0.5)
	w.remove(node)
	w.look()
	w.wait(1)
	w.look()
}

func TestOrdinaryOperationsHoldNoFailOverUp(t *testing.T) {
	t.Parallel()
	story{
		"a diskless client comes and goes": func(w *world) {
			w.comes("d/")
			w.fences()
			w.confirmed("a")
			w.confirmed("d")
			w.goes("d")
			w.fences()
			w.confirmed("a")
			w.confirmed("c")
		},
		"a diskful replica comes, and LINSTOR drops the tie-breaker": func(w *world) {
			w.comes("d")
			w.fences()
			w.confirmed("a")
			w.goes("c")
			w.fences()
			w.confirmed("a")
			w.confirmed("d")
		},
		"one of three diskful replicas is deleted and becomes the tie-breaker": func(w *world) {
			w.comes("d")
			w.goes("c")
			w.replicas["d"].diskless = true
			w.live(2)
			w.fences()
			w.confirmed("a")
		},
		"the disk of a tie-breaker is toggled": func(w *world) {
			w.replicas["c"].diskless = false
			w.live(2)
			w.fences()
			w.confirmed("a")
		},
		"the tie-breaker moves, and LINSTOR switches the quorum off meanwhile": func(w *world) {
			w.remove("c")
			w.look()
			w.confirmed("a")
			w.wait(0.3)
			w.adapt("off") // in a step of its own
			w.wait(0.7)
			w.look()
			w.unconfirmed("a")
			w.adapt("majority")
			w.comes("d/")
			w.fences()
			w.confirmed("a")
			w.confirmed("b")
		},
		"the tie-breaker moves at once": func(w *world) {
			w.comes("d/")
			w.goes("c")
			w.fences()
			w.confirmed("a")
		},
		"a node is evacuated: the tie-breaker becomes the new disk": func(w *world) {
			w.replicas["c"].diskless = false
			w.look()
			w.wait(1)
			w.goes("b")
			w.fences()
			w.comes("d/")
			w.fences()
			w.confirmed("a")
			w.confirmed("c")
		},
		"a node of three diskful replicas is evacuated": func(w *world) {
			w.replicas["c"].diskless = false
			w.look()
			w.wait(1)
			w.comes("d")
			w.goes("c")
			w.fences()
			w.confirmed("a")
		},
		"the pod fails over to a node without a disk, and back": func(w *world) {
			w.replicas["a"].inUse = true
			w.live(1)
			w.lose("a")
			w.live(10)
			w.comes("d/")
			w.replicas["d"].inUse = true
			w.live(20)
			w.confirmed("d")
			w.confirmed("b")
			w.nodes["a"], w.silent["a"], w.replicas["a"].quiet = client.StatusOnline, false, false
			w.live(1)
			w.meet("d")
			w.live(1)
			w.fences()
			w.goes("d")
			w.fences()
			w.confirmed("a")
		},
		"the node reboots": func(w *world) {
			w.lose("a")
			w.live(100)
			w.confirmed("a")
			w.nodes["a"], w.silent["a"], w.replicas["a"].quiet = client.StatusOnline, false, false
			w.look()
			w.fences()
			w.confirmed("a")
		},
		"the satellites are restarted in turn": func(w *world) {
			for _, node := range []string{"a", "b", "c"} {
				w.restart(node)
				w.fences()
				w.confirmed(node)
			}
		},
		"LINSTOR is restarted": func(w *world) {
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = "OFFLINE", true
			}
			w.live(1)
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = client.StatusOnline, false
			}
			peers := w.replicas["a"].peers
			w.replicas["a"].peers = peers[:1]
			w.look()
			w.fences()
			w.replicas["a"].peers = peers
			w.live(1)
			w.fences()
			w.confirmed("a")
		},
	}.run(t, worldOf("majority", "a", "b", "c/"))
}
