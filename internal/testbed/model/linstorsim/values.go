package linstorsim

import (
	"maps"
	"slices"
	"strconv"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// changed is told by the cluster that a replica's state is different.
func (s *Server) changed(resourceName, nodeName string) {
	s.hear(resourceName, nodeName)
	s.completeMoves(resourceName)
}

func (s *Server) hear(resourceName, nodeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, d := s.nodes[fold(nodeName)], s.definitions[fold(resourceName)]
	if n == nil || d == nil || d.resources[fold(nodeName)] == nil || !n.reports() {
		return
	}
	s.report(d, d.resources[fold(nodeName)])
}

// reportAll stores the present state of everything on a node.
func (s *Server) reportAll(n *node) {
	if n.reports() {
		s.eachOn(n, s.report)
	}
}

// report stores the present state of one replica, as its satellite sends it.
func (s *Server) report(d *definition, rsc *resource) {
	state, ok := s.cluster.Replica(d.name, rsc.node.name)
	if !ok {
		s.store(d, rsc, nil)
		return
	}
	v := &values{
		inUse:       new(state.Role == drbd.Primary),
		mayPromote:  new(state.MayPromote),
		score:       new(state.Score),
		connections: state.Connections,
		disks:       state.DiskStates,
		syncs:       state.Syncs,
	}
	if rsc.node.partial {
		v.inUse, v.connections = nil, firstOf(state.Connections)
	}
	s.store(d, rsc, v)
}

// firstOf is the first one of a replica's connections.
func firstOf(connections map[string]string) map[string]string {
	for _, peer := range slices.Sorted(maps.Keys(connections)) {
		return map[string]string{peer: connections[peer]}
	}
	return nil
}

// store replaces what the controller knows of a replica, nil being nothing. If may promote changed, among true,
// false and unknown, every subscriber is told first; of a replica that has got a disk or lost it, also if it did not.
func (s *Server) store(d *definition, rsc *resource, v *values) {
	before, now := rsc.values.promotable(), v.promotable()
	if before != now || rsc.anew && v != nil {
		s.broadcast(eventText(d.name, rsc.node.name, v.mayPromoteOrNil()))
		rsc.anew = false
	}
	rsc.values = v
	if v != nil && v.inUse != nil && *v.inUse {
		// LINSTOR keeps a tie-breaker that somebody works on as an ordinary diskless resource.
		rsc.flags = slices.DeleteFunc(rsc.flags, func(flag string) bool { return flag == FlagTieBreaker })
	}
}

// eachOn calls f for every resource on a node, sorted by name.
func (s *Server) eachOn(n *node, f func(*definition, *resource)) {
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		if rsc := d.resources[fold(n.name)]; rsc != nil {
			f(d, rsc)
		}
	}
}

// values are what a satellite reported of one replica; nil pointers are unknown. A new report makes new ones: they
// never change, so that the same pointer means the same values.
type values struct {
	inUse       *bool
	mayPromote  *bool
	score       *int
	connections map[string]string
	disks       []string
	// syncs are the initial syncs that it takes part in, by peer.
	syncs map[string]drbd.Sync
}

func (v *values) mayPromoteOrNil() *bool {
	if v == nil {
		return nil
	}
	return v.mayPromote
}

// promotable is may promote as a comparable three-valued word.
func (v *values) promotable() string {
	p := v.mayPromoteOrNil()
	if p == nil {
		return "unknown"
	}
	return strconv.FormatBool(*p)
}
