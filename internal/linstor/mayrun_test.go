package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

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
			w.nodes["a"] = client.StatusOnline
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
			w.nodes["a"] = client.StatusOnline
			w.live(300)
			w.want("a", both)
		},
		"the node list that missed it was asked for before the quorum was read": func(w *world) {
			w.nodes["a"] = "OFFLINE"
			list := []client.Node{{Name: "a", ConnectionStatus: "OFFLINE"}, {Name: "b", ConnectionStatus: client.StatusOnline}}
			w.applyNodes(list, span{start: w.at(w.now - 0.1), end: w.at(w.now + 1)})
			w.wait(1)
			w.nodes["a"] = client.StatusOnline
			w.live(300)
			w.want("a", both)
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
			w.want("a", both)
		},
		"LINSTOR does not list the node for a while": func(w *world) {
			delete(w.nodes, "a")
			w.live(2)
			w.nodes["a"] = client.StatusOnline
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
				w.nodes[node], r.quiet = client.StatusOnline, false
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
