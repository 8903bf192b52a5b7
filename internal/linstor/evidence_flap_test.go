package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

func TestAConnectionThatANodeHadBeforeShowsNothing(t *testing.T) {
	t.Parallel()
	story{
		"a tie-breaker goes and comes again on its node, and a hears of neither": func(w *world) {
			delete(w.replicas, "c") // a goes on to report it
			w.adapt("off")
			w.live(20)
			w.unconfirmed("a")
			w.add("c/")
			w.replicas["c"].peers = []string{"a", "b"}
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
		},
		"a tie-breaker goes and comes again on its node, and a hears of both": func(w *world) {
			w.remove("c")
			w.adapt("off")
			w.live(20)
			w.add("c/")
			w.adapt("majority")
			w.live(1)
			w.unconfirmed("a")
			w.meet("c")
			w.live(1)
			w.confirmed("a")
		},
		"the connections of a node are listed in part after a reconnect": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.absent("a")
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
		},
		"that happens twice": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			for range 2 {
				w.absent("a")
				w.replicas["a"].peers = []string{"b"}
				w.look()
				w.wait(0.1)
				w.replicas["a"].peers = []string{"b", "c"}
				w.look()
				w.wait(20)
			}
			w.absent("a")
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
		},
		"they are listed in part, and then LINSTOR has no state of the replica": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.absent("a")
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
			w.unconfirmed("a")
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
			w.unconfirmed("a")
		},
		"they are listed in part, and the replica goes and comes within a moment": func(w *world) {
			w.absent("a")
			w.replicas["a"].peers = []string{"b"}
			delete(w.replicas, "c")
			w.adapt("off")
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
		},
		"a node does not report it for long, but is OFFLINE": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(1)
			w.absent("a")
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.nodes["a"] = "OFFLINE"
			w.wait(5)
			w.live(20)
			w.nodes["a"] = client.StatusOnline
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.look()
			w.live(30)
			w.unconfirmed("a")
		},
		"they are listed in part while no events are heard": func(w *world) {
			delete(w.replicas, "c")
			w.adapt("off")
			w.live(20)
			w.hears(w.at(w.now))
			w.replicas["a"].peers = []string{"b"}
			w.look()
			w.wait(0.1)
			w.replicas["a"].peers = []string{"b", "c"}
			w.add("c/")
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
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
			w.unconfirmed("a")
		},
		"a replica stays listed, and its connection goes and comes": func(w *world) {
			w.set("off")
			w.define()
			w.live(11)
			w.disconnect("a", "c")
			w.live(20)
			w.meet("c")
			w.live(300)
			w.unconfirmed("a")
		},
		"node lost c, c is created again, and a and c are connected all the time": func(w *world) {
			w.lose("c")
			w.live(2)
			delete(w.replicas, "c")
			delete(w.nodes, "c")
			w.adapt("off")
			w.live(20)
			w.confirmed("c")
			w.nodes["c"], w.silent["c"] = client.StatusOnline, false
			w.add("c/")
			w.replicas["c"].peers = []string{"a", "b"}
			w.adapt("majority")
			w.live(300)
			w.unconfirmed("a")
		},
	}.run(t, worldOf("majority", "a", "b", "c/"))
}
