package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// A process that does not hear events for a while, because LINSTOR or itself has just started, does not know that a node has created its
// replica by a quorum that a person has set. The replicas that come next show it, where that quorum was known long before.
func TestANewVolumeOfWhichNoEventWasHeard(t *testing.T) {
	t.Parallel()
	byUser := map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}
	group := func(w *world) {
		w.applyGroups([]client.Group{{Name: "DfltRscGrp", Props: byUser}}, w.read(w.now))
	}
	// comes has linstor-csi make the volume: one replica alone, and then the rest.
	comes := func(w *world) {
		w.add("a")
		w.look()
		w.wait(0.4)
		w.add("b")
		w.add("c/")
		w.look()
		w.meet("b")
		w.meet("c")
		w.live(300)
	}
	story{
		"a person has set the quorum on the group long before": func(w *world) {
			group(w)
			w.live(10)
			comes(w)
			w.confirmed("a")
		},
		"a person has set it less than ten seconds before": func(w *world) {
			group(w)
			w.live(9)
			comes(w)
			w.confirmed("a")
		},
		"a person has set it on the controller long before": func(w *world) {
			w.applyControllerProps(byUser, w.read(w.now))
			w.live(10)
			comes(w)
			w.confirmed("a")
		},
		"a person has set it on the group long before, and on the controller just now": func(w *world) {
			group(w)
			w.live(60)
			w.applyControllerProps(byUser, w.read(w.now))
			comes(w)
			w.confirmed("a")
		},
		"a person has set it on the group long before, and taken another one off the controller just now": func(w *world) {
			group(w)
			w.applyControllerProps(map[string]string{client.PropQuorum: "off", client.PropQuorumSetBy: setByUser}, w.read(w.now))
			w.live(60)
			w.applyControllerProps(nil, w.read(w.now))
			comes(w)
			w.confirmed("a")
		},
		"a person has set it on the group long before, and on the volume itself": func(w *world) {
			group(w)
			w.live(60)
			w.set("majority")
			comes(w)
			w.confirmed("a")
		},
		"a person sets it on the group once the volume is there": func(w *world) {
			w.quorum = "off"
			w.add("a")
			w.live(60)
			w.quorum = ""
			group(w)
			w.define()
			w.add("b")
			w.add("c/")
			w.look()
			w.meet("b")
			w.meet("c")
			w.live(300)
			w.unconfirmed("a")
		},
	}.run(t, func(t *testing.T) *world { t.Helper(); return emptyWorld(t, "") })
}
