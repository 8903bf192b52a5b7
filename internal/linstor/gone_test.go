package linstor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// isGone checks whether a replica is kept that LINSTOR does not list, and whether it counts as really gone.
func (w *world) isGone(node string, kept, left bool) {
	w.t.Helper()
	r, _ := w.Resource("R")
	replica, ok := r.Replica(node)
	if ok != kept || ok && !replica.Gone {
		w.t.Errorf("at %g s the replica on %s is kept as gone: %v (%+v), want %v", w.now, node, ok && replica.Gone, replica, kept)
	}
	if got := slices.Contains(r.Left, node); got != left {
		w.t.Errorf("at %g s %s counts as left: %v, want %v", w.now, node, got, left)
	}
	if got := slices.Contains(w.Gone(), Place{"r", node}); got != kept {
		w.t.Errorf("at %g s %s is among the gone: %v, want %v", w.now, node, got, kept)
	}
}

func TestAReplicaThatLinstorForgetsIsKeptUnlessItIsKnownToHaveGone(t *testing.T) {
	t.Parallel()
	story{
		"it was taken down": func(w *world) {
			w.remove("a")
			w.live(1)
			w.isGone("a", false, true)
		},
		"it was taken down, and then no events were heard for a while": func(w *world) {
			w.remove("a")
			w.live(1)
			w.hears(w.at(w.now)) // meanwhile it may have come back, been used, and been lost
			w.live(1)
			w.isGone("a", false, false)
		},
		"node lost, while it is cut off and writes": func(w *world) {
			w.replicas["a"].inUse = true
			w.live(1)
			w.lose("a")
			w.live(2)
			delete(w.replicas, "a")
			delete(w.nodes, "a")
			w.changed = nil
			w.live(1)
			w.isGone("a", true, false)
			w.confirmed("a")
			if !slices.Contains(w.changed, "R") {
				w.t.Error("that it has gone was not told")
			}
			got := w.replica(w.t, "a")
			if got.Reports.Known || got.InUse.Known || got.MayPromote.Known || got.Score.Known || len(got.Connections) > 0 || got.Online.Known {
				w.t.Errorf("something is heard of a replica that LINSTOR does not list: %+v", got)
			}
			if !got.LastInUse.Equal(w.at(13)) {
				w.t.Errorf("last in use at %v", got.LastInUse)
			}
		},
		"its node is OFFLINE": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", true, false)
			if got := w.replica(w.t, "a").Online; !got.Known || got.Value {
				w.t.Errorf("online: %+v", got)
			}
			if got := w.replica(w.t, "a").Connections; len(got) > 0 {
				w.t.Errorf("connections: %+v", got)
			}
			w.nodes["a"], w.changed = client.StatusOnline, nil
			w.live(1)
			if got := w.replica(w.t, "a").Online; !got.Value || !slices.Contains(w.changed, "R") {
				w.t.Errorf("its node is ONLINE again: %+v, told of %v", got, w.changed)
			}
		},
		"it was in use when it was last listed: a database is restored": func(w *world) {
			w.replicas["a"].inUse = true
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", true, false)
			w.confirmed("b")
		},
		"nobody knows whether it was in use, but LINSTOR was deleting it": func(w *world) {
			w.replicas["a"].quiet, w.replicas["a"].leaving = true, true
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", false, true)
		},
		"nobody knows whether it was in use, though its node was ONLINE, which may be a moment old": func(w *world) {
			w.replicas["a"].quiet = true
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", true, false)
		},
		"a view that lacks it is no evidence": func(w *world) {
			w.remove("a")
			w.applyView(w.rows(), w.read(w.now+1))
			if got := w.nodesOf("R"); !slices.Contains(got, "a") {
				w.t.Errorf("listed: %v", got)
			}
		},
		"nobody asks for it any more": func(w *world) {
			w.lose("a")
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", true, false)
			w.Forget(Place{"r", "a"}) // the others may count it
			w.isGone("a", true, false)
			w.restart("b")
			w.restart("c")
			w.live(70)
			w.Forget(Place{"r", "a"})
			w.isGone("a", false, false)
			w.Forget(Place{"r", "a"})
		},
		"it is listed again, and what its node may run and has done is remembered": func(w *world) {
			w.replicas["a"].inUse = true
			w.live(1)
			w.lose("a")
			w.live(1)
			was := w.replicas["a"]
			w.remove("a")
			w.set("off")
			w.live(20)
			w.replicas["a"] = was
			was.quiet, was.inUse, w.nodes["a"] = false, false, client.StatusOnline
			w.says("a")
			w.live(1)
			w.unconfirmed("a")
			if got := w.replica(w.t, "a"); got.Gone || !got.LastInUse.Equal(w.at(13)) {
				w.t.Errorf("gone: %v, last in use at %v", got.Gone, got.LastInUse)
			}
			w.isListed("a")
		},
		"a new one is placed where one was taken down": func(w *world) {
			w.replicas["a"].inUse = true
			w.live(1)
			w.replicas["a"].inUse = false
			w.live(1)
			w.remove("a")
			w.live(1)
			w.isGone("a", false, true)
			w.add("a")
			w.live(1)
			w.unconfirmed("a")
			if got := w.replica(w.t, "a"); !got.LastInUse.IsZero() {
				w.t.Errorf("a new replica was last in use at %v", got.LastInUse)
			}
			w.isListed("a")
		},
	}.run(t, worldOf("majority", "a", "b", "c/"))
}

