package linstorsim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// PropCopySnapshots of a node or the controller keeps an evacuation from moving snapshots while it is false.
const PropCopySnapshots = "CopyAllSnapsOnEvacuate"

// volumeSnapshot is a snapshot of a definition with its copies, by node. A copy stays when the replica beside it goes.
type volumeSnapshot struct {
	name   string
	uuid   string
	copies map[string]*snapshotCopy
}

type snapshotCopy struct {
	node    *node
	uuid    string
	created time.Time
}

// shipment is a snapshot on its way from one node to another. Like the wait for a [move] it is in the controller's memory only.
type shipment struct {
	d        *definition
	snapshot *volumeSnapshot
	from, to *node
}

// TakeSnapshot makes a snapshot of a resource on all nodes that have a disk of it and are ONLINE. It fails with an error that wraps
// [drbd.ErrExists] where there is one of that name.
func (s *Server) TakeSnapshot(resourceName, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.definitions[fold(resourceName)]
	switch {
	case d == nil:
		return fmt.Errorf("resource definition %s: %w", resourceName, ErrNotFound)
	case d.snapshot(name) != nil:
		return fmt.Errorf("snapshot %s of %s: %w", name, resourceName, drbd.ErrExists)
	}
	snapshot := &volumeSnapshot{name: name, uuid: s.newUUID("snapshot", d.name, name), copies: map[string]*snapshotCopy{}}
	for key, rsc := range d.resources {
		if !rsc.has(FlagDiskless) && !rsc.leaves() && !rsc.node.has(FlagEvacuate) && rsc.node.listens() {
			snapshot.copies[key] = s.newCopy(d, snapshot, rsc.node)
		}
	}
	d.snapshots = append(d.snapshots, snapshot)
	return nil
}

func (s *Server) newCopy(d *definition, snapshot *volumeSnapshot, n *node) *snapshotCopy {
	return &snapshotCopy{node: n, uuid: s.newUUID("snapshot", d.name, snapshot.name, n.name), created: time.Now()}
}

// SnapshotNodes returns the names of the nodes with a copy of a snapshot, sorted.
func (s *Server) SnapshotNodes(resourceName, name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[fold(resourceName)]; d != nil {
		if snapshot := d.snapshot(name); snapshot != nil {
			return snapshot.nodeNames()
		}
	}
	return nil
}

func (d *definition) snapshot(name string) *volumeSnapshot {
	for _, snapshot := range d.snapshots {
		if fold(snapshot.name) == fold(name) {
			return snapshot
		}
	}
	return nil
}

func (v *volumeSnapshot) nodeNames() (names []string) {
	for _, key := range slices.Sorted(maps.Keys(v.copies)) {
		names = append(names, v.copies[key].node.name)
	}
	return names
}

// snapshotsOn are the snapshots of a definition with a copy on a node.
func (d *definition) snapshotsOn(n *node) (list []*volumeSnapshot) {
	for _, snapshot := range d.snapshots {
		if snapshot.copies[fold(n.name)] != nil {
			list = append(list, snapshot)
		}
	}
	return list
}

// movesSnapshots tells whether an evacuation of a node moves its snapshots: by default since LINSTOR 1.33.
func (s *Server) movesSnapshots(n *node) bool {
	value, set := n.props[PropCopySnapshots]
	if !set {
		value, set = s.props[PropCopySnapshots]
	}
	return !s.before133() && (!set || strings.EqualFold(value, "true"))
}

// moveSnapshots ships the snapshots of a definition from a node that is evacuated to another, and deletes them there when they have
// arrived. Those of which there are enough others stay where they are.
func (s *Server) moveSnapshots(d *definition, n *node, allowed []string, list *answers) {
	for _, snapshot := range d.snapshotsOn(n) {
		target := s.evacuationTarget(d, allowed)
		if target == nil || snapshot.copies[fold(target.name)] != nil {
			target = d.diskWithout(snapshot)
		}
		others := len(snapshot.copies) - 1
		switch {
		case target == nil:
			list.say(maskWarn|codeNotEvacuating, d.name, "", fmt.Sprintf(
				"Snapshot '%s' of resource %s cannot be evacuated as no available storage pool was found", snapshot.name, d.name))
		case others == 0 || others < s.placementOf(d.group).PlaceCount:
			s.ship(d, snapshot, n, target)
		}
	}
}

// diskWithout returns the first node that has a disk of a definition and no copy of a snapshot.
func (d *definition) diskWithout(snapshot *volumeSnapshot) *node {
	for _, key := range slices.Sorted(maps.Keys(d.resources)) {
		rsc := d.resources[key]
		if snapshot.copies[key] == nil && !rsc.has(FlagDiskless) && !rsc.leaves() && !rsc.isLeaving() && rsc.node.connected {
			return rsc.node
		}
	}
	return nil
}

