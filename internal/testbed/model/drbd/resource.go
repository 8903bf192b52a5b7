package drbd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Roles of a replica.
const (
	Primary   = "Primary"
	Secondary = "Secondary"
)

// Disk states of a replica's volume, as DRBD names them.
const (
	Diskless     = "Diskless"
	Failed       = "Failed"
	Inconsistent = "Inconsistent"
	Outdated     = "Outdated"
	Consistent   = "Consistent"
	UpToDate     = "UpToDate"
)

// States of a connection, as DRBD names them.
const (
	StandAlone = "StandAlone"
	Connecting = "Connecting"
	Connected  = "Connected"
)

// resource is one DRBD resource on all its nodes.
type resource struct {
	cluster  *Cluster
	name     string
	volumes  int
	sizeKiB  int64
	replicas map[string]*replica
	cut      map[link]bool
	// told is what was last seen of each replica, to find out what changed.
	told map[string]State
}

// replica is what one node has of a resource.
type replica struct {
	ReplicaSpec
	up      bool
	role    string
	writers int
	readers int
	// forced is DRBD's force-io-failures.
	forced bool
	// crashed is set while the disk is as a Primary that crashed has left it: what was being written then may differ from the peers' data.
	crashed bool
	// disks and quorum are per volume.
	disks  []string
	quorum []bool
	// data is the generation on the disk, seen the newest generation that this node has heard of.
	data, seen *generation
	// options are the DRBD options as this node runs them.
	options map[string]string
	peers   map[string]*peer

	// doubtShown is when the peers see that the replica is in doubt about its data, agreed when it may be out of doubt;
	// see [Options.Flap]. Until hasty it says that it may be promoted, see [Options.HealFlap].
	doubtShown, agreed, hasty time.Time
}

// peer is one end of a connection: what this node knows of the other.
type peer struct {
	// spec is the other end as this node's configuration has it, which the other end may long have changed.
	spec  ReplicaSpec
	state string
	// session tells an established connection from an earlier one between the same nodes.
	session int
	// connectAt is the time before which there is no new handshake; the same at both ends.
	connectAt time.Time
	// noticeAt is when this end notices that the connection is dead; zero while it is alive.
	noticeAt time.Time
	// resyncing is set while this end copies data from the other.
	resyncing bool
	// fill is not nil while that is an initial sync at the cluster's rate.
	fill *fill

	// The rest is what the other end last said.
	role   string
	disks  []string
	quorum []bool
	stable bool
	// outdated is set when the other end left in an orderly way, quorumless when it was left behind by a group
	// that has quorum. Neither can be promoted on its own.
	outdated, quorumless bool
}

// generation is one state of the data in its line of descent.
type generation struct{ parent *generation }

// newerThan tells whether g descends from other. Nothing is older than everything.
func (g *generation) newerThan(other *generation) bool {
	if g == nil || g == other {
		return false
	}
	if other == nil {
		return true
	}
	for p := g.parent; p != nil; p = p.parent {
		if p == other {
			return true
		}
	}
	return false
}

// CreateResource creates a resource with all its replicas, connected and, where diskful, UpToDate. It fails
// when the resource exists, a node does not, or an option's value is none of DRBD's.
func (c *Cluster) CreateResource(spec Spec) error {
	return c.do(func() error {
		if c.resources[spec.Name] != nil {
			return fmt.Errorf("resource %s: %w", spec.Name, ErrExists)
		}
		options := spec.options()
		if err := checkOptions(spec.Name, options); err != nil {
			return err
		}
		r := newResource(c, spec.Name, spec.Volumes, spec.SizeKiB)
		first := &generation{}
		for _, rs := range spec.Replicas {
			x, err := r.add(rs, options)
			if err != nil {
				return err
			}
			if !rs.diskless() {
				x.data, x.seen = first, first
				x.setDisks(UpToDate)
			}
			for v := range x.quorum {
				x.quorum[v] = x.up
			}
		}
		c.resources[spec.Name] = r
		r.touch()
		return nil
	})
}

func newResource(c *Cluster, name string, volumes int, sizeKiB int64) *resource {
	return &resource{
		cluster: c, name: name, volumes: max(volumes, 1), sizeKiB: cmp.Or(sizeKiB, DefaultSizeKiB),
		replicas: map[string]*replica{}, cut: map[link]bool{}, told: map[string]State{},
	}
}

