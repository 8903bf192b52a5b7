package linstorsim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// MakeAvailable makes a volume usable on a node, as the CSI driver's attach does: where there is no replica, a
// diskless one is created. It fails with [ErrNodeOffline] unless the node is ONLINE.
//
// Where the node takes no new replicas it fails with [ErrNoTarget].
func (s *Server) MakeAvailable(resourceName, nodeName string) error {
	_, err := s.makeAvailable(resourceName, nodeName)
	return err
}

func (s *Server) makeAvailable(resourceName, nodeName string) (placing, error) {
	s.mu.Lock()
	d, n := s.definitions[fold(resourceName)], s.nodes[fold(nodeName)]
	if d == nil || n == nil || n.status != Online || d.resources[fold(nodeName)] == nil {
		refused := d != nil && n != nil && strings.EqualFold(n.props[PropAutoplaceTarget], "false")
		s.mu.Unlock()
		if refused {
			return placing{}, fmt.Errorf("making %s available on node %s: %w", resourceName, nodeName, ErrNoTarget)
		}
		return s.createDiskless(resourceName, nodeName)
	}
	rsc := d.resources[fold(nodeName)]
	deleted := rsc.leaves()
	rsc.flags = slices.DeleteFunc(slices.Clone(rsc.flags), func(flag string) bool {
		return flag == FlagTieBreaker || flag == FlagDelete || flag == FlagDRBDDelete
	})
	s.mu.Unlock()
	if deleted {
		return placing{outcome: s.send(d.name)}, nil
	}
	return placing{}, nil
}

// AddReplica adds a diskful or diskless resource to a definition; the node's satellite must be ONLINE.
func (s *Server) AddReplica(resourceName string, spec drbd.ReplicaSpec) error {
	return s.Place(resourceName, spec)
}

// Place adds resources to a definition in one commit, together with the quorum and the tie-breaker that LINSTOR makes of
// them, as auto-place does. The nodes' satellites must be ONLINE, and none may be evacuated. linstor-csi makes a new volume by creating the replica
// of the pod's node alone and then placing the rest.
func (s *Server) Place(resourceName string, specs ...drbd.ReplicaSpec) error {
	_, err := s.placeAndSend(resourceName, specs...)
	return err
}

func (s *Server) placeAndSend(resourceName string, specs ...drbd.ReplicaSpec) (outcome, error) {
	s.mu.Lock()
	d, err := s.place(resourceName, specs)
	s.mu.Unlock()
	if err != nil {
		return outcome{}, err
	}
	return s.send(d.name), nil
}

func (s *Server) place(resourceName string, specs []drbd.ReplicaSpec) (*definition, error) {
	d := s.definitions[fold(resourceName)]
	for _, spec := range specs {
		n := s.nodes[fold(spec.Node)]
		switch {
		case d == nil || n == nil:
			return nil, fmt.Errorf("resource definition %s, node %s: %w", resourceName, spec.Node, ErrNotFound)
		case n.status != Online:
			return nil, fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, ErrNodeOffline)
		case n.has(FlagEvacuate):
			return nil, fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, ErrEvacuating)
		case d.resources[fold(spec.Node)] != nil:
			return nil, fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, drbd.ErrExists)
		}
	}
	if d == nil {
		return nil, fmt.Errorf("resource definition %s: %w", resourceName, ErrNotFound)
	}
	for _, spec := range specs {
		first := len(d.resources) == 0
		s.add(d, s.nodes[fold(spec.Node)], spec)
		d.resources[fold(spec.Node)].first = first
	}
	s.automatics(d)
	return d, nil
}

// RemoveTemporary deletes a diskless resource, as the CSI driver's detach does: a tie-breaker stays, and where there is none and
// LINSTOR wants one, the resource becomes that, also on a node that is away.
func (s *Server) RemoveTemporary(resourceName, nodeName string) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	var rsc *resource
	if d != nil {
		rsc = d.resources[fold(nodeName)]
	}
	if rsc == nil || !rsc.has(FlagTieBreaker) && !s.becomesTieBreaker(d, rsc) {
		s.mu.Unlock()
		return s.RemoveReplica(resourceName, nodeName)
	}
	if state, ok := s.cluster.Replica(d.name, rsc.node.name); ok && state.Open+state.OpenReadOnly > 0 && rsc.node.listens() {
		s.mu.Unlock()
		return fmt.Errorf("deleting resource %s on node %s: %w", resourceName, nodeName, drbd.ErrInUse)
	}
	if !rsc.has(FlagTieBreaker) {
		rsc.flags = append(slices.Clone(rsc.flags), FlagTieBreaker)
		s.automatics(d)
	}
	s.mu.Unlock()
	s.send(d.name)
	return nil
}

// RemoveReplica deletes a resource, as a person does. While the satellite is away, the resource only gets the flag DELETE, with which its peers give up their connection to it, and goes when the
// satellite is back. Where [Options.TieBreakers] has LINSTOR want a tie-breaker instead of a disk, the disk goes and the
// resource stays. It fails with an error that wraps [drbd.ErrInUse] (LINSTOR's FAIL_IN_USE) while the device is open.
func (s *Server) RemoveReplica(resourceName, nodeName string) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil || d.resources[fold(nodeName)] == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource %s on node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	rsc := d.resources[fold(nodeName)]
	if s.options.TieBreakers && rsc.has(FlagTieBreaker) {
		// Whoever deletes a tie-breaker by hand wants none.
		d.props[PropAutoTieBreaker] = "False"
	}
	listens, keeps := rsc.node.listens(), s.keepsAsTieBreaker(d, rsc)
	if !listens {
		rsc.markDeleted()
	}
	s.mu.Unlock()
	switch {
	case !listens:
		s.send(d.name)
		return nil
	case keeps:
		return s.toggle(d, rsc, drbd.ReplicaSpec{TieBreaker: true})
	}
	return s.forget(d, rsc)
}

