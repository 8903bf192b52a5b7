package linstor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tell has another process say what a node may run.
func (w *world) tell(node, settings string) {
	w.Unite("r", Sets{node: settingsOf(settings)}, w.at(w.now))
}

// told checks what is to be kept for other processes, and since when there has been something.
func (w *world) told(want Sets, since float64) {
	w.t.Helper()
	got, at := w.Doubts("r")
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("at %g s to be kept: %s", w.now, diff)
	}
	if want != nil && !at.Equal(w.at(since)) {
		w.t.Errorf("at %g s there is something to be kept since %v, want %v", w.now, at, w.at(since))
	}
}

func TestWhatANodeMayRunIsKeptForOthersWhileThatIsSeveralThings(t *testing.T) {
	t.Parallel()
	story{
		"it runs what LINSTOR wants": func(w *world) { w.told(nil, 0) },
		"it may run two settings, and only its satellite restarts": func(w *world) {
			w.live(8)
			w.set("majority")
			w.define()
			w.live(10)
			all := Sets{"a": settingsOf("off a+b, majority a+b"), "b": settingsOf("off a+b, majority a+b")}
			w.told(all, 20)
			w.set("all")
			w.define()
			w.restart("a")
			w.live(60)
			w.told(Sets{"a": settingsOf("all a+b"), "b": settingsOf("off a+b, majority a+b, all a+b")}, 20)
			w.set("off")
			w.define()
			w.told(Sets{"a": settingsOf("all a+b, off a+b"), "b": settingsOf("majority a+b, all a+b, off a+b")}, 20)
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
			w.want("b", "majority b")
			w.told(Sets{"a": settingsOf("off a+b, majority a+b"), "b": settingsOf("majority b")}, 12)
		},
	}.run(t, worldOf("off", "a", "b"))
}

func TestWhatAnotherProcessHasSeenIsUnitedWithWhatThisOneHas(t *testing.T) {
	t.Parallel()
	story{
		"as older than that": func(w *world) {
			w.changed = nil
			w.tell("a", "off a+b, all a+b, majority a+b")
			w.want("a", "off a+b, all a+b, majority a+b")
			if !slices.Equal(w.changed, []string{"R"}) {
				w.t.Errorf("told of %v", w.changed)
			}
		},
		"where it says nothing new nothing changes": func(w *world) {
			w.changed = nil
			w.tell("a", "majority a+b")
			w.want("a", "majority a+b")
			w.told(nil, 0)
			if len(w.changed) > 0 {
				w.t.Errorf("told of %v", w.changed)
			}
		},
		"its nodes are named in any case": func(w *world) {
			w.tell("A", "off a+b")
			w.want("a", "off a+b, majority a+b")
		},
		"a restart of the satellite that came before shows nothing": func(w *world) {
			w.restart("a")
			w.live(70)
			w.tell("a", "off a+b")
			w.live(70)
			w.want("a", "off a+b, majority a+b")
			w.restart("a")
			w.live(60)
			w.want("a", "majority a+b")
		},
		"a replica that came before shows nothing, and one that comes now does": func(w *world) {
			w.add("c/")
			w.meet("c")
			w.live(1)
			w.want("a", "majority a+b/c")
			w.wait(1)
			w.tell("a", "off a+b")
			w.live(70)
			w.want("a", "off a+b, majority a+b/c")
			w.add("d")
			w.live(1)
			w.meet("d")
			w.live(1)
			w.want("a", "majority a+b+d/c")
		},
		"it no longer says so": func(w *world) {
			w.tell("a", "off a+b")
			w.changed = nil
			w.Retract("R", nil, w.at(w.now))
			w.want("a", "majority a+b")
			w.told(nil, 0)
			if !slices.Equal(w.changed, []string{"R"}) {
				w.t.Errorf("told of %v", w.changed)
			}
			w.changed = nil
			w.Retract("R", nil, w.at(w.now))
			if len(w.changed) > 0 {
				w.t.Errorf("told of %v", w.changed)
			}
		},
		"it no longer says so, but this one has seen it, too": func(w *world) {
			w.set("off")
			w.define()
			w.tell("a", "all a+b, majority a+b, off a+b")
			w.want("a", "all a+b, majority a+b, off a+b")
			w.Retract("R", nil, w.at(w.now))
			w.want("a", "majority a+b, off a+b")
		},
		"the replica was taken down": func(w *world) {
			w.remove("b")
			w.live(1)
			w.tell("b", "off a+b, majority a+b")
			w.isGone("b", false, true)
		},
		"LINSTOR does not list the replica, and this process never saw it": func(w *world) {
			w.tell("c", "off a+b+c, majority a+b+c")
			w.want("c", "gone: anything: off a+b+c, majority a+b+c")
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
			w.tell("a", "off a+b, majority a+b")
			w.live(12)
			w.want("a", "off a+b, majority a+b")
			w.want("b", "majority a+b")
		},
		"before its first reading": func(w *world) {
			w.tell("a", "off a+b, majority a+b")
			w.first()
			w.want("a", "anything: off a+b, majority a+b")
			w.live(12)
			w.want("a", "off a+b, majority a+b")
			w.live(300) // ONLINE for long, but its satellite was never away
			w.want("a", "off a+b, majority a+b")
			w.Retract("R", nil, w.at(w.now))
			w.want("a", "majority a+b")
		},
		"before its first reading, and the satellite restarts": func(w *world) {
			w.tell("a", "off a+b, majority a+b")
			w.first()
			w.live(12)
			w.restart("a")
			w.live(60)
			w.want("a", "majority a+b")
		},
		"before its first reading, of another quorum than LINSTOR wants now": func(w *world) {
			w.tell("a", "off a+b, all a+b")
			w.first()
			w.live(300)
			w.want("a", "off a+b, all a+b, majority a+b")
		},
		"of a node that LINSTOR no longer lists": func(w *world) {
			delete(w.replicas, "a")
			delete(w.nodes, "a")
			w.tell("a", "off a+b, majority a+b")
			w.first()
			w.live(300)
			w.want("a", "gone: anything: off a+b, majority a+b")
			w.want("b", "majority b")
			w.Retract("R", nil, w.at(w.now))
			w.want("a", "gone: anything: off a+b, majority a+b")
		},
		"of a node that is listed later, and has its word": func(w *world) {
			a := w.replicas["a"]
			delete(w.replicas, "a")
			w.tell("a", "off a+b, majority a+b")
			w.first()
			w.live(5)
			w.replicas["a"] = a
			w.says("a")
			w.wait(0.1)
			w.look()
			w.says("a")
			w.look()
			w.want("a", "anything: off a+b, majority a+b")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return newWorld(t, "majority", "a", "b") })
}

// Who forecasts what the controller would do has just come, and removes nothing.
func TestAForecastAssumesThatNodesRunWhatLinstorWants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "majority", "a", "b")
	w.Assume()
	w.first()
	w.want("a", "anything: majority a+b")
	w.tell("b", "off a+b")
	w.Assume()
	w.want("a", "majority a+b")
	w.want("b", "off a+b, majority a+b")
}