// ship sends a snapshot to another node, at the [Options.ShipRate]. The old copy goes when the new one is there. Nothing is shipped while
// one of the satellites is away, and nothing is sent twice.
func (s *Server) ship(d *definition, snapshot *volumeSnapshot, from, to *node) {
	underway := slices.ContainsFunc(s.shipments, func(one *shipment) bool { return one.snapshot == snapshot && one.from == from })
	if underway || !from.connected || !to.connected {
		return
	}
	sent := &shipment{d: d, snapshot: snapshot, from: from, to: to}
	s.shipments = append(s.shipments, sent)
	var takes time.Duration
	if s.options.ShipRate > 0 {
		takes = time.Duration(float64(d.totalKiB()) / float64(s.options.ShipRate) * float64(time.Second))
	}
	s.later(takes, func() {
		current := slices.Contains(s.shipments, sent) && s.definitions[fold(d.name)] == d
		s.shipments = slices.DeleteFunc(s.shipments, func(one *shipment) bool { return one == sent })
		if current {
			snapshot.copies[fold(to.name)] = s.newCopy(d, snapshot, to)
			delete(snapshot.copies, fold(from.name))
		}
	})
}

// endShipments ends the shipments from a node or to it.
func (s *Server) endShipments(n *node) {
	s.shipments = slices.DeleteFunc(s.shipments, func(one *shipment) bool { return one.from == n || one.to == n })
}

// dropCopies forgets the copies of all snapshots on a node, and snapshots that have no other.
func (s *Server) dropCopies(n *node) {
	for _, d := range s.definitions {
		d.snapshots = slices.DeleteFunc(d.snapshots, func(snapshot *volumeSnapshot) bool {
			delete(snapshot.copies, fold(n.name))
			return len(snapshot.copies) == 0
		})
	}
}

// copiedSnapshots are the snapshots of a definition as the database has them.
func (d *definition) copiedSnapshots(nodeOf func(*node) *node) (list []*volumeSnapshot) {
	for _, snapshot := range d.snapshots {
		c := &volumeSnapshot{name: snapshot.name, uuid: snapshot.uuid, copies: map[string]*snapshotCopy{}}
		for key, one := range snapshot.copies {
			c.copies[key] = &snapshotCopy{node: nodeOf(one.node), uuid: one.uuid, created: one.created}
		}
		list = append(list, c)
	}
	return list
}

type snapshotJSON struct {
	Name              string                 `json:"name,omitempty"`
	ResourceName      string                 `json:"resource_name,omitempty"`
	Nodes             []string               `json:"nodes,omitempty"`
	Flags             []string               `json:"flags,omitempty"`
	VolumeDefinitions []volumeDefinitionJSON `json:"volume_definitions,omitempty"`
	UUID              string                 `json:"uuid,omitempty"`
	Snapshots         []snapshotNodeJSON     `json:"snapshots,omitempty"`
}

type snapshotNodeJSON struct {
	SnapshotName    string `json:"snapshot_name,omitempty"`
	NodeName        string `json:"node_name,omitempty"`
	CreateTimestamp int64  `json:"create_timestamp"`
	UUID            string `json:"uuid,omitempty"`
}

// serveSnapshots answers with all snapshots that have a copy on one of the filter's nodes. A copy that is on its way is not shown.
func (s *Server) serveSnapshots(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	nodes := newFilter(query["nodes"])
	list := []snapshotJSON{}
	s.mu.Lock()
	for _, key := range newFilter(query["resources"]).keys(s.definitions) {
		d := s.definitions[key]
		for _, snapshot := range d.snapshots {
			if slices.ContainsFunc(snapshot.nodeNames(), nodes.passes) {
				list = append(list, s.renderSnapshot(d, snapshot))
			}
		}
	}
	s.mu.Unlock()
	answer(w, page(query, list))
}

func (s *Server) renderSnapshot(d *definition, snapshot *volumeSnapshot) snapshotJSON {
	out := snapshotJSON{
		Name: snapshot.name, ResourceName: d.name, Nodes: snapshot.nodeNames(), Flags: []string{"SUCCESSFUL"}, UUID: snapshot.uuid,
		VolumeDefinitions: s.definition(d, true).VolumeDefinitions,
	}
	for _, key := range slices.Sorted(maps.Keys(snapshot.copies)) {
		one := snapshot.copies[key]
		out.Snapshots = append(out.Snapshots, snapshotNodeJSON{
			SnapshotName: snapshot.name, NodeName: one.node.name, CreateTimestamp: one.created.UnixMilli(), UUID: one.uuid,
		})
	}
	return out
}
