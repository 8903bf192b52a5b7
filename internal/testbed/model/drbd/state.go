package drbd

import (
	"slices"
	"time"
)

// What becomes of a replica's reads and writes; see [State.IO].
const (
	IONormal    = "normal"
	IOSuspended = "suspended"
	IOFailing   = "failing"
)

// State is what one node's DRBD says of a resource, except where a field's comment says otherwise.
type State struct {
	// Role is [Primary] or [Secondary].
	Role string
	// MayPromote and Score are may_promote and promotion_score of drbdsetup events2.
	MayPromote bool
	Score      int
	// Connections has this end's connection state per peer. Diskless replicas have none to each other.
	Connections map[string]string
	// Syncs are the initial syncs at a rate that this end takes part in, by peer; nil where there are none.
	Syncs map[string]Sync
	// DiskState is the state of the first volume, DiskStates those of all.
	DiskState  string
	DiskStates []string
	// HasQuorum tells whether all volumes have quorum; always true where quorum is off.
	HasQuorum bool
	// ForceIOFailures is set after a demotion by force, until everybody has closed the device.
	ForceIOFailures bool
	// IO is what reads and writes do: [IONormal], [IOSuspended] (they hang) or [IOFailing]. LINSTOR never learns it.
	IO string
	// Open is the number of openers for writing and for reading only.
	Open, OpenReadOnly int
	// Quorum is the quorum setting that this node runs, "off" when it has none.
	Quorum string
}

// Replica returns what a node's DRBD says of a resource, and whether there is such a replica on a running node.
func (c *Cluster) Replica(resourceName, nodeName string) (State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, x, err := c.find(resourceName, nodeName)
	if err != nil || !x.up {
		return State{}, false
	}
	return r.state(x), true
}

// CanWrite tells whether a write on this node could be committed now, for any volume of the resource. It is the
// truth of the model and takes into account what no node has noticed yet.
func (c *Cluster) CanWrite(resourceName, nodeName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, x, err := c.find(resourceName, nodeName)
	return err == nil && r.canWrite(x)
}

// Truth is a replica's state together with what nobody is told.
type Truth struct {
	State
	// CanWrite is [Cluster.CanWrite].
	CanWrite bool
	// Unnoticed is set while this node, or one that it is connected with over others, takes a connection for
	// alive that is dead: State may be about to change without anything happening.
	Unnoticed bool
}

// Inspect returns the truth of all replicas of a resource on running nodes at one moment, by node.
func (c *Cluster) Inspect(resourceName string) map[string]Truth {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]Truth{}
	if r := c.resources[resourceName]; r != nil {
		for name, x := range r.replicas {
			if x.up {
				_, pending := r.component(x)
				all[name] = Truth{State: r.state(x), CanWrite: r.canWrite(x), Unnoticed: pending}
			}
		}
	}
	return all
}

// Diverged tells whether two replicas of a resource hold data of which neither descends from the other: a
// split brain, whether or not DRBD has found it yet.
func (c *Cluster) Diverged(resourceName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.resources[resourceName]
	if r == nil {
		return false
	}
	for _, x := range r.replicas {
		for _, y := range r.replicas {
			if x.data != y.data && !x.data.newerThan(y.data) && !y.data.newerThan(x.data) {
				return true
			}
		}
	}
	return false
}

// Disks returns the nodes that have a disk of a resource, running or not, and whether that disk holds all of the newest data that any disk
// holds. What the nodes themselves say of it counts for nothing.
func (c *Cluster) Disks(resourceName string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	disks := map[string]bool{}
	r := c.resources[resourceName]
	if r == nil {
		return disks
	}
	for name, x := range r.replicas {
		if x.diskless() {
			continue
		}
		newest := x.data != nil && !slices.Contains(x.disks, Failed)
		for _, y := range r.replicas {
			newest = newest && (y.diskless() || !y.data.newerThan(x.data))
		}
		disks[name] = newest
	}
	return disks
}

// Covers tells whether the disk of a resource on the node other has everything that the disk on a node has. What the nodes say of it counts
// for nothing.
func (c *Cluster) Covers(resourceName, nodeName, other string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.resources[resourceName]
	if r == nil {
		return false
	}
	x, y := r.replicas[nodeName], r.replicas[other]
	if x == nil || y == nil || y.diskless() || slices.Contains(y.disks, Failed) {
		return false
	}
	return y.data != nil && (x.data == y.data || y.data.newerThan(x.data))
}

