package drbd

import (
	"reflect"
	"slices"
	"time"
)

// rounds bounds how often a resource is gone over until nothing changes any more. Every rule moves a replica
// one way only, so a few rounds do; the bound guards against a mistake in the model.
const rounds = 100

// touch brings a resource to rest after something happened to it, and notes which replicas changed.
func (r *resource) touch() {
	r.notice()
	for range rounds {
		changed := false
		r.exchange()
		for _, name := range r.nodes() {
			if x := r.replicas[name]; x.up {
				changed = r.settleQuorum(x) || changed
				changed = r.settleDisk(x) || changed
				changed = r.settleData(x) || changed
			}
		}
		// Only who has drawn the consequences of a loss meets the others again: a quorum that is gone must not
		// look as if it had been kept.
		if changed {
			continue
		}
		r.leaveBehind()
		if !r.connect() {
			break
		}
	}
	r.exchange()
	r.tell()
}

// tell notes a change for every replica whose state differs from what was told last.
func (r *resource) tell() {
	for _, name := range r.nodes() {
		x := r.replicas[name]
		if !x.up {
			continue
		}
		now := r.state(x)
		if before, ok := r.told[name]; !ok || !reflect.DeepEqual(before, now) {
			r.told[name] = now
			r.changed(name)
		}
	}
	for name := range r.told {
		if x := r.replicas[name]; x == nil || !x.up {
			delete(r.told, name)
			r.changed(name)
		}
	}
}

func (r *resource) changed(node string) {
	if c := r.cluster; !c.stopped {
		c.changes = append(c.changes, change{r.name, node})
	}
}

// exchange makes the two ends of every live connection know each other's state. What an end knows of a peer
// that it can not reach stays as it was.
func (r *resource) exchange() {
	for _, name := range r.nodes() {
		x := r.replicas[name]
		for _, other := range x.peerNames() {
			if !r.live(name, other) {
				continue
			}
			y, p := r.replicas[other], x.peers[other]
			p.role, p.disks, p.quorum, p.stable = y.role, y.shownDisks(), slices.Clone(y.quorum), y.stable()
			p.outdated = false
			if y.seen.newerThan(x.seen) {
				x.seen = y.seen
			}
		}
	}
}

// shownDisks are a replica's disks as its peers see them.
func (x *replica) shownDisks() []string {
	shown := slices.Clone(x.disks)
	if time.Now().Before(x.doubtShown) {
		for v, disk := range shown {
			if disk == Consistent {
				shown[v] = UpToDate
			}
		}
	}
	return shown
}

// stable is the kernel's drbd_device_stable: a replica beside a Primary has data that change under it, so that a
// third node must not take its word for being UpToDate.
func (x *replica) stable() bool {
	if x.role == Primary {
		return true
	}
	for _, p := range x.peers {
		if p.state == Connected && p.role == Primary {
			return false
		}
	}
	return true
}

func (r *resource) settleQuorum(x *replica) bool {
	before := slices.Clone(x.quorum)
	for v := range x.quorum {
		x.quorum[v] = r.quorumOf(x, v)
	}
	return !slices.Equal(before, x.quorum)
}

// leaveBehind lets the diskful members of a quorate group note who is beyond their reach: such a node has no
// quorum, and can not get one without somebody of the group.
func (r *resource) leaveBehind() {
	for _, x := range r.replicas {
		members, pending := r.component(x)
		if !x.up || x.diskless() || pending || !x.hasQuorum() || !fences(x) {
			continue
		}
		for name, p := range x.peers {
			if p.state != Connected && !slices.Contains(members, r.replicas[name]) {
				p.quorumless = true
			}
		}
	}
}

// settleDisk moves a Secondary's disks between Outdated, Consistent and UpToDate, and starts a resync.
func (r *resource) settleDisk(x *replica) bool {
	if x.diskless() {
		return false
	}
	source := r.source(x)
	if x.role == Primary {
		// A Primary whose disk has just been added works on its peers' data until it has them itself.
		return source != nil && x.data == nil && r.resync(x, source)
	}
	reachable, pending := r.lostPrimary(x)
	switch {
	case reachable:
		// The Primary is there and this replica gets nothing of what it writes.
		return x.moveDisks(Outdated, Consistent, UpToDate)
	case source != nil && (source.data.newerThan(x.data) || x.crashed):
		// The two ends of a connection settle this between them, whatever else is pending.
		return r.resync(x, source)
	case pending:
		// Only an agreement of everybody within reach makes UpToDate of Consistent.
		return false
	case source != nil:
		return x.moveDisks(UpToDate, Consistent, Outdated, Inconsistent)
	case x.seen.newerThan(x.data):
		return x.moveDisks(Outdated, Consistent, UpToDate)
	case r.vouched(x):
		return x.moveDisks(UpToDate, Consistent, Outdated)
	case !x.hasQuorum():
		return false
	}
	return x.moveDisks(UpToDate, Consistent)
}

// vouched tells whether a replica's data is known to be the newest there is: because a Primary that it is
// connected to works on it, or because all disks are there and none has newer data.
func (r *resource) vouched(x *replica) bool {
	all := true
	for name, p := range x.peers {
		y, live := r.replicas[name], r.live(x.Node, name)
		if live && y.role == Primary && y.base() == x.data {
			return true
		}
		if !p.spec.diskless() {
			all = all && live && !y.data.newerThan(x.data)
		}
	}
	return all && x.hasQuorum()
}