func (rsc *resource) markDeleted() {
	if !rsc.has(FlagDelete) {
		rsc.flags = append(slices.Clone(rsc.flags), FlagDelete)
	}
}

// forget lets a satellite delete a resource and its peers disconnect from it. A second commit deletes it from LINSTOR
// and changes the quorum.
func (s *Server) forget(d *definition, rsc *resource) error {
	s.mu.Lock()
	slow := s.adjustTime(rsc.node) > 0 && rsc.node.listens()
	if slow {
		s.takeTime(d, rsc, func() { _ = s.forgetNow(d, rsc) })
	}
	s.mu.Unlock()
	if slow {
		return nil
	}
	return s.forgetNow(d, rsc)
}

func (s *Server) forgetNow(d *definition, rsc *resource) error {
	if s.adjustFault(rsc.node.name, d.name) != AdjustWorks {
		return fmt.Errorf("deleting resource %s on node %s: %w", d.name, rsc.node.name, ErrAdjust)
	}
	if err := s.cluster.Down(d.name, rsc.node.name); err != nil && !errors.Is(err, drbd.ErrNotFound) {
		return fmt.Errorf("deleting resource: %w", err)
	}
	s.mu.Lock()
	rsc.markDeleted()
	s.store(d, rsc, nil)
	s.mu.Unlock()
	s.send(d.name)
	s.secondCommit(d, rsc, func() {
		// One that has been wanted again meanwhile stays.
		if rsc.leaves() {
			delete(d.resources, fold(rsc.node.name))
			s.automatics(d)
		}
	})
	return nil
}

// secondCommit changes a resource after the delay of a second commit, if it is still there, and sends the definition.
func (s *Server) secondCommit(d *definition, rsc *resource, change func()) {
	commit := func() {
		s.mu.Lock()
		current := !s.closed && s.definitions[fold(d.name)] == d && d.resources[fold(rsc.node.name)] == rsc
		if current {
			change()
		}
		s.mu.Unlock()
		if current {
			s.send(d.name)
		}
	}
	if s.options.CommitDelay <= 0 {
		commit()
		return
	}
	time.AfterFunc(s.options.CommitDelay, commit)
}

// ToggleDisk gives a diskless resource a disk, or takes the disk away. The node's satellite must be ONLINE.
func (s *Server) ToggleDisk(resourceName, nodeName string, diskful bool) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil || d.resources[fold(nodeName)] == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource %s on node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	rsc := d.resources[fold(nodeName)]
	online, done := rsc.node.status == Online, rsc.has(FlagDiskless) != diskful
	s.mu.Unlock()
	switch {
	case !online:
		return fmt.Errorf("toggling the disk of %s on node %s: %w", resourceName, nodeName, ErrNodeOffline)
	case done:
		return nil
	}
	return s.toggle(d, rsc, drbd.ReplicaSpec{Diskless: !diskful})
}

// toggle gives a resource another shape: a disk at once, no disk in a second commit.
func (s *Server) toggle(d *definition, rsc *resource, shape drbd.ReplicaSpec) error {
	change := func() {
		rsc.shape(shape)
		s.automatics(d)
	}
	if !shape.Diskless && !shape.TieBreaker {
		s.mu.Lock()
		change()
		s.mu.Unlock()
		s.send(d.name)
		return nil
	}
	if state, ok := s.cluster.Replica(d.name, rsc.node.name); ok && state.Open > 0 {
		return fmt.Errorf("removing the disk of %s on node %s: %w", d.name, rsc.node.name, drbd.ErrInUse)
	}
	s.mu.Lock()
	rsc.flags = append(slices.Clone(rsc.flags), FlagDiskRemove)
	s.mu.Unlock()
	s.secondCommit(d, rsc, change)
	return nil
}

// DeleteResource deletes a resource definition with all its resources, at once even where satellites are away.
// It fails with an error that wraps [drbd.ErrInUse] while the device is open anywhere that LINSTOR knows of.
func (s *Server) DeleteResource(resourceName string) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource definition %s: %w", resourceName, ErrNotFound)
	}
	var nodes []string
	for _, key := range slices.Sorted(maps.Keys(d.resources)) {
		nodes = append(nodes, d.resources[key].node.name)
	}
	s.mu.Unlock()
	for _, node := range nodes {
		if state, ok := s.cluster.Replica(d.name, node); ok && state.Open+state.OpenReadOnly > 0 {
			return fmt.Errorf("deleting resource definition %s, open on node %s: %w", d.name, node, drbd.ErrInUse)
		}
	}
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		s.store(d, d.resources[name], nil)
	}
	delete(s.definitions, fold(resourceName))
	s.mu.Unlock()
	for _, node := range nodes {
		if err := s.cluster.Down(d.name, node); err != nil && !errors.Is(err, drbd.ErrNotFound) {
			return fmt.Errorf("deleting resource definition: %w", err)
		}
	}
	return nil
}
