package failover

import (
	"slices"
	"strconv"
)

// Setting is what decides whether a node that has lost its peers can still commit a write to R: a quorum, and whose votes it
// counts. LINSTOR shows the setting that it wants. A node runs the one that it applied last, which may be another: LINSTOR
// does not send each change, and a node may fail to apply one.
type Setting struct {
	// Quorum is DRBD's quorum: majority, all, off or a number of replicas.
	Quorum string `json:"quorum"`
	// Diskful is the sorted list of nodes with a disk.
	Diskful []string `json:"diskful,omitempty"`
	// Diskless is the sorted list of nodes with a replica without a disk.
	Diskless []string `json:"diskless,omitempty"`
}

// Equal tells whether two settings are the same.
func (s Setting) Equal(other Setting) bool {
	return s.Quorum == other.Quorum && slices.Equal(s.Diskful, other.Diskful) && slices.Equal(s.Diskless, other.Diskless)
}

// fences tells whether the quorum keeps a node without its peers from writing: majority, all, or a number greater than half of
// the diskful replicas. LINSTOR accepts any number from 1 to 32; a smaller one fences nothing.
func (s Setting) fences() bool {
	switch s.Quorum {
	case "majority", "all":
		return true
	}
	n, err := strconv.Atoi(s.Quorum)
	return err == nil && 2*n > len(s.Diskful)
}

// wanted is the setting of R that LINSTOR shows.
func (r Resource) wanted(quorum string) Setting {
	s := Setting{Quorum: quorum}
	for _, replica := range r.Replicas {
		switch {
		case replica.Gone, replica.Client:
		case replica.Diskless:
			s.Diskless = append(s.Diskless, replica.Node)
		default:
			s.Diskful = append(s.Diskful, replica.Node)
		}
	}
	slices.Sort(s.Diskful)
	slices.Sort(s.Diskless)
	return s
}