// isListed checks that a replica is listed, and neither gone nor left.
func (w *world) isListed(node string) {
	w.t.Helper()
	r, _ := w.Resource("R")
	if !slices.Contains(w.nodesOf("R"), node) || slices.Contains(r.Left, node) || len(w.Gone()) > 0 {
		w.t.Errorf("listed: %v, left: %v, gone: %v", w.nodesOf("R"), r.Left, w.Gone())
	}
}

func TestReplicasAreKeptWhereTheWholeResourceIsGone(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(w *world){
		"LINSTOR does not find it": func(w *world) { w.Store.remove("R", w.read(w.now)) },
		"neither the definitions nor the view have it": func(w *world) {
			w.applyDefinitions(nil, w.read(w.now))
			w.wait(1)
			for _, name := range w.applyView(nil, w.read(w.now)) {
				w.Store.remove(name, w.read(w.now)) // as the reading of it does
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := knownWorld(t, "off", "a", "b")
			w.lose("a")
			w.live(1)
			replicas := w.replicas
			w.replicas = map[string]*inWorld{}
			w.wait(1)
			vanish(w)
			if r, ok := w.Resource("R"); ok {
				t.Errorf("the resource is still there: %+v", r)
			}
			if diff := cmp.Diff([]Place{{"r", "a"}}, w.Gone()); diff != "" {
				t.Error(diff)
			}
			// A database is restored that has it, with a quorum.
			w.live(5)
			w.replicas = replicas
			w.set("majority")
			w.look()
			w.unconfirmed("a")
			w.unconfirmed("b")
		})
	}
}

// A person switches quorum on, as one does who reads that it is off, while a is cut off and writes; and then gives the node up.
func TestANodeThatLinstorHasForgottenIsAsConfirmedAsItWas(t *testing.T) {
	t.Parallel()
	story{
		"nothing else happened": func(w *world) {
			w.lose("a")
			w.live(2)
			delete(w.replicas, "a")
			w.live(1)
			w.unconfirmed("a")
		},
		"the quorum was switched on before the node was lost": func(w *world) {
			w.lose("a")
			w.live(2)
			w.set("majority")
			w.define()
			w.live(1)
			delete(w.replicas, "a")
			w.live(300)
			w.unconfirmed("a")
			w.unconfirmed("b")
		},
		"the quorum was switched on while LINSTOR called it ONLINE": func(w *world) {
			w.silent["a"] = true
			w.live(3)
			w.add("c/")
			w.meet("c")
			w.disconnect("a", "c")
			w.adapt("majority")
			w.live(3)
			w.unconfirmed("a")
			w.lose("a")
			w.live(2)
			delete(w.replicas, "a")
			delete(w.nodes, "a")
			w.live(300)
			w.unconfirmed("a")
		},
		"a database is restored that has neither the quorum nor the replica": func(w *world) {
			w.set("majority")
			w.define()
			w.restart("a")
			w.live(60)
			w.confirmed("a")
			w.lose("a")
			w.live(2)
			delete(w.replicas, "a")
			w.adapt("off")
			w.live(10)
			w.confirmed("a")
			w.unconfirmed("b")
		},
	}.run(t, worldOf("off", "a", "b"))
}

func TestEachPlaceOfTheGoneIsToldOnce(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "off", "a", "b")
	w.lose("a")
	w.lose("b")
	w.live(1)
	w.replicas = map[string]*inWorld{}
	w.live(1)
	got := w.Gone()
	slices.SortFunc(got, func(a, b Place) int {
		return len(a.Node+a.Resource) - len(b.Node+b.Resource) + int(a.Node[0]) - int(b.Node[0])
	})
	if diff := cmp.Diff([]Place{{"r", "a"}, {"r", "b"}}, got); diff != "" {
		t.Error(diff)
	}
	if r, ok := w.Resource("R"); !ok || len(r.Replicas) != 2 || !r.Replicas[0].Gone || !r.Replicas[1].Gone {
		t.Errorf("resource: %+v", r)
	}
}

// What LINSTOR lists less after its stream has begun anew than it listed before may have gone in any way: an older database was restored
// meanwhile, of a time before c had its replica. c goes on with it, and its vote may be a's.
func TestAReplicaThatWentWhileNoEventsWereHeardMayBeThere(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "majority", "a", "b", "c")
	w.wait(6) // LINSTOR is away, and comes back with its older database
	w.hears(w.at(w.now))
	delete(w.replicas, "c")
	w.live(1)
	w.isGone("c", true, false)
}
