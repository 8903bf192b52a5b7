package linstorsim

import (
	"slices"
	"strings"
	"time"
)

// move is a disk that goes from one replica of a definition to another: LINSTOR waits in the background until the target is UpToDate, then
// until the source is not in use, and deletes the source. It does not look at the target again. The wait is in the controller's memory:
// what a person asks for meanwhile does not end it, a satellite that disconnects or the end of the controller does.
type move struct {
	d        *definition
	from, to *resource
	// arrived is set once the target has been UpToDate.
	arrived bool
}

// waitForMove begins to wait, if LINSTOR hears both ends.
func (s *Server) waitForMove(d *definition, from, to *resource) {
	if from.node.connected && to.node.connected {
		s.moves = append(s.moves, &move{d: d, from: from, to: to})
	}
}

// Moves returns the nodes from which LINSTOR is going to delete a disk of the resource, or says that it may be: the source of each move that it has in
// mind, and if noted of those, too, that it has noted and may have forgotten.
func (s *Server) Moves(resourceName string, noted bool) (sources []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.moves {
		if fold(m.d.name) == fold(resourceName) {
			sources = append(sources, m.from.node.name)
		}
	}
	d := s.definitions[fold(resourceName)]
	if !noted || d == nil {
		return sources
	}
	for _, r := range d.resources {
		if source := d.resources[fold(r.props[PropMigrateFrom])]; source != nil {
			sources = append(sources, source.node.name)
		}
	}
	return sources
}

// resumeMove begins to wait for a replica that has got a disk, if it says where that comes from. LINSTOR does not wonder about one that
// comes from itself.
func (s *Server) resumeMove(d *definition, to *resource) {
	source := to.props[PropMigrateFrom]
	if from := d.resources[fold(source)]; source != "" && from != nil && strings.EqualFold(from.node.name, source) {
		s.waitForMove(d, from, to)
	}
}

// completeMoves deletes the replicas of a resource whose disks have moved, if nobody uses them.
func (s *Server) completeMoves(resourceName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves = slices.DeleteFunc(s.moves, func(m *move) bool {
		if fold(m.d.name) != fold(resourceName) {
			return false
		}
		m.arrived = m.arrived || m.to.values.upToDate()
		if !m.arrived || m.from.values == nil || m.from.values.usedNow() {
			return false
		}
		// Deleting it needs the lock free.
		time.AfterFunc(max(s.options.CommitDelay, 0), func() { s.completeMove(m) })
		return true
	})
}

// completeMove deletes the old replica, if it is still there.
func (s *Server) completeMove(m *move) {
	s.mu.Lock()
	there := !s.closed && !s.down && s.definitions[fold(m.d.name)] == m.d && m.d.resources[fold(m.from.node.name)] == m.from
	if there && m.to != m.from {
		delete(m.to.props, PropMigrateFrom)
	}
	s.mu.Unlock()
	if there {
		s.deleteOrRefuse(m.d, m.from, new(answers))
	}
}

// endMoves ends the wait for disks that move from a node or to it: LINSTOR does not take it up again.
func (s *Server) endMoves(n *node) {
	s.moves = slices.DeleteFunc(s.moves, func(m *move) bool { return m.from.node == n || m.to.node == n })
}
