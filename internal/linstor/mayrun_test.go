package linstor

import (
	"testing"
)

// story is what happens in a world, with what nodes may run in between.
type story map[string]func(w *world)

// run tells each story of a world of its own.
func (s story) run(t *testing.T, begin func(t *testing.T) *world) {
	t.Helper()
	for name, tell := range s {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(begin(t))
		})
	}
}

// worldOf begins a story where it is known what the nodes run.
func worldOf(quorum string, replicas ...string) func(*testing.T) *world {
	return func(t *testing.T) *world {
		t.Helper()
		return knownWorld(t, quorum, replicas...)
	}
}

func TestANodeMayRunAnythingUntilItIsKnownToRunTheFirstSetting(t *testing.T) {
	t.Parallel()
	story{
		"ten seconds after the reading a node list shows it ONLINE": func(w *world) {
			w.first()
			w.wait(5)
			w.Alive("a", w.at(w.now))
			w.wait(4.9)
			w.readNodes()
			w.want("a", "anything: majority a+b/c")
			w.wait(0.1)
			w.readNodes()
			w.want("a", "majority a+b/c")
		},
		"the node list was asked for before and came after that": func(w *world) {
			w.first()
			w.live(9)
			w.applyNodes([]wireNode{{Name: "a", ConnectionStatus: statusOnline}}, span{w.at(9.9), w.at(11)})
			w.want("a", "anything: majority a+b/c")
		},
		"the setting was read late": func(w *world) {
			w.now = 5
			w.applyDefinitions([]wireDefinition{w.definition()}, w.read(4))
			w.readNodes()
			w.applyView(w.rows(), w.read(5))
			w.Alive("a", w.at(6))
			w.now = 9
			w.define()
			w.now = 18.9
			w.readNodes()
			w.want("a", "anything: majority a+b/c")
			w.now = 19
			w.readNodes()
			w.want("a", "anything: majority a+b/c") // its Lease was renewed before the reading ended
			w.Alive("a", w.at(19))
			w.now = 20
			w.readNodes()
			w.want("a", "majority a+b/c")
		},
		"its Lease is silent: LINSTOR calls a dead node ONLINE": func(w *world) {
			w.silent["a"] = true
			w.first()
			w.live(600)
			w.want("a", "anything: majority a+b/c")
			w.want("b", "majority a+b/c")
		},
		"its Lease was renewed before the reading": func(w *world) {
			w.readNodes()
			w.Alive("a", w.at(0))
			w.silent["a"] = true
			w.first()
			w.live(600)
			w.want("a", "anything: majority a+b/c")
		},
		"it is OFFLINE": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			w.first()
			w.live(600)
			w.want("a", "anything: majority a+b/c")
		},
		"LINSTOR has no state of its replica": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(600)
			w.want("a", "anything: majority a+b/c")
			w.replicas["a"].quiet = false
			w.look()
			w.want("a", "majority a+b/c")
		},
		"LINSTOR has a state of its replica again, but not of its satellite": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(12)
			w.nodes["a"] = "CONNECTED"
			w.replicas["a"].quiet = false
			w.live(5)
			w.want("a", "anything: majority a+b/c")
			w.nodes["a"] = statusOnline
			w.live(1)
			w.want("a", "majority a+b/c")
		},
		"its first word comes late": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(3)
			w.replicas["a"].quiet = false
			w.says("a")
			w.look()
			w.want("a", "anything: majority a+b/c")
		},
		"LINSTOR wants another setting meanwhile": func(w *world) {
			w.first()
			w.live(5)
			w.set("off")
			w.define()
			w.live(6)
			w.want("a", "majority a+b/c, off a+b/c")
		},
		"an event that LINSTOR repeats when the stream begins": func(w *world) {
			w.first()
			w.says("a")
			w.live(9)
			w.want("a", "anything: majority a+b/c")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return newWorld(t, "majority", "a", "b", "c/") })
}

