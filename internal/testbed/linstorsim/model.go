package linstorsim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
)

// Errors of the operations on LINSTOR's objects; each is wrapped with the object.
var (
	// ErrNotFound says that LINSTOR knows no such object.
	ErrNotFound = errors.New("not found in LINSTOR")
	// ErrNodeOffline says that the node's satellite is not ONLINE.
	ErrNodeOffline = errors.New("satellite is not ONLINE")
)

// Flags of resources and nodes, as REST names them.
const (
	FlagDelete       = "DELETE"
	FlagDRBDDelete   = "DRBD_DELETE"
	FlagDiskless     = "DISKLESS"
	FlagDRBDDiskless = "DRBD_DISKLESS"
	FlagTieBreaker   = "TIE_BREAKER"
	FlagEvicted      = "EVICTED"
	FlagEvacuate     = "EVACUATE"
	FlagInactive     = "INACTIVE"
)

// definition is a resource definition with its resources. Only props, flags and resources change, see [kept].
type definition struct {
	name, externalName, group string
	props                     map[string]string
	flags                     []string
	volumes                   int
	layers                    []string
	port                      int
	created                   time.Time
	resources                 map[string]*resource

	uuid, secret       string
	plain, withVolumes kept
}

func (d *definition) drbd() bool { return d.layers[0] == LayerDRBD }

// resource is one replica as the controller knows it. Of what REST tells, only props, flags and values change, see
// [kept].
type resource struct {
	node    *node
	props   map[string]string
	flags   []string
	id      int
	client  bool
	created time.Time
	values  *values
	// fresh is set until the first report: a new DRBD resource may not be promoted for a moment.
	fresh bool

	uuid           string
	inList, inView kept
}

func (rsc *resource) has(flag string) bool { return slices.Contains(rsc.flags, flag) }

// Layers of a resource definition.
const (
	LayerDRBD    = "DRBD"
	LayerStorage = "STORAGE"
)

// ResourceSpec describes a resource definition with its resources. The DRBD options of the embedded spec become
// properties of the definition.
type ResourceSpec struct {
	// Spec is the DRBD resource. An empty Quorum leaves it to LINSTOR: majority where the replicas allow a
	// quorum to be kept, else off; a value set on the group or the controller goes first.
	drbd.Spec
	// Group is the resource group, created if it does not exist. Empty means [DefaultGroup].
	Group string
	// ExternalName is the definition's external name.
	ExternalName string
	// Props are further properties of the definition.
	Props map[string]string
	// VolumeLess makes a definition without volumes. DRBD knows nothing of it.
	VolumeLess bool
	// StorageOnly makes a resource without a DRBD layer.
	StorageOnly bool
}

// CreateResource creates a resource definition, its resources and the DRBD resource. All nodes must have been
// added; whether their satellites are ONLINE makes no difference.
func (s *Server) CreateResource(spec ResourceSpec) error {
	inDRBD := !spec.VolumeLess && !spec.StorageOnly
	s.mu.Lock()
	d, err := s.define(spec)
	if err == nil {
		s.updateQuorum(d)
	}
	s.mu.Unlock()
	if err != nil || !inDRBD {
		return err
	}
	s.mu.Lock()
	spec.Quorum = ""
	spec.Options = maps.Clone(spec.Options)
	if spec.Options == nil {
		spec.Options = map[string]string{}
	}
	for key, option := range drbdOptions {
		// What differs between nodes is adjusted below.
		if value := s.effective(d, nil, key); value != "" {
			spec.Options[option] = value
		}
	}
	s.mu.Unlock()
	if err := s.cluster.CreateResource(spec.Spec); err != nil {
		s.mu.Lock()
		delete(s.definitions, fold(spec.Name))
		s.mu.Unlock()
		return fmt.Errorf("creating DRBD resource: %w", err)
	}
	s.adjustDefinition(spec.Name)
	return nil
}

