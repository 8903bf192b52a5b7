package drbd

import (
	"fmt"
	"maps"
	"slices"
)

// Crash stops a node as a power loss does: its openers are gone, its peers notice after the detection delay.
// Crashing a node that is down or unknown does nothing.
func (c *Cluster) Crash(nodeName string) {
	c.down(nodeName, func(r *resource, x *replica, _ []string) {
		for _, name := range x.peerNames() {
			r.breakLink(nodeName, name)
		}
	})
}

// Shutdown stops a node in an orderly way: its devices are closed, and the peers it reaches know at once that it
// left. If one of them has the data as well, the leaving node's is Outdated, and it does not count for quorum.
func (c *Cluster) Shutdown(nodeName string) {
	c.down(nodeName, func(r *resource, x *replica, reached []string) {
		x.crashed = false
		for _, name := range reached {
			if slices.Contains(r.replicas[name].disks, UpToDate) {
				// Those who stay may write on without this one.
				x.moveDisks(Outdated, UpToDate, Consistent)
			}
		}
		for _, name := range x.peerNames() {
			if !slices.Contains(reached, name) {
				r.breakLink(nodeName, name)
				continue
			}
			p := r.replicas[name].peers[nodeName]
			p.role, p.outdated = Secondary, slices.Contains(x.disks, Outdated)
			r.lose(r.replicas[name], nodeName)
		}
	})
}

// down takes a node down; leave is called for each of its replicas with the peers that it was connected to.
func (c *Cluster) down(nodeName string, leave func(r *resource, x *replica, reached []string)) {
	_ = c.do(func() error {
		n := c.nodes[nodeName]
		if n == nil || !n.up {
			return nil
		}
		here := c.on(nodeName)
		reached := map[*resource][]string{}
		for _, r := range here {
			for _, name := range r.replicas[nodeName].peerNames() {
				if r.live(nodeName, name) {
					reached[r] = append(reached[r], name)
				}
			}
		}
		n.up = false
		for _, r := range here {
			x := r.replicas[nodeName]
			x.crashed = x.crashed || x.role == Primary && !x.diskless()
			x.up, x.role, x.writers, x.readers, x.forced = false, Secondary, 0, 0, false
			for _, p := range x.peers {
				*p = peer{spec: p.spec, state: Connecting, session: p.session, connectAt: p.connectAt}
			}
			leave(r, x, reached[r])
			r.touch()
		}
		return nil
	})
}

// Return boots a node that is down. Its devices are closed, its disks Consistent until it has met enough peers,
// and it has no quorum that tie-breakers alone could keep.
func (c *Cluster) Return(nodeName string) {
	_ = c.do(func() error {
		n := c.nodes[nodeName]
		if n == nil || n.up {
			return nil
		}
		n.up = true
		for _, r := range c.on(nodeName) {
			x := r.replicas[nodeName]
			x.up = true
			x.moveDisks(Consistent, UpToDate)
			x.seen = x.data
			for v := range x.quorum {
				x.quorum[v] = false
			}
			for _, name := range x.peerNames() {
				r.mendLink(nodeName, name)
			}
			r.touch()
		}
		return nil
	})
}

// Live tells whether traffic of a resource passes between two nodes, whether or not they have noticed that it does not.
func (c *Cluster) Live(resourceName, a, b string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.resources[resourceName]
	return r != nil && r.live(a, b)
}

// CutLink stops all traffic between two nodes on the DRBD network.
func (c *Cluster) CutLink(a, b string) {
	c.network(func() { c.cut[linkOf(a, b)] = true })
}

// HealLink undoes CutLink.
func (c *Cluster) HealLink(a, b string) {
	c.network(func() { delete(c.cut, linkOf(a, b)) })
}

// Isolate takes a node off the DRBD network. It goes on running.
func (c *Cluster) Isolate(nodeName string) {
	c.network(func() {
		if n := c.nodes[nodeName]; n != nil {
			n.isolated = true
		}
	})
}

// Rejoin undoes Isolate.
func (c *Cluster) Rejoin(nodeName string) {
	c.network(func() {
		if n := c.nodes[nodeName]; n != nil {
			n.isolated = false
		}
	})
}

// CutResourceLink stops the traffic of one resource between two nodes.
func (c *Cluster) CutResourceLink(resourceName, a, b string) {
	c.network(func() {
		if r := c.resources[resourceName]; r != nil {
			r.cut[linkOf(a, b)] = true
		}
	})
}

