package linstorsim

import (
	"maps"
	"slices"
	"time"
)

// SetOperator lets a Piraeus Operator look at the nodes at an interval, beside LINSTOR: it restores each ONLINE node that is flagged
// EVACUATE or EVICTED, whoever wanted that. A real one looks about once a minute. 0 ends it.
func (s *Server) SetOperator(interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operators++
	if interval > 0 {
		s.planOperator(interval, s.operators)
	}
}

// planOperator plans the operator's next look. It is called with the lock held.
func (s *Server) planOperator(interval time.Duration, number int) {
	time.AfterFunc(interval, func() {
		s.mu.Lock()
		if s.closed || s.operators != number {
			s.mu.Unlock()
			return
		}
		flagged := s.flaggedNodes()
		s.planOperator(interval, number)
		s.mu.Unlock()
		for _, name := range flagged {
			// A node that has gone meanwhile needs no operator.
			_ = s.RestoreNode(name)
		}
	})
}

// flaggedNodes are the nodes that the operator restores; none while LINSTOR does not answer.
func (s *Server) flaggedNodes() (names []string) {
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		if n := s.nodes[key]; !s.down && n.status == Online && (n.has(FlagEvacuate) || n.has(FlagEvicted)) {
			names = append(names, n.name)
		}
	}
	return names
}