// define adds the LINSTOR objects of a spec.
func (s *Server) define(spec ResourceSpec) (*definition, error) {
	if s.definitions[fold(spec.Name)] != nil {
		return nil, fmt.Errorf("resource definition %s: %w", spec.Name, drbd.ErrExists)
	}
	d := &definition{
		name: spec.Name, externalName: spec.ExternalName, group: spec.Group,
		props:   maps.Clone(spec.Props),
		volumes: max(spec.Volumes, 1), layers: []string{LayerDRBD, LayerStorage},
		port: s.nextPort(), created: time.Now(), resources: map[string]*resource{},
		uuid: uuidOf("definition", spec.Name), secret: uuidOf("secret", spec.Name),
	}
	if d.props == nil {
		d.props = map[string]string{}
	}
	if d.group == "" {
		d.group = DefaultGroup
	}
	if spec.VolumeLess {
		d.volumes = 0
	}
	if spec.StorageOnly {
		d.layers = []string{LayerStorage}
	}
	for key, option := range drbdOptions {
		if value := spec.Options[option]; value != "" {
			d.props[key] = value
		}
	}
	if spec.Quorum != "" {
		d.props[PropQuorum], d.props[propQuorumSetBy] = spec.Quorum, "user"
	}
	for _, rs := range spec.Replicas {
		n := s.nodes[fold(rs.Node)]
		if n == nil {
			return nil, fmt.Errorf("node %s: %w", rs.Node, ErrNotFound)
		}
		d.add(n, rs)
	}
	if s.groups[d.group] == nil {
		s.groups[d.group] = map[string]string{}
	}
	s.definitions[fold(spec.Name)] = d
	return d, nil
}

// add adds a resource to a definition.
func (d *definition) add(n *node, rs drbd.ReplicaSpec) {
	rsc := &resource{
		node: n, id: d.freeID(), client: rs.Client, created: time.Now(), fresh: true,
		props: map[string]string{"StorPoolName": "thin"}, uuid: uuidOf("resource", d.name, n.name),
	}
	switch {
	case rs.TieBreaker:
		rsc.flags = []string{FlagDiskless, FlagDRBDDiskless, FlagTieBreaker}
	case rs.Diskless || rs.Client:
		rsc.flags = []string{FlagDiskless, FlagDRBDDiskless}
	}
	if len(rsc.flags) > 0 {
		rsc.props["StorPoolName"] = "DfltDisklessStorPool"
	}
	d.resources[fold(n.name)] = rsc
}

// freeID returns the lowest DRBD node id that no resource has.
func (d *definition) freeID() int {
	used := map[int]bool{}
	for _, rsc := range d.resources {
		used[rsc.id] = true
	}
	id := 0
	for used[id] {
		id++
	}
	return id
}

// MakeAvailable makes a volume usable on a node, as the CSI driver's attach does: where there is no replica, a
// diskless one is created. It fails with [ErrNodeOffline] unless the node is ONLINE.
func (s *Server) MakeAvailable(resourceName, nodeName string) error {
	s.mu.Lock()
	d, n := s.definitions[fold(resourceName)], s.nodes[fold(nodeName)]
	if d == nil || n == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource definition %s, node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	if n.status != Online {
		s.mu.Unlock()
		return fmt.Errorf("making %s available on node %s: %w", resourceName, nodeName, ErrNodeOffline)
	}
	if rsc := d.resources[fold(nodeName)]; rsc != nil {
		rsc.flags = slices.DeleteFunc(rsc.flags, func(flag string) bool {
			return flag == FlagTieBreaker || flag == FlagDelete || flag == FlagDRBDDelete
		})
		s.mu.Unlock()
		return nil
	}
	spec := drbd.ReplicaSpec{Node: n.name, Diskless: true}
	d.add(n, spec)
	s.updateQuorum(d)
	s.mu.Unlock()
	if err := s.cluster.AddReplica(d.name, spec); err != nil {
		return fmt.Errorf("making %s available on node %s: %w", resourceName, nodeName, err)
	}
	s.adjustDefinition(d.name)
	return nil
}