// HealResourceLink undoes CutResourceLink.
func (c *Cluster) HealResourceLink(resourceName, a, b string) {
	c.network(func() {
		if r := c.resources[resourceName]; r != nil {
			delete(r.cut, linkOf(a, b))
		}
	})
}

// ResetConnections breaks the connections of two nodes as a TCP reset does, those of the named resources or of all: both
// ends notice at once and connect again after the reconnect delay.
func (c *Cluster) ResetConnections(a, b string, resourceNames ...string) {
	_ = c.do(func() error {
		for _, r := range c.on(a) {
			if !r.live(a, b) || len(resourceNames) > 0 && !slices.Contains(resourceNames, r.name) {
				continue
			}
			r.lose(r.replicas[a], b)
			r.lose(r.replicas[b], a)
			r.mendLink(a, b)
			r.touch()
		}
		return nil
	})
}

// network changes which nodes reach each other, and tells every connection that is concerned.
func (c *Cluster) network(f func()) {
	_ = c.do(func() error {
		type pair struct {
			r    *resource
			a, b string
		}
		before := map[pair]bool{}
		for _, r := range c.resources {
			for a, x := range r.replicas {
				for b := range x.peers {
					before[pair{r, a, b}] = r.reaches(a, b)
				}
			}
		}
		f()
		for _, name := range slices.Sorted(maps.Keys(c.resources)) {
			r := c.resources[name]
			touched := false
			for _, a := range r.nodes() {
				for _, b := range r.replicas[a].peerNames() {
					now := r.reaches(a, b)
					switch {
					case a > b || now == before[pair{r, a, b}]:
						continue
					case now:
						r.mendLink(a, b)
					default:
						r.breakLink(a, b)
					}
					touched = true
				}
			}
			if touched {
				r.touch()
			}
		}
		return nil
	})
}

// SetQuorum changes a resource's quorum setting on the named nodes, or on all its running ones when none is
// named. The others go on with what they had, as nodes do that a new setting has not reached.
func (c *Cluster) SetQuorum(resourceName, value string, heardBy ...string) error {
	return c.SetOption(resourceName, OptionQuorum, value, heardBy...)
}

// SetOption changes any DRBD option of a resource like [Cluster.SetQuorum]. An empty value is DRBD's default.
func (c *Cluster) SetOption(resourceName, option, value string, heardBy ...string) error {
	return c.do(func() error {
		r := c.resources[resourceName]
		if r == nil {
			return fmt.Errorf("resource %s: %w", resourceName, ErrNotFound)
		}
		if value != "" {
			if err := checkOptions(resourceName, map[string]string{option: value}); err != nil {
				return err
			}
		}
		changed := false
		for _, name := range r.nodes() {
			x := r.replicas[name]
			if len(heardBy) == 0 && !x.up || len(heardBy) > 0 && !slices.Contains(heardBy, name) || x.options[option] == value {
				continue
			}
			changed = true
			if value == "" {
				delete(x.options, option)
			} else {
				x.options[option] = value
			}
		}
		if changed {
			r.touch()
		}
		return nil
	})
}

// SetDisk puts one volume's disk on a node into a state such as [Failed] or [Inconsistent]. It stays so where
// DRBD would keep it: no rule of the model moves a failed disk.
func (c *Cluster) SetDisk(resourceName, nodeName string, volume int, state string) error {
	return c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil {
			return err
		}
		if volume < 0 || volume >= len(x.disks) || x.diskless() {
			return fmt.Errorf("resource %s on node %s: disk of volume %d: %w", resourceName, nodeName, volume, ErrNotFound)
		}
		x.disks[volume] = state
		r.touch()
		return nil
	})
}

// Reconnect ends StandAlone on a node's connections of a resource, as drbdadm adjust does.
func (c *Cluster) Reconnect(resourceName, nodeName string) error {
	return c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil {
			return err
		}
		for _, p := range x.peers {
			if p.state == StandAlone {
				p.state = Connecting
			}
		}
		r.touch()
		return nil
	})
}

// on returns the resources with a replica on a node, sorted by name.
func (c *Cluster) on(nodeName string) []*resource {
	var list []*resource
	for _, name := range slices.Sorted(maps.Keys(c.resources)) {
		if r := c.resources[name]; r.replicas[nodeName] != nil {
			list = append(list, r)
		}
	}
	return list
}
