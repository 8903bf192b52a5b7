package linstor

import "slices"

// changes reports whether do changes more of a resource than times, and whether it changes the replicas or their disks. It must change the
// entry only: the levels above report their own changes.
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
	return sameShape(a, b) && a.drbd == b.drbd && a.volumes == b.volumes && a.SaysSameAs(&b.Replica) && slices.EqualFunc(a.peers, b.peers, samePeer)
}

func samePeer(a, b peer) bool {
	return a.node == b.node && a.listed == b.listed && same(a.connected, b.connected)
}
