package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// LINSTOR sends everything anew to a satellite that comes back, which is ONLINE before it adjusts DRBD.
func TestANodeThatHasBeenBackForAMinuteHasAppliedWhatLinstorWanted(t *testing.T) {
	t.Parallel()
	story{
		"a person sets the quorum on the controller, or adjust fails, and nothing else happens": func(w *world) {
			w.live(3600)
			w.unconfirmed("a")
		},
		"its satellite restarts": func(w *world) {
			w.live(30)
			w.restart("a")
			w.wait(0.1)
			w.look()
			w.unconfirmed("a")
			w.live(29.9)
			w.unconfirmed("a")
			w.live(29.9)
			w.unconfirmed("a")
			w.live(0.1)
			w.confirmed("a")
			w.unconfirmed("b")
		},
		"its satellite restarts, and the node lists are few": func(w *world) {
			w.restart("a")
			w.wait(55)
			w.readNodes()
			w.unconfirmed("a")
			w.wait(5)
			w.readNodes()
			w.confirmed("a")
		},
		"its satellite restarts, and the node is cut before a minute is over": func(w *world) {
			w.restart("a")
			w.live(59)
			w.lose("a")
			w.live(300)
			w.unconfirmed("a")
		},
		"its satellite restarts twice within a minute": func(w *world) {
			w.restart("a")
			w.live(40)
			w.restart("a")
			w.live(59)
			w.unconfirmed("a")
			w.live(1)
			w.confirmed("a")
		},
		"LINSTOR has no state of the replica when the satellite is back": func(w *world) {
			w.restart("a")
			w.replicas["a"].quiet = true
			w.live(30)
			w.replicas["a"].quiet = false
			w.live(60)
			w.unconfirmed("a")
			w.live(1)
			w.confirmed("a")
		},
		"the replica was not read since the satellite is back": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			w.wait(1)
			w.readNodes()
			w.nodes["a"] = client.StatusOnline
			w.wait(1)
			w.readNodes()
			w.wait(300)
			w.readNodes()
			w.unconfirmed("a")
		},
		"only a node list has missed it so far": func(w *world) {
			w.live(300)
			w.set("all")
			w.define()
			w.nodes["a"] = "OFFLINE"
			w.wait(1)
			w.readNodes()
			w.unconfirmed("a")
		},
		"LINSTOR loses its state of the replica before a minute is over": func(w *world) {
			w.restart("a")
			w.live(50)
			w.replicas["a"].quiet = true
			w.live(300)
			w.unconfirmed("a")
		},
		"LINSTOR does not say for a while whether it is ONLINE": func(w *world) {
			w.nodes["a"] = ""
			w.live(5)
			w.nodes["a"] = client.StatusOnline
			w.live(300)
			w.unconfirmed("a")
		},
		"the node list that missed it was asked for before the quorum was read": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			list := []client.Node{{Name: "a", ConnectionStatus: "OFFLINE"}, {Name: "b", ConnectionStatus: client.StatusOnline}}
			w.applyNodes(list, span{start: w.at(w.now - 0.1), end: w.at(w.now + 1)})
			w.wait(1)
			w.nodes["a"] = client.StatusOnline
			w.live(300)
			w.unconfirmed("a")
		},
		"its values are absent for a moment, and it is ONLINE": func(w *world) {
			w.live(30)
			w.replicas["a"].quiet = true
			w.ApplyEvent(client.Event{Resource: "R", Node: "a"}, w.at(w.now))
			w.look()
			w.wait(0.035)
			w.replicas["a"].quiet = false
			w.says("a")
			w.look()
			w.live(300)
			w.unconfirmed("a")
		},
		"LINSTOR does not list the node for a while": func(w *world) {
			delete(w.nodes, "a")
			w.live(2)
			w.nodes["a"] = client.StatusOnline
			w.live(59)
			w.unconfirmed("a")
			w.live(2)
			w.confirmed("a")
		},
		"the quorum goes back meanwhile": func(w *world) {
			w.live(30)
			w.set("off")
			w.define()
			w.unconfirmed("a")
			w.restart("a")
			w.live(60)
			w.unconfirmed("a")
		},
		"the quorum goes back after its satellite has restarted": func(w *world) {
			w.restart("a")
			w.live(10)
			w.set("off")
			w.define()
			w.live(300)
			w.unconfirmed("a")
		},
		"LINSTOR is restarted, and sends everything to all": func(w *world) {
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = "OFFLINE", true
			}
			w.live(2)
			for node, r := range w.replicas {
				w.nodes[node], r.quiet = client.StatusOnline, false
			}
			w.live(62)
			w.confirmed("a")
			w.confirmed("b")
		},
	}.run(t, func(t *testing.T) *world {
		t.Helper()
		w := knownWorld(t, "off", "a", "b")
		w.set("majority")
		w.define()
		w.unconfirmed("a")
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
	w.unconfirmed("a")
	w.restart("a")
	w.live(60)
	w.confirmed("a")
}
