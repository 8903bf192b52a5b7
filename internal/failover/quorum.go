package failover

import (
	"slices"
	"strconv"
)

// fences tells whether a DRBD quorum setting keeps a node without its peers from writing: majority,
// all, or a number greater than half of the diskful replicas. LINSTOR accepts any number from 1 to 32;
// a smaller one fences nothing.
func fences(quorum string, diskful int) bool {
	switch quorum {
	case "majority", "all":
		return true
	}
	n, err := strconv.Atoi(quorum)
	return err == nil && 2*n > diskful
}

// diskful returns the sorted nodes that have a disk of R.
func (r Resource) diskful() []string {
	var nodes []string
	for _, replica := range r.Replicas {
		if !replica.Diskless {
			nodes = append(nodes, replica.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// lacksAny tells whether one of the nodes no longer has a replica of R. A tie-breaker that LINSTOR has given up may
// still vote for A; one that is new does not yet.
func (r Resource) lacksAny(nodes []string) bool {
	return slices.ContainsFunc(nodes, func(node string) bool {
		_, ok := r.replica(node)
		return !ok
	})
}

// quorumFencesAll tells whether the setting in force on A and on every survivor fences. Where A has no
// replica it cannot write, and only the survivors count.
func quorumFencesAll(r Resource, node string) bool {
	diskful := len(r.diskful())
	for _, replica := range r.Replicas {
		if (replica.Node == node || survives(replica)) && !fences(replica.Quorum, diskful) {
			return false
		}
	}
	return true
}

// quorumMemory is what the time in which A was last seen says about the present quorum setting.
type quorumMemory int

const (
	memoryConfirms quorumMemory = iota
	memoryDiffers
	memoryMissing
)

// recallQuorum compares the present settings with those that reached A when LINSTOR last saw it. LINSTOR may
// have changed them where A never heard of it, and A goes on by what it knew.
func recallQuorum(r Resource, node string) quorumMemory {
	replica, ok := r.replica(node)
	switch {
	case !ok:
		return memoryConfirms
	case replica.Remembered == nil:
		return memoryMissing
	case !fences(replica.Remembered.Quorum, len(replica.Remembered.Diskful)),
		!slices.Equal(replica.Remembered.Diskful, r.diskful()),
		r.lacksAny(replica.Remembered.Diskless):
		return memoryDiffers
	default:
		return memoryConfirms
	}
}