// AddReplica adds a diskful or diskless resource to a definition; the node's satellite must be ONLINE.
func (s *Server) AddReplica(resourceName string, spec drbd.ReplicaSpec) error {
	s.mu.Lock()
	d, n := s.definitions[fold(resourceName)], s.nodes[fold(spec.Node)]
	switch {
	case d == nil || n == nil:
		s.mu.Unlock()
		return fmt.Errorf("resource definition %s, node %s: %w", resourceName, spec.Node, ErrNotFound)
	case n.status != Online:
		s.mu.Unlock()
		return fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, ErrNodeOffline)
	case d.resources[fold(spec.Node)] != nil:
		s.mu.Unlock()
		return fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, drbd.ErrExists)
	}
	spec.Node = n.name
	d.add(n, spec)
	s.updateQuorum(d)
	s.mu.Unlock()
	if err := s.cluster.AddReplica(d.name, spec); err != nil {
		return fmt.Errorf("adding %s on node %s: %w", resourceName, spec.Node, err)
	}
	s.adjustDefinition(d.name)
	return nil
}

// RemoveReplica deletes a resource, as the CSI driver's detach does with a diskless one. While the satellite is
// away, the resource only gets the flag DELETE and goes when the satellite is back. It fails with an error that
// wraps [drbd.ErrInUse] (LINSTOR's FAIL_IN_USE) while the device is open.
func (s *Server) RemoveReplica(resourceName, nodeName string) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil || d.resources[fold(nodeName)] == nil {
		s.mu.Unlock()
		return fmt.Errorf("resource %s on node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	rsc := d.resources[fold(nodeName)]
	if !rsc.node.reports() {
		for _, flag := range []string{FlagDelete, FlagDRBDDelete} {
			if !rsc.has(flag) {
				rsc.flags = append(rsc.flags, flag)
			}
		}
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return s.forget(d, rsc)
}

// forget deletes a resource from DRBD and then from LINSTOR, and tells so if its value was known.
func (s *Server) forget(d *definition, rsc *resource) error {
	if err := s.cluster.DeleteReplica(d.name, rsc.node.name); err != nil && !errors.Is(err, drbd.ErrNotFound) {
		return fmt.Errorf("deleting resource: %w", err)
	}
	s.mu.Lock()
	s.store(d, rsc, nil)
	delete(d.resources, fold(rsc.node.name))
	s.updateQuorum(d)
	s.mu.Unlock()
	s.adjustDefinition(d.name)
	return nil
}

// DeleteResource deletes a resource definition with all its resources, at once even where satellites are away.
// It fails with an error that wraps [drbd.ErrInUse] while the device is open anywhere.
func (s *Server) DeleteResource(resourceName string) error {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	s.mu.Unlock()
	if d == nil {
		return fmt.Errorf("resource definition %s: %w", resourceName, ErrNotFound)
	}
	if err := s.cluster.DeleteResource(d.name); err != nil && !errors.Is(err, drbd.ErrNotFound) {
		return fmt.Errorf("deleting resource definition: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		s.store(d, d.resources[name], nil)
	}
	delete(s.definitions, fold(resourceName))
	return nil
}

// ReplicaNodes returns the names of the nodes with a resource of a definition, sorted.
func (s *Server) ReplicaNodes(resourceName string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	if d := s.definitions[fold(resourceName)]; d != nil {
		for _, rsc := range d.resources {
			names = append(names, rsc.node.name)
		}
	}
	slices.Sort(names)
	return names
}

// SetNodeFlags replaces a node's flags, such as [FlagEvicted] (which implies [FlagDelete]) or [FlagEvacuate].
func (s *Server) SetNodeFlags(nodeName string, flags ...string) {
	s.onNode(nodeName, func(n *node) { n.flags = flags })
}

// SetResourceFlags replaces the flags of a resource.
func (s *Server) SetResourceFlags(resourceName, nodeName string, flags ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[fold(resourceName)]; d != nil && d.resources[fold(nodeName)] != nil {
		d.resources[fold(nodeName)].flags = flags
	}
}

// firstPort is the first TCP port that LINSTOR gives to DRBD.
const firstPort = 7000

// nextPort returns the port of a new definition; it stays the definition's own when others go.
func (s *Server) nextPort() int {
	s.ports++
	return firstPort + s.ports - 1
}