func TestANodeRunsTheSettingByWhichItCreatedAReplica(t *testing.T) {
	t.Parallel()
	story{
		"its first word came before the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.wait(0.1)
			w.look()
			w.want("a", "off a")
		},
		"its first word came after the list": func(w *world) {
			w.add("a")
			w.replicas["a"].quiet = true
			w.look()
			w.want("a", "anything: off a")
			w.live(3)
			w.replicas["a"].quiet = false
			w.says("a")
			w.want("a", "anything: off a") // until a list shows that it reports
			w.look()
			w.want("a", "off a")
		},
		"its word came long before the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.wait(10.1)
			w.look()
			w.want("a", "anything: off a")
		},
		"its word comes when it has long been listed, and reports": func(w *world) {
			w.add("a")
			w.silent["a"] = true
			w.live(12)
			w.says("a")
			w.look()
			w.want("a", "anything: off a")
		},
		"a word without a value is none": func(w *world) {
			w.add("a")
			w.announce(PromotionEvent{Resource: "R", Node: "a"}, w.at(w.now))
			w.look()
			w.want("a", "anything: off a")
		},
		"no word comes": func(w *world) {
			w.add("a")
			w.live(9)
			w.want("a", "anything: off a")
			w.live(3)
			w.want("a", "off a")
		},
		"it was placed together with others, which it does not report yet": func(w *world) {
			w.add("a")
			w.add("b")
			w.says("a")
			w.look()
			w.want("a", "anything: off a+b")
			w.meet("b")
			w.look()
			w.want("a", "off a+b")
		},
		"it was placed together with another one, and neither has a disk": func(w *world) {
			w.add("a")
			w.says("a")
			w.live(1)
			w.add("c/")
			w.add("d/")
			w.says("c")
			w.wait(0.1)
			w.look()
			w.want("c", "off a/c+d")
			w.want("a", "off a, off a/c+d")
			w.meet("c")
			w.meet("d")
			w.look()
			w.want("a", "off a/c+d")
		},
		"it was there before, for all that is known": func(w *world) {
			w.add("a")
			w.live(12)
			w.lose("a")
			w.live(1)
			w.remove("a")
			w.live(1)
			w.adapt("majority")
			w.nodes["a"], w.silent["a"] = statusOnline, false
			w.add("a")
			w.says("a")
			w.look()
			w.want("a", "off a, majority a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return emptyWorld(t, "off") })
}

// A volume as linstor-csi makes it: one replica alone, and then the rest, for which LINSTOR sets the quorum.
func TestANewVolumeIsNotHeldUp(t *testing.T) {
	t.Parallel()
	rest := func(w *world, read func()) {
		w.live(2)
		w.add("b")
		w.add("c/")
		w.wait(0.1)
		read()
		w.wait(0.4)
		w.meet("b")
		w.meet("c")
		w.look()
	}
	story{
		"the list comes before the definition": func(w *world) {
			w.add("a")
			w.says("a")
			w.look()
			rest(w, func() {
				w.adapt("majority")
				w.list()
				w.want("a", "off a")
				w.wait(0.05)
				w.define()
				w.want("a", "off a, majority a+b/c")
			})
			w.want("a", "majority a+b/c")
		},
		"the definition comes before the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.look()
			rest(w, func() {
				w.adapt("majority")
				w.define()
				w.wait(0.05)
				w.list()
				w.want("a", "off a, majority a")
				w.define()
				w.want("a", "off a, majority a, majority a+b/c")
			})
			w.want("a", "majority a+b/c")
		},
		"the definition is older than the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.look()
			rest(w, func() {
				w.define() // off, as before
				w.wait(0.05)
				w.adapt("majority")
				w.list()
				w.want("a", "off a")
				if r, _ := w.Resource("R"); !r.InDoubt {
					w.t.Error("LINSTOR may have adapted the quorum to the new replicas, and that is not said")
				}
				w.define()
			})
			if r, _ := w.Resource("R"); r.InDoubt {
				w.t.Error("the quorum is still in doubt")
			}
			w.want("a", "majority a+b/c")
		},
		"a person has set a quorum on the group": func(w *world) {
			w.quorum = ""
			w.applyGroups([]wireGroup{{Name: "DfltRscGrp", Props: map[string]string{propQuorum: "majority", propQuorumSetBy: setByUser}}}, w.read(w.now))
			w.add("a")
			w.says("a")
			w.look()
			w.want("a", "majority a")
			rest(w, w.look)
			w.want("a", "majority a+b/c")
		},
		"the same, and its first word comes after the list": func(w *world) {
			w.quorum = ""
			w.applyGroups([]wireGroup{{Name: "DfltRscGrp", Props: map[string]string{propQuorum: "majority", propQuorumSetBy: setByUser}}}, w.read(w.now))
			w.add("a")
			w.look()
			w.says("a")
			w.look()
			rest(w, w.look)
			w.want("a", "majority a+b/c")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return emptyWorld(t, "off") })
}

