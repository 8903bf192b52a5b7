package linstorsim

import (
	"maps"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// automatics lets LINSTOR add or remove a tie-breaker and set the quorum of a definition, in the commit of whatever the
// caller has changed. It tells whether the replicas have changed. The caller sends the definition.
func (s *Server) automatics(d *definition) (replicasChanged bool) {
	if s.options.TieBreakers && d.drbd() && d.volumes > 0 {
		replicasChanged = s.updateTieBreaker(d)
	}
	s.updateQuorum(d)
	return replicasChanged
}

func (s *Server) updateTieBreaker(d *definition) (changed bool) {
	present := d.tieBreaker()
	diskful, _, others := d.voters()
	wanted := s.wantsTieBreaker(d, diskful, others)
	switch {
	case wanted && present == nil:
		n := s.freeNode(d)
		if n != nil {
			s.add(d, n, drbd.ReplicaSpec{TieBreaker: true})
		}
		return n != nil
	case !wanted && present != nil && present.node.listens():
		present.markDeleted()
		present.surplus = true
		return true
	}
	return false
}

// wantsTieBreaker tells whether LINSTOR wants a tie-breaker beside so many disks and so many other diskless resources
// that vote.
func (s *Server) wantsTieBreaker(d *definition, diskful, others int) bool {
	quorum := s.usersQuorum(d)
	return strings.EqualFold(s.effective(d, nil, PropAutoTieBreaker), "true") && (quorum == "" || quorum == drbd.QuorumMajority) &&
		diskful >= 2 && diskful%2 == 0 && others == 0
}

// keepsAsTieBreaker tells whether LINSTOR makes a tie-breaker of a resource that is to be deleted.
func (s *Server) keepsAsTieBreaker(d *definition, rsc *resource) bool {
	diskful, _, others := d.voters()
	return s.options.TieBreakers && d.drbd() && d.volumes > 0 && !rsc.has(FlagDiskless) && !rsc.leaves() &&
		d.tieBreaker() == nil && s.wantsTieBreaker(d, diskful-1, others)
}

// becomesTieBreaker tells whether LINSTOR makes a tie-breaker of a diskless resource that is to be deleted.
func (s *Server) becomesTieBreaker(d *definition, rsc *resource) bool {
	diskful, _, others := d.voters()
	return d.drbd() && d.volumes > 0 && rsc.has(FlagDiskless) && !rsc.client && !rsc.leaves() &&
		d.tieBreaker() == nil && s.wantsTieBreaker(d, diskful, others-1)
}

// voters counts the resources with a disk, those without one, and among these the ones that vote and are no tie-breakers.
func (d *definition) voters() (diskful, diskless, others int) {
	for _, rsc := range d.resources {
		switch {
		case rsc.leaves():
		case !rsc.has(FlagDiskless):
			diskful++
		default:
			diskless++
			if !rsc.has(FlagTieBreaker) && !rsc.client {
				others++
			}
		}
	}
	return diskful, diskless, others
}

func (d *definition) tieBreaker() *resource {
	for _, key := range slices.Sorted(maps.Keys(d.resources)) {
		if rsc := d.resources[key]; rsc.has(FlagTieBreaker) && !rsc.leaves() {
			return rsc
		}
	}
	return nil
}

// freeNode returns the first node that can take a resource of the definition.
func (s *Server) freeNode(d *definition) *node {
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[key]
		if d.resources[key] == nil && n.listens() && !slices.Contains(n.flags, FlagEvacuate) && !slices.Contains(n.flags, FlagEvicted) {
			return n
		}
	}
	return nil
}
