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
	return a.Node == b.Node && a.Diskless == b.Diskless && a.Client == b.Client && a.Leaving == b.Leaving
}

func sameReplica(a, b replicaEntry) bool {
	return sameShape(a, b) && a.drbd == b.drbd && a.volumes == b.volumes && a.SaysSameAs(&b.Replica)
}