// Adjusting DRBD sets the quorum first, and adds peers then: who reports a new peer has applied it.
func TestANodeThatMeetsANewReplicaHasAppliedTheSetting(t *testing.T) {
	t.Parallel()
	// comes has LINSTOR list a replica on d, which a does not report yet.
	comes := func(w *world, quorum string) {
		w.add("d")
		w.adapt(quorum)
		w.live(1)
	}
	story{
		"LINSTOR sets a quorum together with a tie-breaker": func(w *world) {
			w.add("c/")
			w.adapt("majority")
			w.live(20)
			w.want("a", "off a+b, majority a+b/c")
			w.meet("c")
			w.look()
			w.want("a", "majority a+b/c")
			w.want("b", "majority a+b/c")
		},
		"it reports that only when it has long been listed": func(w *world) {
			comes(w, "majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b+d")
			w.meet("d")
			w.live(1)
			w.want("a", "majority a+b+d")
		},
		"only the new replica says that it is connecting": func(w *world) {
			comes(w, "majority")
			w.replicas["d"].peers = []string{"a", "b"}
			w.live(300)
			w.want("a", "off a+b, majority a+b+d")
		},
		"of two that came together it reports but one": func(w *world) {
			w.add("c/")
			comes(w, "majority")
			w.connect("a", "c")
			w.live(300)
			w.want("a", "off a+b, majority a+b+d/c")
			w.connect("a", "d")
			w.live(1)
			w.want("a", "majority a+b+d/c")
		},
		"the other one of two is on its way out already": func(w *world) {
			w.add("c/")
			w.replicas["c"] = &inWorld{diskless: true, leaving: true}
			comes(w, "majority")
			w.want("a", "off a+b, majority a+b+d/c")
			w.connect("a", "d")
			w.live(1)
			w.want("a", "majority a+b+d/c")
		},
		"a replica came, and only then a person set the quorum, and adjust fails": func(w *world) {
			comes(w, "off")
			w.live(1)
			w.set("majority")
			w.define()
			w.want("a", "off a+b, off a+b+d, majority a+b+d")
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b+d, majority a+b+d")
		},
		"LINSTOR sets the quorum after the replica was listed": func(w *world) {
			comes(w, "off")
			w.live(1)
			w.adapt("majority")
			w.define()
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b+d, majority a+b+d")
		},
		"a person set the quorum on the controller at the time when the replica came": func(w *world) {
			w.add("d")
			w.set("majority")
			w.look()
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b, majority a+b+d")
		},
		"a person set the quorum, which was read before the replica was listed that is older": func(w *world) {
			w.set("majority")
			w.define()
			w.add("d")
			w.live(1)
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b, majority a+b, majority a+b+d")
		},
		"a replica is listed nine seconds after a person set the quorum": func(w *world) {
			w.set("majority")
			w.define()
			w.live(9)
			w.add("d")
			w.look()
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b, majority a+b, majority a+b+d")
		},
		"a replica is listed ten seconds after a person set the quorum": func(w *world) {
			w.set("majority")
			w.define()
			w.live(10)
			w.add("d")
			w.look()
			w.want("a", "off a+b, majority a+b, majority a+b+d")
			w.meet("d")
			w.live(1)
			w.want("a", "majority a+b+d")
		},
		"a replica is listed between two changes of the quorum": func(w *world) {
			comes(w, "majority")
			w.set("off")
			w.define()
			w.want("a", "off a+b, majority a+b+d, off a+b+d")
			w.meet("d")
			w.live(300)
			w.want("a", "majority a+b+d, off a+b+d")
		},
		"it has no disk, and so meets but one of two that come": func(w *world) {
			w.add("c/")
			w.meet("c")
			w.live(12)
			w.says("c")
			w.live(11)
			w.add("d")
			w.add("e/")
			w.adapt("majority")
			w.live(1)
			w.want("c", "off a+b/c, majority a+b+d/c+e")
			w.connect("c", "d")
			w.live(1)
			w.want("c", "majority a+b+d/c+e")
		},
		"a person sets the quorum on the group just before a replica comes": func(w *world) {
			w.quorum = ""
			w.define()
			w.want("a", "off a+b")
			w.applyGroup(wireGroup{Name: "DfltRscGrp", Props: map[string]string{propQuorum: "majority", propQuorumSetBy: setByUser}}, w.read(w.now))
			w.live(2)
			w.add("d")
			w.look()
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b, majority a+b, majority a+b+d")
		},
		"a person sets the quorum on the controller just before a replica comes": func(w *world) {
			w.quorum = "majority" // of all definitions, without a word of who has set it
			w.applyControllerProps(map[string]string{propQuorum: "majority", propQuorumSetBy: setByUser}, w.read(w.now))
			w.define()
			w.live(2)
			w.add("d")
			w.look()
			w.meet("d")
			w.live(300)
			w.want("a", "off a+b, majority a+b, majority a+b+d")
		},
		"it has no disk, and neither has the new replica": func(w *world) {
			w.add("c/")
			w.meet("c")
			w.live(1)
			w.says("c")
			w.live(11)
			w.want("c", "off a+b/c")
			w.add("d/")
			w.adapt("majority")
			w.live(1)
			w.meet("d")
			w.live(300)
			w.want("a", "majority a+b/c+d")
			w.want("c", "off a+b/c, majority a+b/c+d")
		},
	}.run(t, worldOf("off", "a", "b"))
}

