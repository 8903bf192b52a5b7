package evacuation

import (
	"fmt"
	"slices"
	"strings"
)

const (
	diskUpToDate     = "UpToDate"
	diskInconsistent = "Inconsistent"
	diskSyncTarget   = "SyncTarget"
)

// becoming are the words on a disk that is on its way to UpToDate. An empty one is that of a replica which LINSTOR has no word on yet: it is
// being created.
var becoming = []string{"", diskInconsistent, diskSyncTarget, "Attaching", "Negotiating"}

// volumeNumbers are those that any replica of the volume has.
func (v Volume) volumeNumbers() []int {
	var numbers []int
	for _, r := range v.Replicas {
		for n := range r.Disks {
			if !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
		}
	}
	return numbers
}

// upToDate tells whether every disk of a replica is explicitly UpToDate. A replica that lacks a volume which another one has is not.
func (v Volume) upToDate(r Replica) bool {
	numbers := v.volumeNumbers()
	return !r.Diskless && len(numbers) > 0 &&
		!slices.ContainsFunc(numbers, func(n int) bool { return r.Disks[n] != diskUpToDate })
}

// staying are the rules by which a replica may be relied upon while its node may.
func staying(r Replica) bool {
	return !r.has(flagDelete, flagDRBDDelete, flagEvicted, flagEvacuate, flagInactive)
}

// good tells whether a replica is a good copy: all of its disks are UpToDate, it is to stay, and so is its node.
func (s situation) good(v Volume, r Replica) bool {
	return v.upToDate(r) && staying(r) && s.node(r.Node).steady()
}

// goodElsewhere tells whether the volume has a good copy on another node.
func (s situation) goodElsewhere(v Volume) bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool { return r.Node != s.self.Satellite && s.good(v, r) })
}

// onItsWay returns the replica on another node that is going to be a good copy.
func (s situation) onItsWay(v Volume) (Replica, bool) {
	for _, r := range v.Replicas {
		if r.Node != s.self.Satellite && staying(r) && s.node(r.Node).steady() && v.becomes(r) {
			return r, true
		}
	}
	return Replica{}, false
}

// becomes tells whether a replica is going to have a disk that is UpToDate: each one is, or is on its way.
func (v Volume) becomes(r Replica) bool {
	if r.has(toggling[:2]...) {
		return true
	}
	if r.Diskless || v.upToDate(r) {
		return false
	}
	numbers := v.volumeNumbers()
	return len(numbers) > 0 && !slices.ContainsFunc(numbers, func(n int) bool {
		return r.Disks[n] != diskUpToDate && !slices.Contains(becoming, r.Disks[n])
	})
}

// untold tells whether LINSTOR has no word on a disk of the replica, or on whether there is none.
func (r Replica) untold() bool {
	for _, word := range r.Disks {
		if word == "" {
			return true
		}
	}
	return len(r.Disks) == 0
}

// unsettled returns why LINSTOR may be at work on the volume; empty where nothing syncs, is being created or toggles.
func (s situation) unsettled(v Volume) string {
	for _, r := range v.Replicas {
		switch online := s.node(r.Node).Online == Yes; {
		case r.has(toggling...):
			return fmt.Sprintf("the disk of %s on %s is being added or removed", v.Resource, r.Node)
		case r.Syncing:
			return fmt.Sprintf("%s syncs on %s", v.Resource, r.Node)
		case online && v.becomes(r):
			return fmt.Sprintf("%s becomes UpToDate on %s", v.Resource, r.Node)
		case online && r.untold():
			return fmt.Sprintf("%s is being created on %s", v.Resource, r.Node)
		}
	}
	return ""
}

// source tells whether the volume has a disk that is known to be UpToDate and could be copied from, also on a node that leaves.
func (s situation) source(v Volume) bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool {
		return v.upToDate(r) && !r.has(flagDelete, flagDRBDDelete, flagInactive) && s.node(r.Node).Online == Yes
	})
}

// offlinePeers names the nodes that have a disk of the volume and are not known to be ONLINE.
func (s situation) offlinePeers(v Volume) string {
	var names []string
	for _, r := range v.Replicas {
		if !r.Diskless && r.Node != s.self.Satellite && s.node(r.Node).Online != Yes {
			names = append(names, r.Node)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// keepsQuorum tells whether the volume would have quorum without N. DRBD counts the replicas with a disk; where they are even and exactly
// one is missing, the tie-breakers decide.
func (s situation) keepsQuorum(v Volume) bool {
	if !v.Majority {
		return true
	}
	voters, present, breakers, breakersPresent := 0, 0, 0, 0
	for _, r := range v.Replicas {
		if r.has(flagInactive) {
			continue
		}
		here := r.Node != s.self.Satellite && s.node(r.Node).Online == Yes && !r.has(flagDelete, flagDRBDDelete)
		switch {
		case r.Diskless:
			breakers++
			if here {
				breakersPresent++
			}
		default:
			voters++
			if here {
				present++
			}
		}
	}
	if 2*present > voters {
		return true
	}
	return 2*present == voters && 2*breakersPresent > breakers
}