// moveDisks moves the volumes that are in one of the given states to another one.
func (x *replica) moveDisks(to string, from ...string) bool {
	moved := false
	for v, disk := range x.disks {
		if disk != to && slices.Contains(from, disk) {
			x.disks[v], moved = to, true
		}
	}
	return moved
}

// source returns a live diskful peer that is UpToDate and whose data is the same as, or newer than, x's.
func (r *resource) source(x *replica) *replica {
	var found *replica
	for _, name := range x.peerNames() {
		y := r.replicas[name]
		if !r.live(x.Node, name) || y.diskless() || !slices.Contains(y.disks, UpToDate) {
			continue
		}
		if (y.data == x.data || y.data.newerThan(x.data)) && (found == nil || y.data.newerThan(found.data)) {
			found = y
		}
	}
	return found
}

// resync copies the source's data, at once or after the cluster's ResyncDelay and in its ResyncDuration.
func (r *resource) resync(x, source *replica) bool {
	p := x.peers[source.Node]
	if p.resyncing || x.filledFromAnother() {
		return false
	}
	session := p.session
	p.resyncing = true
	if d := r.cluster.options.ResyncDelay; d > 0 {
		r.cluster.later(d, func() {
			if x.peers[source.Node] != p || p.session != session || !p.resyncing {
				return
			}
			if r.live(x.Node, source.Node) {
				r.copy(x, source)
			} else {
				p.resyncing = false
			}
			r.touch()
		})
		return false
	}
	return r.copy(x, source)
}

// copy copies the source's data.
func (r *resource) copy(x, source *replica) bool {
	p := x.peers[source.Node]
	session := p.session
	moved := x.moveDisks(Inconsistent, UpToDate, Consistent, Outdated)
	if x.data == nil && r.cluster.options.SyncRate > 0 {
		r.fill(x, source)
		return moved
	}
	r.cluster.later(r.cluster.options.ResyncDuration, func() {
		if x.peers[source.Node] != p || p.session != session || !p.resyncing {
			return
		}
		p.resyncing = false
		moved = r.copied(x, source) || moved
		if r.cluster.options.ResyncDuration > 0 {
			r.touch()
		}
	})
	return moved
}

// copied gives a replica the data that it has copied, if the source is still there and has it.
func (r *resource) copied(x, source *replica) bool {
	if !r.live(x.Node, source.Node) || !slices.Contains(source.disks, UpToDate) {
		return false
	}
	x.data, x.seen, x.crashed = source.data, source.seen, false
	x.moveDisks(UpToDate, Inconsistent)
	return true
}

// lostPrimary looks for a Primary that x has no connection to, through the nodes that x is connected to.
// pending tells that some node on the way counts a peer as connected that does not answer, or has not agreed yet: what
// that one is nobody can say yet.
func (r *resource) lostPrimary(x *replica) (reachable, pending bool) {
	members, pending := r.component(x)
	for _, y := range members {
		pending = pending || time.Now().Before(y.agreed)
		p := x.peers[y.Node]
		if p != nil && p.state != Connected && y.role == Primary {
			reachable = true
		}
	}
	return reachable, pending
}

// component returns the replicas that a cluster-wide transaction started on x reaches, x first. pending tells
// that one of them counts a peer as connected that does not answer.
func (r *resource) component(x *replica) (members []*replica, pending bool) {
	members = []*replica{x}
	for i := 0; i < len(members); i++ {
		y := members[i]
		for _, name := range y.peerNames() {
			switch z := r.replicas[name]; {
			case r.live(y.Node, name):
				if !slices.Contains(members, z) {
					members = append(members, z)
				}
			case y.peers[name].state == Connected:
				pending = true
			}
		}
	}
	return members, pending
}

// settleData starts a new generation where a Primary writes on without a diskful member, so that the absent
// one's data can be told to be old.
func (r *resource) settleData(x *replica) bool {
	if !r.canWrite(x) {
		return false
	}
	holders, behind := r.reached(x)
	if !behind {
		return false
	}
	next := &generation{parent: holders[0].data}
	for _, y := range holders {
		y.data, y.seen = next, next
	}
	x.seen = next
	return true
}

// reached returns the replicas that a write on a Primary reaches, and whether another one could pass for having it, so that it
// takes a new generation first.
func (r *resource) reached(x *replica) (holders []*replica, behind bool) {
	for v := range x.disks {
		if x.quorum[v] {
			holders = r.holders(x, v)
		}
		if len(holders) > 0 {
			return holders, r.leavesBehind(x, holders, holders[0].data)
		}
	}
	return nil, false
}

// leavesBehind tells whether some replica that the Primary's writes do not reach could pass for having them: a
// disk of the same or a later generation, or another Primary that works on it.
func (r *resource) leavesBehind(x *replica, holders []*replica, current *generation) bool {
	members, _ := r.component(x)
	for _, y := range r.replicas {
		switch {
		case slices.Contains(holders, y):
		case !y.diskless() && (y.data == current || y.data.newerThan(current)):
			return true
		case y.role == Primary && y.base() == current && !slices.Contains(members, y):
			return true
		}
	}
	return false
}
