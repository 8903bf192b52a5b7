package evacuation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
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

// good tells whether a replica is a good copy: all of its disks are UpToDate, it is to stay, and so is its node. One that LINSTOR moves away, or
// has once been told to, is none: LINSTOR deletes the source of a move without a second look at where it went, also long after a restore.
func (s situation) good(v Volume, r Replica) bool {
	return v.upToDate(r) && staying(r) && !r.Moves && s.node(r.Node).steady()
}

// moving are the nodes other than N with a replica that would be a good copy if LINSTOR had not a move of it in mind.
func (s situation) moving(v Volume) []string {
	var names []string
	for _, r := range v.Replicas {
		if r.Moves && r.Node != s.self.Satellite && v.upToDate(r) && staying(r) && s.node(r.Node).steady() {
			names = append(names, r.Node)
		}
	}
	slices.Sort(names)
	return names
}

// goodElsewhere tells whether the volume has a good copy on another node. Where the disk on N may have what was written last, that copy must be
// connected to it: without quorum two disks that are not connected may both be UpToDate, and only one has it.
func (s situation) goodElsewhere(v Volume) bool {
	here, _ := v.on(s.self.Satellite)
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool {
		return r.Node != s.self.Satellite && s.good(v, r) && v.keepsUp(r, here)
	})
}

// keepsUp tells whether a replica that is UpToDate has what was written last on N: they are connected, or the disk there is behind.
func (v Volume) keepsUp(r, here Replica) bool { return v.isBehind(here) || joined(here, r) }

// hasData tells whether a volume of which N has no disk has one that may be used now. That its node is to leave, too, is for its own evacuation.
func (s situation) hasData(v Volume) bool {
	return slices.ContainsFunc(v.Replicas, func(r Replica) bool {
		return v.upToDate(r) && staying(r) && s.node(r.Node).Online == Yes
	})
}

// behind are the words on a disk that is known not to have what was written last.
var behind = []string{"Outdated", diskInconsistent, diskSyncTarget, "Failed", "Diskless"}

// isBehind tells whether a replica is known not to have what was written last to any of the volumes. One of which a word is missing may have it.
func (v Volume) isBehind(r Replica) bool {
	return !slices.ContainsFunc(v.volumeNumbers(), func(n int) bool { return !slices.Contains(behind, r.Disks[n]) })
}

// onItsWay returns the replica on another node that is going to be a good copy.
func (s situation) onItsWay(v Volume) (Replica, bool) {
	for _, r := range v.Replicas {
		if r.Node != s.self.Satellite && s.comes(v, r) {
			return r, true
		}
	}
	return Replica{}, false
}

// comes tells whether a replica is going to be a good copy.
func (s situation) comes(v Volume, r Replica) bool {
	return staying(r) && !r.Moves && s.node(r.Node).steady() && v.becomes(r)
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

// isFed tells whether a replica is connected to a disk that is UpToDate, from which DRBD can copy.
func (v Volume) isFed(r Replica) bool {
	return slices.ContainsFunc(v.Replicas, func(from Replica) bool { return v.upToDate(from) && joined(from, r) })
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

// joined tells whether two replicas are known to be connected: by the word of either, unless the other denies it. The two ends of a connection
// notice its end seconds apart, and the first to notice may have written without the other since.
func joined(a, b Replica) bool {
	if a.Node == b.Node {
		return true
	}
	said := slices.Contains(a.Peers, b.Node) || slices.Contains(b.Peers, a.Node)
	denied := slices.Contains(a.Apart, b.Node) || slices.Contains(b.Apart, a.Node)
	return said && !denied
}

// voting are the words on a disk that has a vote.
var voting = []string{diskUpToDate, diskInconsistent, diskSyncTarget, "Consistent", "Outdated"}

// hasVote tells whether all disks of a replica are known to be there. One that has failed has lost its vote.
func (v Volume) hasVote(r Replica) bool {
	return !slices.ContainsFunc(v.volumeNumbers(), func(n int) bool { return !slices.Contains(voting, r.Disks[n]) })
}

// keepsQuorum tells whether the volume would have quorum without N, by each setting that its nodes may run.
func (s situation) keepsQuorum(v Volume) bool {
	for _, v.Quorum = range append([]string{v.Quorum}, v.OtherQuorums...) {
		if !s.keepsWanted(v) {
			return false
		}
	}
	return true
}

// keepsWanted tells whether it would have the quorum that LINSTOR wants: some disk that has what was written last, together with the replicas that
// it is connected to. Of two parts that are not connected to each other both may have a quorum that is a number.
func (s situation) keepsWanted(v Volume) bool {
	here, _ := v.on(s.self.Satellite)
	return v.needsNone() || slices.ContainsFunc(v.Replicas, func(r Replica) bool {
		return v.upToDate(r) && s.remains(r) && s.quorate(v, r) && v.keepsUp(r, here)
	})
}

// needsNone tells whether LINSTOR wants no quorum.
func (v Volume) needsNone() bool { return evidence.Tally{Disks: 1}.Holds(v.Quorum) }

// remains tells whether a replica is there without N.
func (s situation) remains(r Replica) bool {
	return r.Node != s.self.Satellite && s.node(r.Node).Online == Yes && !r.has(flagDelete, flagDRBDDelete, flagInactive)
}

// quorate tells whether a replica would have quorum without N. A disk that has failed still counts as one to be had.
func (s situation) quorate(v Volume, base Replica) bool {
	var votes evidence.Tally
	for _, r := range v.Replicas {
		if r.has(flagInactive) {
			continue
		}
		kind := evidence.KindOf(r.Diskless, r.Client)
		votes.Add(kind, s.remains(r) && joined(base, r) && (kind != evidence.WithDisk || v.hasVote(r)))
	}
	return votes.Holds(v.Quorum)
}
