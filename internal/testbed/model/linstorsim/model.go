package linstorsim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Errors of the operations on LINSTOR's objects; each is wrapped with the object.
var (
	// ErrNotFound says that LINSTOR knows no such object.
	ErrNotFound = errors.New("not found in LINSTOR")
	// ErrNodeOffline says that the node's satellite is not ONLINE.
	ErrNodeOffline = errors.New("satellite is not ONLINE")
	// ErrNodeOnline says that the node's satellite is ONLINE.
	ErrNodeOnline = errors.New("satellite is ONLINE")
	// ErrNoTarget says that the node takes no new replicas, see [PropAutoplaceTarget].
	ErrNoTarget = errors.New("node takes no new replicas")
	// ErrEvacuating says that the node is being evacuated and takes no new replicas, diskless ones included.
	ErrEvacuating = errors.New("node is being evacuated")
	// ErrRefused says that LINSTOR has answered with an error.
	ErrRefused = errors.New("refused by LINSTOR")
	// ErrAdjust says that a satellite could not do to DRBD what it was told.
	ErrAdjust = errors.New("satellite failed to adjust the DRBD resource")
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
	FlagDiskRemove   = "DISK_REMOVE_REQUESTED"
	FlagDiskAdd      = "DISK_ADD_REQUESTED"
)

// definition is a resource definition with its resources. Only props, flags and resources change, see [kept].
type definition struct {
	name, externalName, group string
	props                     map[string]string
	flags                     []string
	volumes                   int
	sizeKiB                   int64 // of each volume
	layers                    []string
	port                      int
	created                   time.Time
	resources                 map[string]*resource
	snapshots                 []*volumeSnapshot

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
	// heard is the definition's quorum that the satellite was last sent, whether or not DRBD took it.
	heard string
	// surplus is set for a tie-breaker that LINSTOR wants to go and has not told its satellite yet.
	surplus bool
	// first is set for the first replica of a definition, whose data is what there is.
	first bool
	// anew is set when the replica has got a disk or lost it: LINSTOR tells its next may promote even if it is what it was.
	anew bool

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

// CreateResource creates a resource definition, exactly the resources of the spec, and the DRBD resource. All nodes must
// have been added; whether their satellites are ONLINE makes no difference. A definition without resources can get them from
// [Server.Place].
func (s *Server) CreateResource(spec ResourceSpec) error {
	inDRBD := !spec.VolumeLess && !spec.StorageOnly && len(spec.Replicas) > 0
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
	s.mu.Lock()
	for _, rsc := range d.resources {
		rsc.heard = s.wantedQuorum(d)
	}
	s.mu.Unlock()
	s.send(d.name)
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
		volumes: max(spec.Volumes, 1), sizeKiB: cmp.Or(spec.SizeKiB, drbd.DefaultSizeKiB), layers: []string{LayerDRBD, LayerStorage},
		port: s.nextPort(), created: time.Now(), resources: map[string]*resource{},
		uuid: s.newUUID("definition", spec.Name), secret: uuidOf("secret", spec.Name),
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
		d.props[PropQuorum], d.props[PropQuorumSetBy] = spec.Quorum, setByUser
	}
	for _, rs := range spec.Replicas {
		n := s.nodes[fold(rs.Node)]
		if n == nil {
			return nil, fmt.Errorf("node %s: %w", rs.Node, ErrNotFound)
		}
		s.add(d, n, rs)
	}
	if s.groups[d.group] == nil {
		s.groups[d.group] = map[string]string{}
	}
	s.definitions[fold(spec.Name)] = d
	return d, nil
}

// add adds a resource to a definition.
func (s *Server) add(d *definition, n *node, rs drbd.ReplicaSpec) {
	rsc := &resource{
		node: n, id: d.freeID(), created: time.Now(), props: map[string]string{}, uuid: s.newUUID("resource", d.name, n.name),
	}
	rsc.shape(rs)
	d.resources[fold(n.name)] = rsc
}

// shape gives a resource a disk, or makes it diskless.
func (rsc *resource) shape(rs drbd.ReplicaSpec) {
	rsc.anew = rsc.has(FlagDiskless) != (rs.TieBreaker || rs.Diskless || rs.Client)
	rsc.flags, rsc.client = nil, rs.Client
	switch {
	case rs.TieBreaker:
		rsc.flags = []string{FlagDiskless, FlagDRBDDiskless, FlagTieBreaker}
	case rs.Diskless || rs.Client:
		rsc.flags = []string{FlagDiskless, FlagDRBDDiskless}
	}
	rsc.props["StorPoolName"] = DiskPool
	if len(rsc.flags) > 0 {
		rsc.props["StorPoolName"] = DisklessPool
	}
}

// spec is the resource as DRBD is to have it.
func (rsc *resource) spec() drbd.ReplicaSpec {
	return drbd.ReplicaSpec{
		Node: rsc.node.name, Diskless: rsc.has(FlagDiskless), TieBreaker: rsc.has(FlagTieBreaker), Client: rsc.client,
	}
}

// leaves tells whether the peers of a resource are to have no connection to it any more.
func (rsc *resource) leaves() bool {
	return rsc.has(FlagDelete) || rsc.has(FlagDRBDDelete) || rsc.has(FlagInactive)
}

// newUUID returns the UUID of a new object. Objects that are made again get another one.
func (s *Server) newUUID(kind string, names ...string) string {
	key := kind + "/" + strings.Join(names, "/")
	s.births[key]++
	if n := s.births[key]; n > 1 {
		names = append(slices.Clone(names), strconv.Itoa(n))
	}
	return uuidOf(kind, names...)
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

// DiskNodes returns the names of the nodes with a disk of a definition that is not being deleted, whatever else there is to say of it,
// sorted.
func (s *Server) DiskNodes(resourceName string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[fold(resourceName)]; d != nil {
		for _, rsc := range d.resources {
			if !rsc.has(FlagDiskless) && !rsc.leaves() {
				names = append(names, rsc.node.name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// ClientNodes returns the names of the nodes whose replicas of a definition have no vote.
func (s *Server) ClientNodes(resourceName string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[fold(resourceName)]; d != nil {
		for _, rsc := range d.resources {
			if rsc.client {
				names = append(names, rsc.node.name)
			}
		}
	}
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

// FlagReplica gives a resource a flag beside those that it has, as the first step of what a satellite has yet to carry out, or takes it off
// again. Nothing is sent.
func (s *Server) FlagReplica(resourceName, nodeName, flag string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.definitions[fold(resourceName)]
	if d == nil || d.resources[fold(nodeName)] == nil {
		return
	}
	rsc := d.resources[fold(nodeName)]
	rsc.flags = slices.DeleteFunc(slices.Clone(rsc.flags), func(f string) bool { return f == flag })
	if on {
		rsc.flags = append(rsc.flags, flag)
	}
}

// firstPort is the first TCP port that LINSTOR gives to DRBD.
const firstPort = 7000

// nextPort returns the port of a new definition; it stays the definition's own when others go.
func (s *Server) nextPort() int {
	s.ports++
	return firstPort + s.ports - 1
}
