package drbd

import (
	"fmt"
	"slices"
)

// Config is what one node's configuration file says of a resource. Nodes of one resource may have different ones.
type Config struct {
	// Replica is this node's part.
	Replica ReplicaSpec
	// New says that a disk that is made now has the resource's first data.
	New bool
	// Volumes is the number of volumes; 0 means 1. It counts only where the resource is nowhere else.
	Volumes int
	// SizeKiB is the size of each volume in KiB; 0 means [DefaultSizeKiB]. It counts where Volumes does.
	SizeKiB int64
	// Options are DRBD options by their drbd.conf names; an empty value is DRBD's default. Options that are not named
	// stay as they are, and so do those with a value that DRBD does not know.
	Options map[string]string
	// Peers are the nodes to connect with.
	Peers []ReplicaSpec
}

// Adjust brings one node's DRBD to a configuration, as drbdadm adjust does: first the options, then the disk, then the
// peers. The other nodes are not told. A replica that is not there is created, without data unless the configuration says
// that it is new.
func (c *Cluster) Adjust(resourceName string, config Config) error {
	return c.adjust(resourceName, config, true)
}

// AdjustOptions is an [Cluster.Adjust] that ends after the options, as one that fails there does.
func (c *Cluster) AdjustOptions(resourceName string, config Config) error {
	return c.adjust(resourceName, config, false)
}

func (c *Cluster) adjust(resourceName string, config Config, whole bool) error {
	return c.do(func() error {
		r := c.resources[resourceName]
		if r == nil {
			r = newResource(c, resourceName, config.Volumes, config.SizeKiB)
		}
		x := r.replicas[config.Replica.Node]
		if n := c.nodes[config.Replica.Node]; n == nil || !n.up {
			return fmt.Errorf("resource %s on node %s: %w", resourceName, config.Replica.Node, ErrNodeDown)
		}
		if x == nil {
			var err error
			if x, err = r.place(config.Replica, nil); err != nil {
				return err
			}
			c.resources[resourceName] = r
			if config.New && !x.diskless() {
				x.data = &generation{}
				x.seen = x.data
				x.setDisks(UpToDate)
			}
		}
		changed := x.setOptions(config.Options)
		if changed {
			r.touch()
		}
		if !whole {
			return nil
		}
		reshaped, err := r.reshape(x, config.Replica)
		if err != nil {
			return err
		}
		if r.setPeers(x, config.Peers) || reshaped {
			r.touch()
		}
		return nil
	})
}

// setOptions tells whether it changed any option of a replica.
func (x *replica) setOptions(options map[string]string) (changed bool) {
	for option, value := range options {
		if x.options[option] == value || value != "" && checkOptions(x.Node, map[string]string{option: value}) != nil {
			continue
		}
		changed = true
		if value == "" {
			delete(x.options, option)
		} else {
			x.options[option] = value
		}
	}
	return changed
}

// reshape adds a disk to a replica or takes it away.
func (r *resource) reshape(x *replica, spec ReplicaSpec) (changed bool, err error) {
	if spec == x.ReplicaSpec {
		return false, nil
	}
	if spec.diskless() != x.diskless() {
		if spec.diskless() && x.role == Primary {
			for v := range x.disks {
				if !r.peerUpToDate(x, v) {
					return false, fmt.Errorf("detaching resource %s on node %s: %w", r.name, x.Node, ErrNoUpToDateDisk)
				}
			}
		}
		x.data = nil
		x.stopFilling()
		x.setDisks(Inconsistent)
		if spec.diskless() {
			x.setDisks(Diskless)
		}
	}
	x.ReplicaSpec = spec
	return true, nil
}

// setPeers makes a node's connections those of its configuration, and tells whether any changed.
func (r *resource) setPeers(x *replica, peers []ReplicaSpec) (changed bool) {
	for _, name := range x.peerNames() {
		if !slices.ContainsFunc(peers, func(spec ReplicaSpec) bool { return spec.Node == name }) {
			r.disconnect(x, name)
			delete(x.peers, name)
			changed = true
		}
	}
	for _, spec := range peers {
		p := x.peers[spec.Node]
		switch {
		case spec.Node == x.Node || p != nil && p.spec == spec:
		case p != nil:
			p.spec, changed = spec, true
		default:
			x.peers[spec.Node], changed = r.newPeer(spec), true
		}
	}
	return changed
}

// disconnect ends a connection in an orderly way: the other end knows at once. What a Primary writes from then on the
// other one does not have.
func (r *resource) disconnect(x *replica, name string) {
	if !r.live(x.Node, name) {
		return
	}
	y := r.replicas[name]
	if x.role == Primary {
		y.moveDisks(Outdated, UpToDate, Consistent)
	}
	y.peers[x.Node].outdated = slices.Contains(x.disks, Outdated)
	r.lose(y, x.Node)
}

// Down ends a resource on one node in an orderly way and takes it from that node, data and all. The other nodes go on
// with their configuration, in which it still is. It fails with [ErrInUse] while it is open.
func (c *Cluster) Down(resourceName, nodeName string) error {
	return c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil {
			return err
		}
		if x.writers+x.readers > 0 {
			return fmt.Errorf("resource %s on node %s: %w: close it first", resourceName, nodeName, ErrInUse)
		}
		for _, name := range x.peerNames() {
			if r.live(nodeName, name) {
				// It leaves without the data: nobody has to wait for it.
				r.replicas[name].peers[nodeName].outdated = true
				r.lose(r.replicas[name], nodeName)
			}
		}
		delete(r.replicas, nodeName)
		r.touch()
		if len(r.replicas) == 0 {
			delete(c.resources, resourceName)
		}
		return nil
	})
}
