package linstorsim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// LoseNode makes LINSTOR forget a node with all its resources, as "linstor node lost" does. The node itself goes on: its
// DRBD has the replicas, may be open and may write. It fails with [ErrNodeOnline] while the satellite is ONLINE.
// [Server.AddNode] makes the node known again, without resources.
func (s *Server) LoseNode(nodeName string) error {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	switch {
	case n == nil:
		s.mu.Unlock()
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	case n.status == Online:
		s.mu.Unlock()
		return fmt.Errorf("losing node %s: %w", nodeName, ErrNodeOnline)
	}
	var touched []string
	s.eachOn(n, func(d *definition, _ *resource) {
		delete(d.resources, fold(n.name))
		if d.tieBreaker() == nil {
			s.automatics(d)
		} else {
			// A real LINSTOR lets the tie-breaker of a single disk be.
			s.updateQuorum(d)
		}
		touched = append(touched, d.name)
	})
	s.dropCopies(n)
	s.dismiss(n)
	s.mu.Unlock()
	for _, name := range touched {
		s.send(name)
	}
	return nil
}

// dismiss makes a node one that LINSTOR does not know.
func (s *Server) dismiss(n *node) {
	n.settle()
	n.hangUp()
	n.attempt++
	n.stranger, n.evicted, n.connected, n.status = true, false, false, Offline
	delete(s.nodes, fold(n.name))
	s.strangers[fold(n.name)] = n
}

// recall makes LINSTOR know a node that it does not know.
func (s *Server) recall(n *node) {
	delete(s.strangers, fold(n.name))
	s.nodes[fold(n.name)] = n
	n.stranger, n.flags, n.props, n.lost = false, nil, map[string]string{}, time.Now()
	n.uuid = s.newUUID("node", n.name)
}

// Snapshot is what LINSTOR's database held at one moment.
type Snapshot struct {
	props       map[string]string
	groups      map[string]map[string]string
	placements  map[string]Placement
	nodes       map[string]node
	definitions map[string]*definition
}

// Snapshot copies LINSTOR's database.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := &Snapshot{
		props: maps.Clone(s.props), groups: map[string]map[string]string{}, placements: maps.Clone(s.placements),
		nodes: map[string]node{}, definitions: map[string]*definition{},
	}
	for name, props := range s.groups {
		all.groups[name] = maps.Clone(props)
	}
	for key, n := range s.nodes {
		all.nodes[key] = node{name: n.name, uuid: n.uuid, flags: slices.Clone(n.flags), props: maps.Clone(n.props), evicted: n.evicted}
	}
	for key, d := range s.definitions {
		all.definitions[key] = d.copied(func(n *node) *node { return n })
	}
	return all
}

// copied copies a definition as the database has it: without what satellites have reported or been sent.
func (d *definition) copied(nodeOf func(*node) *node) *definition {
	c := *d
	c.props, c.flags = maps.Clone(d.props), slices.Clone(d.flags)
	c.plain, c.withVolumes = kept{}, kept{}
	c.snapshots = d.copiedSnapshots(nodeOf)
	c.resources = map[string]*resource{}
	for key, rsc := range d.resources {
		c.resources[key] = &resource{
			node: nodeOf(rsc.node), props: maps.Clone(rsc.props), flags: slices.Clone(rsc.flags), id: rsc.id, client: rsc.client,
			created: rsc.created, uuid: rsc.uuid,
		}
	}
	return &c
}

// RestoreDatabase gives LINSTOR an earlier database and starts the controller anew. All satellites connect again and
// adjust to what it wants. Replicas that it does not know stay as they are, but their peers give up the connection;
// replicas that are gone are made again, without data.
func (s *Server) RestoreDatabase(snapshot *Snapshot) {
	s.Stop()
	s.mu.Lock()
	s.props = maps.Clone(snapshot.props)
	s.placements = maps.Clone(snapshot.placements)
	s.groups = map[string]map[string]string{}
	for name, props := range snapshot.groups {
		s.groups[name] = maps.Clone(props)
	}
	for _, n := range slices.Collect(maps.Values(s.nodes)) {
		s.dismiss(n)
	}
	for key, saved := range snapshot.nodes {
		n := s.strangers[key]
		s.recall(n)
		n.uuid, n.flags, n.props, n.evicted = saved.uuid, slices.Clone(saved.flags), maps.Clone(saved.props), saved.evicted
	}
	s.definitions = map[string]*definition{}
	for key, d := range snapshot.definitions {
		s.definitions[key] = d.copied(func(n *node) *node { return s.nodes[fold(n.name)] })
	}
	s.mu.Unlock()
	s.Restart()
}

// Evict lets LINSTOR give up a node that is not ONLINE: its replicas are INACTIVE, no peer has a connection to them any
// more, and another node gets the disk that it had, the tie-breaker's first of all. LINSTOR does not talk to the node until
// [Server.RestoreNode].
func (s *Server) Evict(nodeName string) error {
	s.mu.Lock()
	n := s.nodes[fold(nodeName)]
	switch {
	case n == nil:
		s.mu.Unlock()
		return fmt.Errorf("node %s: %w", nodeName, ErrNotFound)
	case n.status == Online:
		s.mu.Unlock()
		return fmt.Errorf("evicting node %s: %w", nodeName, ErrNodeOnline)
	}
	n.flags, n.evicted = []string{FlagDelete, FlagEvicted}, true
	var touched []string
	var replaced []func()
	s.eachOn(n, func(d *definition, rsc *resource) {
		diskful := !rsc.has(FlagDiskless)
		rsc.flags = append(slices.DeleteFunc(slices.Clone(rsc.flags), func(flag string) bool {
			return flag == FlagDelete || flag == FlagDRBDDelete
		}), FlagInactive, FlagEvicted)
		if diskful && d.drbd() { // nothing takes the place of a tie-breaker (recording 23)
			s.replace(d)
			replaced = append(replaced, func() { s.secondCommit(d, rsc, func() { s.automatics(d) }) })
		}
		touched = append(touched, d.name)
	})
	s.mu.Unlock()
	for _, name := range touched {
		s.send(name)
	}
	for _, commit := range replaced {
		commit()
	}
	return nil
}

// replace gives a definition one more disk, and returns its replica, or nil where no node can take it: the tie-breaker's node is the
// first choice.
func (s *Server) replace(d *definition) *resource {
	if tieBreaker := d.tieBreaker(); tieBreaker != nil && tieBreaker.node.listens() {
		tieBreaker.shape(drbd.ReplicaSpec{})
		return tieBreaker
	}
	n := s.freeNode(d)
	if n == nil {
		return nil
	}
	s.add(d, n, drbd.ReplicaSpec{})
	return d.resources[fold(n.name)]
}
