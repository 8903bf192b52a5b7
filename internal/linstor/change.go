package linstor

import (
	"slices"
)

// changes tells whether do changes more of a resource than times, and whether it changes the replicas or their disks. What it
// changes must be the entry's own: the levels above tell of their changes themselves.
func changes(e *entry, do func()) (changed, reshaped bool) {
	name, replicas := e.name, slices.Clone(e.replicas)
	do()
	changed = e.name != name || !slices.EqualFunc(replicas, e.replicas, sameReplica)
	return changed, changed && !slices.EqualFunc(replicas, e.replicas, sameShape)
}

func sameShape(a, b replicaEntry) bool {
	return a.node == b.node && a.diskless == b.diskless && a.leaving == b.leaving
}

func sameReplica(a, b replicaEntry) bool {
	return a.node == b.node && a.drbd == b.drbd && a.volumes == b.volumes &&
		a.diskless == b.diskless && a.leaving == b.leaving &&
		a.mayPromote.same(b.mayPromote) && a.reports.same(b.reports) && a.inUse.same(b.inUse) && a.score.same(b.score) &&
		slices.EqualFunc(a.connections, b.connections, sameConnection)
}

func sameConnection(a, b keptConnection) bool {
	return a.peer == b.peer && a.connected.same(b.connected)
}
