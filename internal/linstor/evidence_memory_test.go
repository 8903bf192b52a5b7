package linstor

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tell has another process say that it is not known what a node runs.
func (w *world) tell(node string) { w.Tell("r", map[string]time.Time{node: {}}, w.at(w.now)) }

// told checks what is to be kept for other processes, and since when there has been something.
func (w *world) told(want []string, since float64) {
	w.t.Helper()
	all := w.Unconfirmed("r")
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
		w.t.Errorf("at %g s to be kept: %s", w.now, diff)
	}
	for _, at := range all {
		if !at.Before(w.at(since)) {
			return
		}
	}
	if len(want) > 0 {
		w.t.Errorf("at %g s there is something to be kept since %v, want %g", w.now, all, since)
	}
}

func TestWhichNodesAreUnconfirmedIsToldToOthers(t *testing.T) {
	t.Parallel()
	story{
		"it runs what LINSTOR wants": func(w *world) { w.told(nil, 0) },
		"it may run two settings, and only its satellite restarts": func(w *world) {
			w.live(8)
			w.set("majority")
			w.define()
			w.live(10)
			all := []string{"a", "b"}
			w.told(all, 20)
			w.set("all")
			w.define()
			w.restart("a")
			w.live(60)
			w.told([]string{"b"}, 20)
			w.set("off")
			w.define()
			w.told(nil, 0) // while the quorum does not fence there is nothing to be known
			w.restart("b")
			w.restart("a")
			w.live(60)
			w.told(nil, 0)
		},
		"LINSTOR no longer lists it": func(w *world) {
			w.set("majority")
			w.define()
			w.lose("a")
			w.live(2)
			delete(w.replicas, "a")
			w.restart("b")
			w.live(60)
			w.confirmed("b")
			w.told([]string{"a"}, 12)
		},
	}.run(t, worldOf("off", "a", "b"))
}

func TestANodeThatAnotherProcessHasNamedIsUnconfirmedUntilThereIsEvidence(t *testing.T) {
	t.Parallel()
	story{
		"as older than that": func(w *world) {
			w.changed = nil
			w.tell("a")
			w.unconfirmed("a")
			if !slices.Equal(w.changed, []string{"R"}) {
				w.t.Errorf("told of %v", w.changed)
			}
		},
		"its nodes are named in any case": func(w *world) {
			w.tell("A")
			w.unconfirmed("a")
		},
		"a restart of the satellite that came before shows nothing": func(w *world) {
			w.restart("a")
			w.live(70)
			w.tell("a")
			w.live(70)
			w.unconfirmed("a")
			w.restart("a")
			w.live(60)
			w.confirmed("a")
		},
		"a replica that came before shows nothing, and one that comes now does": func(w *world) {
			w.add("c/")
			w.meet("c")
			w.live(1)
			w.confirmed("a")
			w.wait(1)
			w.tell("a")
			w.live(70)
			w.unconfirmed("a")
			w.add("d")
			w.live(1)
			w.meet("d")
			w.live(1)
			w.confirmed("a")
		},
		"it no longer says so": func(w *world) {
			w.tell("a")
			w.changed = nil
			w.Untell("R", nil, w.at(w.now))
			w.confirmed("a")
			w.told(nil, 0)
			if !slices.Equal(w.changed, []string{"R"}) {
				w.t.Errorf("told of %v", w.changed)
			}
			w.changed = nil
			w.Untell("R", nil, w.at(w.now))
			if len(w.changed) > 0 {
				w.t.Errorf("told of %v", w.changed)
			}
		},
		"it no longer says so, but this one has seen it, too": func(w *world) {
			w.set("off")
			w.define()
			w.tell("a")
			w.unconfirmed("a")
			w.Untell("R", nil, w.at(w.now))
			w.unconfirmed("a")
		},
		"the replica was taken down": func(w *world) {
			w.remove("b")
			w.live(1)
			w.tell("b")
			w.isGone("b", false, true)
		},
		"LINSTOR does not list the replica, and this process never saw it": func(w *world) {
			w.tell("c")
			w.unconfirmed("c")
			w.isGone("c", true, false)
		},
	}.run(t, worldOf("majority", "a", "b"))
}

// A process that has just started learns from another what it has not seen.
func TestAProcessThatStartsIsTold(t *testing.T) {
	t.Parallel()
	story{
		"after its first reading": func(w *world) {
			w.first()
			w.tell("a")
			w.live(12)
			w.unconfirmed("a")
			w.confirmed("b")
		},
		"before its first reading": func(w *world) {
			w.tell("a")
			w.first()
			w.unconfirmed("a")
			w.live(12)
			w.unconfirmed("a")
			w.live(300) // ONLINE for long, but its satellite was never away
			w.unconfirmed("a")
			w.Untell("R", nil, w.at(w.now))
			w.confirmed("a")
		},
		"before its first reading, and the satellite restarts": func(w *world) {
			w.tell("a")
			w.first()
			w.live(12)
			w.restart("a")
			w.live(60)
			w.confirmed("a")
		},
		"before its first reading, of another quorum than LINSTOR wants now": func(w *world) {
			w.tell("a")
			w.first()
			w.live(300)
			w.unconfirmed("a")
		},
		"of a node that LINSTOR no longer lists": func(w *world) {
			delete(w.replicas, "a")
			delete(w.nodes, "a")
			w.tell("a")
			w.first()
			w.live(300)
			w.unconfirmed("a")
			w.confirmed("b")
			w.Untell("R", nil, w.at(w.now))
			w.unconfirmed("a")
		},
		"of a node that is listed later, and has its word": func(w *world) {
			a := w.replicas["a"]
			delete(w.replicas, "a")
			w.tell("a")
			w.first()
			w.live(5)
			w.replicas["a"] = a
			w.says("a")
			w.wait(0.1)
			w.look()
			w.says("a")
			w.look()
			w.unconfirmed("a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return newWorld(t, "majority", "a", "b") })
}