// AddReplica adds a node to a resource: a diskless one that makes the volume available there, or a diskful one
// that resyncs from the others. It runs the options of the other replicas.
func (c *Cluster) AddReplica(resourceName string, spec ReplicaSpec) error {
	return c.do(func() error {
		r := c.resources[resourceName]
		if r == nil {
			return fmt.Errorf("resource %s: %w", resourceName, ErrNotFound)
		}
		var options map[string]string
		for _, name := range r.nodes() {
			options = r.replicas[name].options
		}
		if _, err := r.add(spec, options); err != nil {
			return err
		}
		r.touch()
		return nil
	})
}

// add adds an unconnected, empty replica, of which the other ones know.
func (r *resource) add(spec ReplicaSpec, options map[string]string) (*replica, error) {
	x, err := r.place(spec, options)
	if err != nil {
		return nil, err
	}
	for name, y := range r.replicas {
		// Two diskless replicas have no connection: there is nothing that one could ask of the other.
		if x != y && (!spec.diskless() || !y.diskless()) {
			x.peers[name], y.peers[spec.Node] = r.newPeer(y.ReplicaSpec), r.newPeer(spec)
		}
	}
	return x, nil
}

// place adds an empty replica of which no other one knows.
func (r *resource) place(spec ReplicaSpec, options map[string]string) (*replica, error) {
	if r.replicas[spec.Node] != nil {
		return nil, fmt.Errorf("resource %s on node %s: %w", r.name, spec.Node, ErrExists)
	}
	n := r.cluster.nodes[spec.Node]
	if n == nil {
		return nil, fmt.Errorf("resource %s: node %s: %w", r.name, spec.Node, ErrNotFound)
	}
	x := &replica{
		ReplicaSpec: spec,
		up:          n.up,
		role:        Secondary,
		disks:       make([]string, r.volumes),
		quorum:      make([]bool, r.volumes),
		options:     maps.Clone(options),
		peers:       map[string]*peer{},
	}
	if x.options == nil {
		x.options = map[string]string{}
	}
	x.setDisks(Inconsistent)
	if spec.diskless() {
		x.setDisks(Diskless)
	}
	r.replicas[spec.Node] = x
	return x, nil
}

// newPeer returns this end of a connection that has just been configured.
func (r *resource) newPeer(spec ReplicaSpec) *peer {
	p := &peer{spec: spec, state: Connecting}
	if d := r.cluster.options.ConnectDelay; d > 0 {
		p.connectAt = time.Now().Add(d)
		r.cluster.later(d, r.touch)
	}
	return p
}

// DeleteReplica removes a node from a resource in an orderly way. It fails with [ErrInUse] while it is open.
func (c *Cluster) DeleteReplica(resourceName, nodeName string) error {
	return c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil {
			return err
		}
		if x.writers+x.readers > 0 {
			return fmt.Errorf("resource %s on node %s: %w: close it first", resourceName, nodeName, ErrInUse)
		}
		delete(r.replicas, nodeName)
		for _, y := range r.replicas {
			delete(y.peers, nodeName)
		}
		r.touch()
		return nil
	})
}

// DeleteResource removes a resource from all nodes. It fails with [ErrInUse] while any replica is open.
func (c *Cluster) DeleteResource(resourceName string) error {
	return c.do(func() error {
		r := c.resources[resourceName]
		if r == nil {
			return fmt.Errorf("resource %s: %w", resourceName, ErrNotFound)
		}
		for name, x := range r.replicas {
			if x.writers+x.readers > 0 {
				return fmt.Errorf("resource %s on node %s: %w: close it first", resourceName, name, ErrInUse)
			}
		}
		clear(r.replicas)
		delete(c.resources, resourceName)
		r.tell()
		return nil
	})
}

// nodes returns the names of the nodes with a replica, sorted: the model must not depend on map order.
func (r *resource) nodes() []string { return slices.Sorted(maps.Keys(r.replicas)) }

// live tells whether two replicas are connected, know it of each other and can still talk.
func (r *resource) live(a, b string) bool {
	x, y := r.replicas[a], r.replicas[b]
	if x == nil || y == nil || x.peers[b] == nil || y.peers[a] == nil {
		return false
	}
	p, q := x.peers[b], y.peers[a]
	return p.state == Connected && q.state == Connected && p.session == q.session && r.reaches(a, b)
}

// reaches tells whether the network carries this resource's packets between two nodes.
func (r *resource) reaches(a, b string) bool {
	return !r.cut[linkOf(a, b)] && r.cluster.reaches(a, b)
}

func (x *replica) setDisks(state string) {
	for v := range x.disks {
		x.disks[v] = state
	}
}

func (x *replica) peerNames() []string { return slices.Sorted(maps.Keys(x.peers)) }

func (x *replica) hasQuorum() bool { return !slices.Contains(x.quorum, false) }

func (x *replica) twoPrimaries() bool { return x.options[OptionAllowTwoPrimaries] == yes }