func TestAConnectionThatANodeHadBeforeShowsNothing(t *testing.T) {
	t.Parallel()
	story{
		"a tie-breaker goes and comes again on its node, and a hears of neither": func(w *world) {
			delete(w.replicas, "c") // a goes on to report it
			w.adapt("off")
			w.live(20)
			w.want("a", "majority a+b/c, off a+b")
			w.add("c/")
			w.replicas["c"].peers = []string{"a", "b"}
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"a tie-breaker goes and comes again on its node, and a hears of both": func(w *world) {
			w.remove("c")
			w.adapt("off")
			w.live(20)
			w.add("c/")
			w.adapt("majority")
			w.live(1)
			w.want("a", "off a+b, majority a+b/c")
			w.meet("c")
			w.live(1)
			w.want("a", "majority a+b/c")
		},
		"the connections of a node are listed in part after a reconnect": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"that happens twice": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			for range 2 {
				w.replicas["a"].peers = []string{"b"}
				w.look()
				w.wait(0.1)
				w.replicas["a"].peers = []string{"b", "c"}
				w.look()
				w.wait(20)
			}
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"they are listed in part, and then LINSTOR has no state of the replica": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.replicas["a"].quiet = true
			w.wait(5)
			w.look()
			w.wait(0.1)
			w.replicas["a"].quiet = false
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"LINSTOR has no state of the replica for long, and then they are listed in part": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.replicas["a"].quiet = true
			w.live(20)
			w.replicas["a"].quiet = false
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"they are listed in part, and the replica goes and comes within a moment": func(w *world) {
			w.replicas["a"].peers = []string{"b"}
			w.live(20)
			delete(w.replicas, "c")
			w.adapt("off")
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"a node does not report it for long, but is OFFLINE": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.nodes["a"] = "OFFLINE"
			w.wait(5)
			w.live(20)
			w.nodes["a"] = statusOnline
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.look()
			w.live(30)
			w.want("a", "off a+b, majority a+b/c")
		},
		"LINSTOR has no state of the replica for long": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.replicas["a"].quiet = true
			w.live(20)
			w.replicas["a"].quiet = false
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
		"a replica stays listed, and its connection goes and comes": func(w *world) {
			w.set("off")
			w.define()
			w.live(11)
			w.disconnect("a", "c")
			w.live(20)
			w.meet("c")
			w.live(300)
			w.want("a", "majority a+b/c, off a+b/c")
		},
		"node lost c, c is created again, and a and c are connected all the time": func(w *world) {
			w.lose("c")
			w.live(2)
			delete(w.replicas, "c")
			delete(w.nodes, "c")
			w.adapt("off")
			w.live(20)
			w.want("c", "gone: majority a+b/c")
			w.nodes["c"], w.silent["c"] = statusOnline, false
			w.add("c/")
			w.replicas["c"].peers = []string{"a", "b"}
			w.adapt("majority")
			w.live(300)
			w.want("a", "off a+b, majority a+b/c")
		},
	}.run(t, worldOf("majority", "a", "b", "c/"))
}

// LINSTOR sends everything anew to a satellite that comes back, which is ONLINE before it adjusts DRBD.
func TestANodeThatHasBeenBackForAMinuteHasAppliedTheSetting(t *testing.T) {
	t.Parallel()
	const both, one = "off a+b, majority a+b", "majority a+b"
	story{
		"a person sets the quorum on the controller, or adjust fails, and nothing else happens": func(w *world) {
			w.live(3600)
			w.want("a", both)
		},
		"its satellite restarts": func(w *world) {
			w.live(30)
			w.restart("a")
			w.wait(0.1)
			w.look()
			w.want("a", both)
			w.live(29.9)
			w.want("a", both)
			w.live(29.9)
			w.want("a", both)
			w.live(0.1)
			w.want("a", one)
			w.want("b", both)
		},
		"its satellite restarts, and the node lists are few": func(w *world) {
			w.restart("a")
			w.wait(55)
			w.readNodes()
			w.want("a", both)
			w.wait(5)
			w.readNodes()
			w.want("a", one)
		},
		"its satellite restarts, and the node is cut before a minute is over": func(w *world) {
			w.restart("a")
			w.live(59)
			w.lose("a")
			w.live(300)
			w.want("a", both)
		},
		"its satellite restarts twice within a minute": func(w *world) {
			w.restart("a")
			w.live(40)
			w.restart("a")
			w.live(59)
			w.want("a", both)
			w.live(1)
			w.want("a", one)
		},
		"LINSTOR has no state of the replica when the satellite is back": func(w *world) {
			w.restart("a")
			w.replicas["a"].quiet = true
			w.live(30)
			w.replicas["a"].quiet = false
			w.live(60)
			w.want("a", both)
			w.live(1)
			w.want("a", one)
		},
		"the replica was not read since the satellite is back": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			w.wait(1)
			w.readNodes()
			w.nodes["a"] = statusOnline
			w.wait(1)
			w.readNodes()
			w.wait(300)
			w.readNodes()
			w.want("a", both)
		},
		"only a node list has missed it so far": func(w *world) {
			w.live(300)
			w.set("all")
			w.define()
			w.nodes["a"] = "OFFLINE"
			w.wait(1)
			w.readNodes()
			w.want("a", both+", all a+b")
		},
		"LINSTOR loses its state of the replica before a minute is over": func(w *world) {
			w.restart("a")
			w.live(50)
			w.replicas["a"].quiet = true
			w.live(300)
			w.want("a", both)
		},
		"LINSTOR does not say for a while whether it is ONLINE": func(w *world) {
			w.nodes["a"] = ""
			w.live(5)
			w.nodes["a"] = statusOnline
			w.live(300)
			w.want("a", both)
		},
		"the node list that missed it was asked for before the quorum was read": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			list := []wireNode{{Name: "a", ConnectionStatus: "OFFLINE"}, {Name: "b", ConnectionStatus: statusOnline}}
			w.applyNodes(list, span{w.at(w.now - 0.1), w.at(w.now + 1)})
			w.wait(1)
			w.nodes["a"] = statusOnline
			w.live(300)
			w.want("a", both)
		},
		"its values are absent for a moment, and it is ONLINE": func(w *world) {
			w.live(30)
			w.replicas["a"].quiet = true
			w.ApplyEvent(PromotionEvent{Resource: "R", Node: "a"}, w.at(w.now))
			w.look()
			w.wait(0.035)
			w.replicas["a"].quiet = false
			w.says("a")
			w.look()
			w.live(300)
			w.want("a", both)
		},
		"LINSTOR does not list the node for a while": func(w *world) {
			delete(w.nodes, "a")
			w.live(2)
			w.nodes["a"] = statusOnline
			w.live(59)
			w.want("a", both)
			w.live(2)
			w.want("a", one)
		},
		"the quorum goes back meanwhile": func(w *world) {
			w.live(30)
			w.set("off")
			w.define()
			w.want("a", "majority a+b, off a+b")
			w.restart("a")
			w.live(60)
			w.want("a", "off a+b")
		},
		"the quorum goes back after its satellite has restarted": func(w *world) {
			w.restart("a")
			w.live(10)
			w.set("off")
			w.define()
			w.live(300)
			w.want("a", "majority a+b, off a+b")
		},
		"LINSTOR is restarted, and sends everything to all": func(w *world) {
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = "OFFLINE", true
			}
			w.live(2)
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = statusOnline, false
			}
			w.live(62)
			w.want("a", one)
			w.want("b", one)
		},
	}.run(t, func(t *testing.T) *world {
		t.Helper()
		w := knownWorld(t, "off", "a", "b")
		w.set("majority")
		w.define()
		w.want("a", both)
		return w
	})
}