func (r *resource) state(x *replica) State {
	s := State{
		Role:            x.role,
		Connections:     map[string]string{},
		DiskState:       x.disks[0],
		DiskStates:      slices.Clone(x.disks),
		HasQuorum:       x.hasQuorum(),
		ForceIOFailures: x.forced,
		IO:              IONormal,
		Open:            x.writers,
		OpenReadOnly:    x.readers,
		Quorum:          x.options[OptionQuorum],
	}
	if s.Quorum == "" {
		s.Quorum = QuorumOff
	}
	for name, p := range x.peers {
		s.Connections[name] = p.state
	}
	s.Syncs = r.syncs(x)
	s.MayPromote, s.Score = r.promotion(x)
	if time.Now().Before(x.hasty) && s.HasQuorum && x.role != Primary {
		s.MayPromote = true
	}
	switch {
	case x.forced:
		s.IO = IOFailing
	case !s.HasQuorum && x.options[OptionOnNoQuorum] == OnNoQuorumIOError:
		s.IO = IOFailing
	case !s.HasQuorum:
		s.IO = IOSuspended
	}
	return s
}

// promotion computes may_promote and promotion_score from this node's view alone, as drbdsetup events2 does.
func (r *resource) promotion(x *replica) (mayPromote bool, score int) {
	if x.forced || !x.hasQuorum() {
		return false, 0
	}
	const most = 99
	mayPromote = x.role != Primary
	withDisk, localUpToDate, fewest := true, 0, most
	for v, disk := range x.disks {
		copies, stable := 0, disk == UpToDate
		if disk == UpToDate {
			copies++
			localUpToDate++
		}
		for _, p := range x.peers {
			if p.state != Connected {
				continue
			}
			mayPromote = mayPromote && p.role != Primary
			if p.disks[v] == UpToDate {
				copies++
				stable = stable || p.stable
			}
		}
		if copies == 0 {
			return false, 0
		}
		mayPromote = mayPromote && stable
		withDisk = withDisk && (disk == UpToDate || disk == Consistent || disk == Inconsistent)
		fewest = min(fewest, copies)
	}
	if withDisk {
		score = 10000
	}
	return mayPromote, score + 100*min(localUpToDate, most) + fewest
}

// canWrite is [Cluster.CanWrite].
func (r *resource) canWrite(x *replica) bool {
	if !x.up || x.role != Primary || x.forced {
		return false
	}
	if r.awaitsAck(x) || r.awaitsPing(x) {
		return false
	}
	for v := range x.disks {
		if x.quorum[v] && len(r.holders(x, v)) > 0 {
			return true
		}
	}
	return false
}

// awaitsAck tells whether a write has to wait for a diskful peer that is taken for connected but is not there. A
// diskless Primary waits with its peers, on whose word it has quorum.
func (r *resource) awaitsAck(x *replica) bool {
	return r.missesAck(x) || x.diskless() && slices.ContainsFunc(x.peerNames(), func(name string) bool {
		return r.live(x.Node, name) && !x.peers[name].spec.diskless() && r.missesAck(r.replicas[name])
	})
}

// missesAck tells whether a replica takes a diskful peer for connected that would not answer it.
func (r *resource) missesAck(x *replica) bool {
	return slices.ContainsFunc(x.peerNames(), func(name string) bool {
		p := x.peers[name]
		return p.state == Connected && !p.spec.diskless() && !r.live(x.Node, name)
	})
}

// awaitsPing tells whether a write has to wait because it is the first without a diskful member: before DRBD gives it a new generation
// (drbd_check_peers_new_current_uuid in the kernel), it pings all peers that it takes for connected, and quorum must have outlived
// those that do not answer. A diskless Primary waits with its peers here too.
func (r *resource) awaitsPing(x *replica) bool {
	if _, behind := r.reached(x); !behind {
		return false
	}
	return r.missesPing(x) || x.diskless() && slices.ContainsFunc(x.peerNames(), func(name string) bool {
		return r.live(x.Node, name) && r.missesPing(r.replicas[name])
	})
}

// missesPing tells whether a replica takes a peer for connected that would not answer it.
func (r *resource) missesPing(x *replica) bool {
	return slices.ContainsFunc(x.peerNames(), func(name string) bool { return x.peers[name].state == Connected && !r.live(x.Node, name) })
}

// holders are the replicas that a write on x reaches: x itself and its live peers, where UpToDate.
func (r *resource) holders(x *replica, volume int) []*replica {
	var holders []*replica
	for _, name := range r.nodes() {
		y := r.replicas[name]
		if y.disks[volume] == UpToDate && (x == y || r.live(x.Node, name)) {
			holders = append(holders, y)
		}
	}
	return holders
}

// IOHangs tells whether somebody who has the device open on a node waits for a read or write that does not
// come back: IO is suspended, or a peer that was not noticed yet to be gone owes the acknowledgement.
func (c *Cluster) IOHangs(resourceName, nodeName string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, x, err := c.find(resourceName, nodeName)
	if err != nil || !x.up || x.writers+x.readers == 0 {
		return false
	}
	return r.state(x).IO == IOSuspended || x.role == Primary && (r.awaitsAck(x) || r.awaitsPing(x))
}
