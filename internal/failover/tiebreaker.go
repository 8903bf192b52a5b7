package failover

import "slices"

// TieBreakerGone returns the node with the only diskless replica of R where that replica is to break the tie between an even number of
// disks and its satellite is not ONLINE: the loss of half of the disks takes quorum from the rest. The CSI driver leaves a resource
// so where the node of a user without a disk was lost: LINSTOR makes a tie-breaker of that user's replica.
func (r Resource) TieBreakerGone() (node string, gone bool) {
	if !r.Known || !r.DRBD {
		return "", false
	}
	present := slices.DeleteFunc(slices.Clone(r.Replicas), func(replica Replica) bool { return replica.Leaving || replica.Gone })
	disks := 0
	var diskless []Replica
	for _, replica := range present {
		switch {
		case replica.Client: // breaks no tie
		case replica.Diskless:
			diskless = append(diskless, replica)
		default:
			disks++
		}
	}
	if disks < 2 || disks%2 != 0 || len(diskless) != 1 || !diskless[0].Online.is(false) {
		return "", false
	}
	return diskless[0].Node, true
}

// Attachable tells whether a volume of R could be attached to a node: where it has a replica, or where LINSTOR places one. A node without
// a replica on which LINSTOR places none, by its property AutoplaceTarget, is no target of a fail-over.
func (r Resource) Attachable(node string, noTarget bool) bool {
	replica, ok := r.Replica(node)
	if !ok || replica.Gone {
		return !noTarget
	}
	return !replica.Leaving
}
