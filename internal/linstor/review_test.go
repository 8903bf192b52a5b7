package linstor

import (
	"testing"
)

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

// The list of nodes is a moment older than that of the replicas, in which LINSTOR has missed c, and a person has given it up.
func TestANodeThatWasLostSinceTheNodesWereReadHasNotLetItsReplicaGo(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "majority", "a", "b", "c")
	w.readNodes()
	w.lose("c")
	delete(w.nodes, "c")
	delete(w.replicas, "c")
	w.wait(0.4)
	w.list()
	w.define()
	w.isGone("c", true, false)
	w.live(5)
	w.isGone("c", true, false)
}
