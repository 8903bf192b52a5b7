package drbd

import "fmt"

// Open opens the resource's device on a node, as mounting it or starting a pod with a raw block volume does. A
// write open promotes the replica (auto-promote); a read-only open leaves it Secondary. Where DRBD would keep the
// opener waiting for auto-promote-timeout, Open fails at once. The error wraps one of this package's errors.
func (c *Cluster) Open(resourceName, nodeName string, readOnly bool) error {
	return c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil {
			return err
		}
		if err := r.mayOpen(x, readOnly); err != nil {
			return fmt.Errorf("opening resource %s on node %s: %w", resourceName, nodeName, err)
		}
		if readOnly {
			x.readers++
		} else {
			x.writers++
			x.role, x.crashed = Primary, false
		}
		r.touch()
		return nil
	})
}

// Close ends one open of the resource's device on a node, a writer's before a reader's. The last writer's close
// demotes the replica, the last close of all ends force-io-failures. Closing what is not open does nothing.
func (c *Cluster) Close(resourceName, nodeName string) {
	_ = c.do(func() error {
		r, x, err := c.find(resourceName, nodeName)
		if err != nil || !x.up {
			return err
		}
		if x.writers > 0 {
			x.writers--
		} else {
			x.readers = max(x.readers-1, 0)
		}
		if x.writers == 0 {
			x.role = Secondary
		}
		if x.writers+x.readers == 0 {
			x.forced = false
		}
		r.touch()
		return nil
	})
}

// mayOpen is the kernel's drbd_open and the checks of a promotion.
func (r *resource) mayOpen(x *replica, readOnly bool) error {
	switch {
	case !x.up:
		return ErrNodeDown
	case x.forced:
		return ErrForceIOFailures
	case x.role == Primary:
		return nil
	case !x.hasQuorum():
		return ErrNoQuorum
	}
	for v, disk := range x.disks {
		if disk != UpToDate && !r.peerUpToDate(x, v) {
			return ErrNoUpToDateDisk
		}
	}
	members, pending := r.component(x)
	for _, y := range members {
		switch {
		case y == x:
		case x.twoPrimaries() && y.twoPrimaries():
			if y.role == Primary && r.isWeak(x, y) && !readOnly {
				return fmt.Errorf("%w: %s", ErrWeaklyConnected, y.Node)
			}
		case y.role == Primary:
			return fmt.Errorf("%w: %s", ErrPeerPrimary, y.Node)
		case y.readers > 0 && !readOnly:
			return fmt.Errorf("%w: %s", ErrPeerOpen, y.Node)
		}
	}
	if pending && !readOnly {
		return ErrUnresponsive
	}
	return nil
}

// isWeak tells whether two replicas may not both be Primary because they have no connection to each other: their writes would miss each
// other's disk. Between two without a disk, such as hypervisors in a live migration, DRBD allows that (check_primaries_distances in
// drbd_state.c).
func (r *resource) isWeak(x, y *replica) bool {
	return !r.live(x.Node, y.Node) && !(x.diskless() && y.diskless())
}

// peerUpToDate tells whether a live peer has UpToDate data of a volume.
func (r *resource) peerUpToDate(x *replica, volume int) bool {
	for name := range x.peers {
		if r.live(x.Node, name) && r.replicas[name].disks[volume] == UpToDate {
			return true
		}
	}
	return false
}
