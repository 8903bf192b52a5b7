package linstorsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// move is a disk that goes from one replica of a definition to another.
type move struct {
	d        *definition
	from, to *resource
}

// Evacuate lets LINSTOR move the disks away from a node, which stays ONLINE: another node gets one, the tie-breaker's first of all, and
// when that is UpToDate the replica here is deleted. A replica without a disk is deleted at once. It fails with an error that wraps
// [drbd.ErrInUse], and moves nothing, while a volume is in use on the node. [Server.RestoreNode] takes the flags away.
func (s *Server) Evacuate(nodeName string) error {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	if n == nil {
		s.mu.Unlock()
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	}
	var moves []move
	inUse := ""
	s.eachOn(n, func(d *definition, rsc *resource) {
		if rsc.values.usedNow() {
			inUse = d.name
		}
		if d.drbd() && !rsc.leaves() {
			moves = append(moves, move{d: d, from: rsc})
		}
	})
	if inUse != "" {
		s.mu.Unlock()
		return fmt.Errorf("evacuating node %s: resource %s: %w", nodeName, inUse, drbd.ErrInUse)
	}
	n.flags = []string{FlagEvacuate}
	for i, m := range moves {
		m.from.flags = append(slices.Clone(m.from.flags), FlagEvacuate)
		if !m.from.has(FlagDiskless) {
			moves[i].to = s.replace(m.d)
		}
		s.automatics(m.d)
	}
	s.moves = append(s.moves, moves...)
	s.mu.Unlock()
	for _, m := range moves {
		s.send(m.d.name)
		s.completeMoves(m.d.name)
	}
	return nil
}

// completeMoves deletes the replicas of a resource whose disks have moved, if nobody uses them.
func (s *Server) completeMoves(resourceName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves = slices.DeleteFunc(s.moves, func(m move) bool {
		complete := fold(m.d.name) == fold(resourceName) && m.complete()
		if complete {
			// Deleting it needs the lock free.
			time.AfterFunc(max(s.options.CommitDelay, 0), func() { s.completeMove(m) })
		}
		return complete
	})
}

// complete tells whether the old replica is not needed any more.
func (m move) complete() bool {
	return !m.from.values.usedNow() && (m.from.has(FlagDiskless) || m.to != nil && m.to.values.upToDate())
}

// completeMove deletes the old replica, if it is still there. LINSTOR does not look at anything else again.
func (s *Server) completeMove(m move) {
	s.mu.Lock()
	there := !s.closed && !s.down && s.definitions[fold(m.d.name)] == m.d && m.d.resources[fold(m.from.node.name)] == m.from
	s.mu.Unlock()
	if there {
		_ = s.forget(m.d, m.from)
	}
}

// endMoves ends the wait for disks that move from a node or to it: LINSTOR does not take it up again.
func (s *Server) endMoves(n *node) {
	s.moves = slices.DeleteFunc(s.moves, func(m move) bool { return m.from.node == n || m.to != nil && m.to.node == n })
}

// usedNow tells whether a replica is known to be in use.
func (v *values) usedNow() bool { return v != nil && v.inUse != nil && *v.inUse }

// upToDate tells whether all disks of a replica are known to have the data.
func (v *values) upToDate() bool {
	return v != nil && len(v.disks) > 0 && !slices.ContainsFunc(v.disks, func(disk string) bool { return disk != drbd.UpToDate })
}