// A change, a reconnect, and only then a reading: nobody knows which came first.
func TestAReconnectBeforeTheReadingShowsNothing(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "off", "a", "b")
	w.set("majority")
	w.restart("a")
	w.live(10)
	w.define()
	w.live(300)
	w.want("a", "off a+b, majority a+b")
	w.restart("a")
	w.live(60)
	w.want("a", "majority a+b")
}

// The vote of a replica that was taken down is gone for good: a node that still counts it needs the more.
func TestOfAReplicaThatWasTakenDownNobodyNeedsToHear(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		quorum string
		then   func(w *world)
		want   string
	}{
		"majority":                       {"majority", func(*world) {}, "majority a+b"},
		"all":                            {"all", func(*world) {}, "all a+b"},
		"off":                            {"off", func(*world) {}, "off a+b+c, off a+b"},
		"a number":                       {"2", func(*world) {}, "2 a+b+c, 2 a+b"},
		"majority, which changes to all": {"majority", func(w *world) { w.adapt("all") }, "majority a+b+c, all a+b"},
		"majority, and another one goes whose node is OFFLINE": {"majority", func(w *world) {
			w.lose("b")
			w.live(1)
			w.remove("b")
		}, "majority a+b, majority a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := knownWorld(t, tc.quorum, "a", "b", "c")
			w.remove("c")
			tc.then(w)
			w.live(20)
			w.want("a", tc.want)
		})
	}
}
