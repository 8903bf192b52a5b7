package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

func TestANodeIsUnconfirmedUntilItIsKnownToRunWhatWasReadFirst(t *testing.T) {
	t.Parallel()
	story{
		"ten seconds after the reading a node list shows it ONLINE": func(w *world) {
			w.first()
			w.wait(5)
			w.Alive("a", w.at(w.now))
			w.wait(4.9)
			w.readNodes()
			w.unconfirmed("a")
			w.wait(0.1)
			w.readNodes()
			w.confirmed("a")
		},
		"the node list was asked for before and came after that": func(w *world) {
			w.first()
			w.live(9)
			w.applyNodes([]client.Node{{Name: "a", ConnectionStatus: client.StatusOnline}}, span{start: w.at(9.9), end: w.at(11)})
			w.unconfirmed("a")
		},
		"the setting was read late": func(w *world) {
			w.now = 5
			w.applyDefinitions([]client.Definition{w.definition()}, w.read(4))
			w.readNodes()
			w.applyView(w.rows(), w.read(5))
			w.Alive("a", w.at(6))
			w.now = 9
			w.define()
			w.now = 18.9
			w.readNodes()
			w.unconfirmed("a")
			w.now = 19
			w.readNodes()
			w.unconfirmed("a") // its Lease was renewed before the reading ended
			w.Alive("a", w.at(19))
			w.now = 20
			w.readNodes()
			w.confirmed("a")
		},
		"its Lease is silent: LINSTOR calls a dead node ONLINE": func(w *world) {
			w.silent["a"] = true
			w.first()
			w.live(600)
			w.unconfirmed("a")
			w.confirmed("b")
		},
		"its Lease was renewed before the reading": func(w *world) {
			w.readNodes()
			w.Alive("a", w.at(0))
			w.silent["a"] = true
			w.first()
			w.live(600)
			w.unconfirmed("a")
		},
		"it is OFFLINE": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			w.first()
			w.live(600)
			w.unconfirmed("a")
		},
		"LINSTOR has no state of its replica": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(600)
			w.unconfirmed("a")
			w.replicas["a"].quiet = false
			w.look()
			w.confirmed("a")
		},
		"LINSTOR has a state of its replica again, but not of its satellite": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(12)
			w.nodes["a"] = "CONNECTED"
			w.replicas["a"].quiet = false
			w.live(5)
			w.unconfirmed("a")
			w.nodes["a"] = client.StatusOnline
			w.live(1)
			w.confirmed("a")
		},
		"its first word comes late": func(w *world) {
			w.replicas["a"].quiet = true
			w.first()
			w.live(3)
			w.replicas["a"].quiet = false
			w.says("a")
			w.look()
			w.unconfirmed("a")
		},
		"LINSTOR wants another setting meanwhile": func(w *world) {
			w.first()
			w.live(5)
			w.set("off")
			w.define()
			w.live(6)
			w.unconfirmed("a")
		},
		"an event that LINSTOR repeats when the stream begins": func(w *world) {
			w.first()
			w.says("a")
			w.live(9)
			w.unconfirmed("a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return newWorld(t, "majority", "a", "b", "c/") })
}

func TestANodeHasAppliedThatByWhichItCreatedItsReplica(t *testing.T) {
	t.Parallel()
	story{
		"its first word came before the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.wait(0.1)
			w.look()
			w.confirmed("a")
		},
		"its first word came after the list": func(w *world) {
			w.add("a")
			w.replicas["a"].quiet = true
			w.look()
			w.unconfirmed("a")
			w.live(3)
			w.replicas["a"].quiet = false
			w.says("a")
			w.unconfirmed("a") // until a list shows that it reports
			w.look()
			w.confirmed("a")
		},
		"its word came long before the list": func(w *world) {
			w.add("a")
			w.says("a")
			w.wait(10.1)
			w.look()
			w.unconfirmed("a")
		},
		"its word comes when it has long been listed, and reports": func(w *world) {
			w.add("a")
			w.silent["a"] = true
			w.live(12)
			w.says("a")
			w.look()
			w.unconfirmed("a")
		},
		"a word without a value is none": func(w *world) {
			w.add("a")
			w.announce(client.Event{Resource: "R", Node: "a"}, w.at(w.now))
			w.look()
			w.unconfirmed("a")
		},
		"no word comes": func(w *world) {
			w.add("a")
			w.live(9)
			w.unconfirmed("a")
			w.live(3)
			w.confirmed("a")
		},
		"it was placed together with others, which it does not report yet": func(w *world) {
			w.add("a")
			w.add("b")
			w.says("a")
			w.look()
			w.unconfirmed("a")
			w.meet("b")
			w.look()
			w.confirmed("a")
		},
		"it was there before, for all that is known": func(w *world) {
			w.add("a")
			w.live(12)
			w.lose("a")
			w.live(1)
			w.remove("a")
			w.live(1)
			w.set("majority")
			w.nodes["a"], w.silent["a"] = client.StatusOnline, false
			w.add("a")
			w.says("a")
			w.look()
			w.unconfirmed("a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return emptyWorld(t, "all") })
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
				w.unconfirmed("a")
				w.wait(0.05)
				w.define()
				w.unconfirmed("a")
			})
			w.confirmed("a")
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
				w.unconfirmed("a")
				w.define()
				w.unconfirmed("a")
			})
			w.confirmed("a")
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
				w.unconfirmed("a")
				if r, _ := w.Resource("R"); !r.InDoubt {
					w.t.Error("LINSTOR may have adapted the quorum to the new replicas, and that is not said")
				}
				w.define()
			})
			if r, _ := w.Resource("R"); r.InDoubt {
				w.t.Error("the quorum is still in doubt")
			}
			w.confirmed("a")
		},
		"a person has set a quorum on the group": func(w *world) {
			w.quorum = ""
			w.applyGroups([]client.Group{{Name: "DfltRscGrp", Props: map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}}}, w.read(w.now))
			w.add("a")
			w.says("a")
			w.look()
			w.confirmed("a")
			rest(w, w.look)
			w.confirmed("a")
		},
		"the same, and its first word comes after the list": func(w *world) {
			w.quorum = ""
			w.applyGroups([]client.Group{{Name: "DfltRscGrp", Props: map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}}}, w.read(w.now))
			w.add("a")
			w.look()
			w.says("a")
			w.look()
			rest(w, w.look)
			w.confirmed("a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return emptyWorld(t, "off") })
}

func TestANewReplicaNeedNotRunTheQuorumOfReplicasThatAreNotListedYet(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t, "off")
	w.add("a")
	w.says("a")
	w.add("b")
	w.meet("b")
	w.list()
	w.wait(0.05)
	w.add("c/")
	w.adapt("majority")
	w.define()
	w.unconfirmed("a")
	w.live(300)
	w.unconfirmed("a")
	w.meet("c")
	w.live(3)
	w.confirmed("a")
}

// The list tells of the second replica, and the definition, read after it, of the quorum that LINSTOR has set with the third one.
func TestWhoHasMetTheReplicasOfAListNeedNotRunTheQuorumOfLaterOnes(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t, "off")
	w.add("a")
	w.says("a")
	w.look()
	w.live(2)
	w.add("b")
	w.meet("b")
	w.list()
	w.wait(0.05)
	w.add("c/")
	w.adapt("majority")
	w.define()
	w.unconfirmed("a")
	w.live(300)
	w.unconfirmed("a")
	w.meet("c")
	w.live(3)
	w.confirmed("a")
}
