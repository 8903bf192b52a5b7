package evidence

import (
	"slices"
	"strconv"
)

// Kind is what a replica may count a peer, or itself, as: one or several of these.
type Kind uint8

const (
	// WithDisk is a vote of one with a disk.
	WithDisk Kind = 1 << iota
	// WithoutDisk is a vote of one without.
	WithoutDisk
	// Absent is no vote: it is not configured there, or is a client.
	Absent
)

// KindOf is what a replica is by its flags.
func KindOf(diskless, client bool) Kind {
	switch {
	case client:
		return Absent
	case diskless:
		return WithoutDisk
	default:
		return WithDisk
	}
}

// Vote is one whom a replica may count in its quorum.
type Vote struct {
	Node string
	May  Kind
}

// certain tells whether it is known what a replica counts it as.
func (v Vote) certain() bool { return v.May&(v.May-1) == 0 }

// Counts tells whether a node may have a vote among some.
func Counts(votes []Vote, node string) bool {
	return slices.ContainsFunc(votes, func(v Vote) bool { return v.Node == node && v.May != Absent })
}

// HasDisks tells whether one of the votes may be of a replica with a disk.
func HasDisks(votes []Vote) bool { return disks(votes) > 0 }

// disks is how many there may be at most.
func disks(votes []Vote) (n int) {
	for _, v := range votes {
		if v.May&WithDisk != 0 {
			n++
		}
	}
	return n
}

// Outvotes tells whether a quorum keeps a replica that counts these votes from writing without its peers, if it fences at all.
func Outvotes(quorum string, votes []Vote) bool { return Fences(quorum, disks(votes)) }

// Alike tells whether two replicas are known to count the same disks, so that they cannot both have quorum apart from each other.
func Alike(a, b []Vote) bool {
	uncertain := func(v Vote) bool { return !v.certain() }
	if slices.ContainsFunc(a, uncertain) || slices.ContainsFunc(b, uncertain) {
		return false
	}
	diskful := func(votes []Vote) (nodes []string) {
		for _, v := range votes {
			if v.May == WithDisk {
				nodes = append(nodes, v.Node)
			}
		}
		slices.Sort(nodes)
		return nodes
	}
	return slices.Equal(diskful(a), diskful(b))
}

// Tally counts replicas with and without a disk, and those of them that a side holds.
type Tally struct{ Disks, DisksHeld, Diskless, DisklessHeld int }

// Add counts one more.
func (t *Tally) Add(kind Kind, held bool) {
	one := 0
	if held {
		one = 1
	}
	switch kind {
	case WithDisk:
		t.Disks, t.DisksHeld = t.Disks+1, t.DisksHeld+one
	case WithoutDisk:
		t.Diskless, t.DisklessHeld = t.Diskless+1, t.DisklessHeld+one
	case Absent:
	}
}

// CouldHold is DRBD's rule (drbd_state.c, calc_quorum) at its most generous: a majority of
// the diskful replicas has quorum; with exactly half of them the majority of the diskless ones decides.
func (t Tally) CouldHold() bool {
	if 2*t.DisksHeld == t.Disks {
		return 2*t.DisklessHeld > t.Diskless
	}
	return 2*t.DisksHeld > t.Disks
}

// Holds tells whether a side has that quorum, which LINSTOR wants: a majority, all or a number of the disks; with any other word it needs none.
// One that is not known may be a majority.
func (t Tally) Holds(quorum string) bool {
	switch quorum {
	case Majority, "":
		return t.CouldHold()
	case All:
		return t.DisksHeld == t.Disks
	}
	n, err := strconv.Atoi(quorum)
	return err != nil || t.DisksHeld >= n
}

// CouldHold tells whether who counts these votes could have quorum with those that are held, whatever the uncertain ones are worth. Who has no
// disk has no connection to others without one: with half of the disks those may be on his side, and he takes the word of a disk for it.
func CouldHold(votes []Vote, hasDisk bool, held func(node string) bool) bool {
	counts := map[Tally]bool{{}: true}
	for _, one := range votes {
		next := make(map[Tally]bool, 3*len(counts))
		for _, kind := range []Kind{WithDisk, WithoutDisk, Absent} {
			if one.May&kind == 0 {
				continue
			}
			for t := range counts {
				t.Add(kind, held(one.Node))
				next[t] = true
			}
		}
		counts = next
	}
	for t := range counts {
		if half := !hasDisk && 2*t.DisksHeld == t.Disks; t.Disks > 0 && (half || t.CouldHold()) {
			return true
		}
	}
	return false
}

// MayLackDisk tells whether a node may count itself as one without a disk.
func MayLackDisk(votes []Vote, self string) bool {
	return slices.ContainsFunc(votes, func(v Vote) bool { return v.Node == self && v.May != WithDisk })
}
