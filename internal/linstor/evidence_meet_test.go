package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// Adjusting DRBD sets the quorum first, and adds peers then: who reports a new peer has applied it.
func TestANodeThatListsANewPeerHasAppliedWhatLinstorWanted(t *testing.T) {
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
			w.unconfirmed("a")
			w.meet("c")
			w.look()
			w.confirmed("a")
			w.confirmed("b")
		},
		"it reports that only when it has long been listed": func(w *world) {
			comes(w, "majority")
			w.live(300)
			w.unconfirmed("a")
			w.meet("d")
			w.live(1)
			w.confirmed("a")
		},
		"only the new replica says that it is connecting": func(w *world) {
			comes(w, "majority")
			w.replicas["d"].peers = []string{"a", "b"}
			w.live(300)
			w.unconfirmed("a")
		},
		"of two that came together it reports but one": func(w *world) {
			w.add("c/")
			comes(w, "majority")
			w.connect("a", "c")
			w.live(300)
			w.unconfirmed("a")
			w.connect("a", "d")
			w.live(1)
			w.confirmed("a")
		},
		"the other one of two is on its way out already": func(w *world) {
			w.add("c/")
			w.replicas["c"] = &inWorld{diskless: true, leaving: true}
			comes(w, "majority")
			w.unconfirmed("a")
			w.connect("a", "d")
			w.live(1)
			w.confirmed("a")
		},
		"a replica came, and only then a person set the quorum, and adjust fails": func(w *world) {
			comes(w, "off")
			w.live(1)
			w.set("majority")
			w.define()
			w.unconfirmed("a")
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
		},
		"LINSTOR sets the quorum after the replica was listed": func(w *world) {
			comes(w, "off")
			w.live(1)
			w.adapt("majority")
			w.define()
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
		},
		"a person set the quorum on the controller at the time when the replica came": func(w *world) {
			w.add("d")
			w.set("majority")
			w.look()
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
		},
		"a person took the quorum off back after a replica came, both in one reading": func(w *world) {
			w.set("off")
			w.define()
			w.live(60)
			w.add("d")
			w.meet("d") // by off: of majority no satellite is told, or adjust fails
			w.adapt("majority")
			w.look()
			w.live(300)
			w.unconfirmed("a")
		},
		"a person took the quorum off back from the controller after a replica came, both in one reading": func(w *world) {
			w.applyControllerProps(map[string]string{client.PropQuorum: "off", client.PropQuorumSetBy: setByUser}, w.read(w.now))
			w.live(60)
			w.add("d")
			w.meet("d")
			w.adapt("majority")
			w.applyControllerProps(nil, w.read(w.now))
			w.look()
			w.live(300)
			w.unconfirmed("a")
		},
		"a person took the quorum off back, and more than ten seconds later a replica is listed": func(w *world) {
			w.set("off")
			w.define()
			w.adapt("majority")
			w.define()
			w.live(10.1)
			w.add("d")
			w.look()
			w.meet("d")
			w.live(1)
			w.confirmed("a")
		},
		"a person set the quorum, which was read before the replica was listed that is older": func(w *world) {
			w.set("majority")
			w.define()
			w.add("d")
			w.live(1)
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
		},
		"a person set the quorum after a replica came, and long passes until the replicas are listed": func(w *world) {
			w.add("d")
			w.meet("d") // by off
			w.wait(0.5)
			w.set("majority")
			w.define()
			w.wait(15)
			w.look()
			w.live(300)
			w.unconfirmed("a")
		},
		"a replica is listed nine seconds after a person set the quorum": func(w *world) {
			w.set("majority")
			w.define()
			w.live(9)
			w.add("d")
			w.look()
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
		},
		"a replica is listed more than ten seconds after a person set the quorum": func(w *world) {
			w.set("majority")
			w.define()
			w.live(10.1)
			w.add("d")
			w.look()
			w.unconfirmed("a")
			w.meet("d")
			w.live(1)
			w.confirmed("a")
		},
		"a replica is listed between two changes of the quorum": func(w *world) {
			comes(w, "majority")
			w.set("off")
			w.define()
			w.unconfirmed("a")
			w.meet("d")
			w.live(300)
			w.unconfirmed("a")
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
			w.unconfirmed("c")
			w.connect("c", "d")
			w.live(1)
			w.confirmed("c")
		},
		"a person sets the quorum on the group just before a replica comes": func(w *world) {
			w.quorum = ""
			w.define()
			w.unconfirmed("a")
			w.applyGroups([]client.Group{{Name: "DfltRscGrp", Props: map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}}}, w.read(w.now))
			w.provesNothing("d")
		},
		"a person sets the quorum on the controller just before a replica comes": func(w *world) {
			w.quorum = "majority" // of all definitions, without a word of who has set it
			w.applyControllerProps(map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}, w.read(w.now))
			w.define()
			w.provesNothing("d")
		},
		"a person has set the quorum on the controller, which is read after the definition": func(w *world) {
			w.quorum = "majority"
			w.define()
			w.applyControllerProps(map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}, w.read(w.now))
			w.provesNothing("d")
		},
		"it has no disk, and neither has the new replica": func(w *world) {
			w.add("c/")
			w.meet("c")
			w.live(1)
			w.says("c")
			w.live(11)
			w.unconfirmed("c")
			w.add("d/")
			w.adapt("majority")
			w.live(1)
			w.meet("d")
			w.live(300)
			w.confirmed("a")
			w.unconfirmed("c")
		},
	}.run(t, worldOf("off", "a", "b"))
}

// provesNothing lets a replica come right after a person has set majority: whoever meets it may have met it before.
func (w *world) provesNothing(node string) {
	w.t.Helper()
	w.live(2)
	w.add(node)
	w.look()
	w.meet(node)
	w.live(300)
	w.unconfirmed("a")
}
