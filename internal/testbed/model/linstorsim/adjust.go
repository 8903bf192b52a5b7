package linstorsim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// AdjustFault is what goes wrong when a satellite adjusts the DRBD of a resource.
type AdjustFault int

// Faults of an adjust. None of them shows on the replica, and none is tried again until something touches the definition
// or the satellite connects anew.
const (
	// AdjustWorks is no fault.
	AdjustWorks AdjustFault = iota
	// AdjustFailsAtOptions changes nothing.
	AdjustFailsAtOptions
	// AdjustFailsAtPeers sets the options, and adds and removes no peer.
	AdjustFailsAtPeers
	// AdjustHangs changes nothing; LINSTOR waits for it.
	AdjustHangs
)

// SetAdjustFault makes the adjusts of a resource on a node go wrong from now on; with an empty resource, those of all
// resources there that have no fault of their own.
func (s *Server) SetAdjustFault(nodeName, resourceName string, fault AdjustFault) {
	s.onNode(nodeName, func(n *node) {
		if n.adjustFaults == nil {
			n.adjustFaults = map[string]AdjustFault{}
		}
		n.adjustFaults[fold(resourceName)] = fault
		if fault == AdjustWorks {
			delete(n.adjustFaults, fold(resourceName))
		}
	})
}

// DelayAdjust replaces [Options.AdjustDelay] for a node; [Immediately] is none, 0 the option's again.
func (s *Server) DelayAdjust(nodeName string, d time.Duration) {
	s.onNode(nodeName, func(n *node) {
		n.adjustDelay = nil
		if d != 0 {
			n.adjustDelay = new(max(d, 0))
		}
	})
}

// job is one satellite's adjust of one resource.
type job struct {
	resource string
	config   drbd.Config
	// optionsOnly is set for a replica that is to be deleted and could not be.
	optionsOnly bool
}

// job is what a satellite is to bring the DRBD of a resource to, as far as it was told.
func (s *Server) job(d *definition, rsc *resource) job {
	config := drbd.Config{Replica: rsc.spec(), Volumes: d.volumes, SizeKiB: d.sizeKiB, Options: map[string]string{}}
	for key, option := range drbdOptions {
		config.Options[option] = s.effective(d, rsc, key)
	}
	config.Options[drbd.OptionQuorum] = rsc.heard
	config.New = rsc.first
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		// Two diskless replicas have no connection.
		if other := d.resources[name]; other != rsc && !other.leaves() && !(other.has(FlagDiskless) && rsc.has(FlagDiskless)) {
			config.Peers = append(config.Peers, other.spec())
		}
	}
	return job{d.name, config, rsc.leaves()}
}

// adjustable tells whether satellites have anything to do for a resource.
func (d *definition) adjustable(rsc *resource) bool {
	return d.drbd() && d.volumes > 0 && !rsc.has(FlagInactive)
}

// send sends a definition to its satellites, and carries out the deletions that LINSTOR itself has decided on. A satellite
// that is silent hears of it when it is heard again, one that is away by its next full sync.
func (s *Server) send(resourceName string) outcome {
	s.mu.Lock()
	d := s.definitions[fold(resourceName)]
	if d == nil {
		s.mu.Unlock()
		return outcome{}
	}
	var jobs []job
	var surplus, slow []*resource
	for _, name := range slices.Sorted(maps.Keys(d.resources)) {
		rsc := d.resources[name]
		switch n := rsc.node; {
		case !d.adjustable(rsc):
		case n.listens():
			rsc.heard = s.wantedQuorum(d)
			switch j := s.job(d, rsc); {
			case n.pending != nil:
				n.pending[fold(d.name)] = j
			case s.adjustTime(n) > 0:
				slow = append(slow, rsc)
				s.takeTime(d, rsc, func() { s.run([]job{s.currentJob(d, rsc)}) })
			default:
				jobs = append(jobs, j)
			}
		case n.connected && n.status == Online:
			n.queue(d)
		}
		if rsc.surplus && rsc.node.listens() {
			rsc.surplus = false
			surplus = append(surplus, rsc)
		}
	}
	s.mu.Unlock()
	result := s.run(jobs)
	for _, rsc := range slow {
		result.add(s.adjustFault(rsc.node.name, d.name))
	}
	for _, rsc := range surplus {
		// One that somebody has opened meanwhile stays, with its flag.
		_ = s.forget(d, rsc)
	}
	return result
}

// adjustTime is how long a satellite takes.
func (s *Server) adjustTime(n *node) time.Duration {
	if s.options.AdjustTime == nil {
		return 0
	}
	return s.options.AdjustTime(n.name)
}

// takeTime lets a satellite do something with a resource when it has taken its time. If LINSTOR does not reach it any more by then, it
// hears of the definition again when LINSTOR does. It is called with the lock held, f is not.
func (s *Server) takeTime(d *definition, rsc *resource, f func()) {
	time.AfterFunc(s.adjustTime(rsc.node), func() {
		s.mu.Lock()
		known := !s.closed && s.definitions[fold(d.name)] == d && d.resources[fold(rsc.node.name)] == rsc
		if known && !rsc.node.listens() && rsc.node.connected {
			rsc.node.queue(d)
		}
		ready := known && rsc.node.listens()
		s.mu.Unlock()
		if ready {
			f()
		}
	})
}

// queue notes that a definition was sent to a satellite that does not hear it.
func (n *node) queue(d *definition) {
	if n.queued == nil {
		n.queued = map[string]bool{}
	}
	n.queued[fold(d.name)] = true
}

// currentJob is [Server.job] without the lock.
func (s *Server) currentJob(d *definition, rsc *resource) job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job(d, rsc)
}

// repeated lists what the satellites of some nodes do when they hear of other properties than a definition's: they adjust
// everything to what they know.
func (s *Server) repeated(of func(*node) bool) (jobs []job) {
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			if rsc := d.resources[name]; of(rsc.node) && rsc.node.listens() && rsc.node.pending == nil && d.adjustable(rsc) {
				jobs = append(jobs, s.job(d, rsc))
			}
		}
	}
	return jobs
}

// outcome is how the satellites fared.
type outcome struct{ failed, hung bool }

// add adds what went wrong with one of them.
func (o *outcome) add(fault AdjustFault) {
	o.hung = o.hung || fault == AdjustHangs
	o.failed = o.failed || fault == AdjustFailsAtOptions || fault == AdjustFailsAtPeers
}

// run carries out adjusts, those of new replicas first: they are there when the others look for them.
func (s *Server) run(jobs []job) (result outcome) {
	known := func(j job) bool {
		_, ok := s.cluster.Replica(j.resource, j.config.Replica.Node)
		return ok
	}
	var old []job
	for _, j := range jobs {
		if known(j) {
			old = append(old, j)
		} else if !j.optionsOnly {
			s.carryOut(j, &result)
		}
	}
	for _, j := range old {
		s.carryOut(j, &result)
	}
	return result
}

func (s *Server) carryOut(j job, result *outcome) {
	fault := s.adjustFault(j.config.Replica.Node, j.resource)
	var err error
	result.add(fault)
	switch {
	case fault == AdjustHangs, fault == AdjustFailsAtOptions:
	case fault == AdjustFailsAtPeers || j.optionsOnly:
		err = s.cluster.AdjustOptions(j.resource, j.config)
	default:
		err = s.cluster.Adjust(j.resource, j.config)
	}
	result.failed = result.failed || err != nil
	s.onNode(j.config.Replica.Node, func(n *node) {
		switch {
		case fault == AdjustHangs: // the command is given up, and no resource named
			n.report("ChildProcessTimeoutException", "External command timed out")
		case fault == AdjustFailsAtOptions || fault == AdjustFailsAtPeers || err != nil:
			n.report("ResourceException", "Failed to adjust DRBD resource "+j.resource)
		}
	})
}

func (s *Server) adjustFault(nodeName, resourceName string) (fault AdjustFault) {
	s.onNode(nodeName, func(n *node) { fault = n.adjustFault(resourceName) })
	return fault
}

// fullSync tells a satellite everything. It adjusts a moment later, even if it is cut off meanwhile.
func (s *Server) fullSync(n *node) {
	pending := map[string]job{}
	s.eachOn(n, func(d *definition, rsc *resource) {
		if d.adjustable(rsc) {
			rsc.heard = s.wantedQuorum(d)
			pending[fold(d.name)] = s.job(d, rsc)
		}
	})
	n.pending = pending
	for _, d := range s.definitions {
		// LINSTOR looks at them all after a full sync, and sends nothing of what it changes here.
		s.updateQuorum(d)
	}
	delay := s.options.AdjustDelay
	if n.adjustDelay != nil {
		delay = *n.adjustDelay
	}
	serial := n.syncs + 1
	n.syncs = serial
	name := n.name
	// Changing the cluster needs the lock free.
	time.AfterFunc(delay, func() {
		s.mu.Lock()
		if n.syncs != serial || n.pending == nil || s.closed {
			s.mu.Unlock()
			return
		}
		jobs := slices.Collect(maps.Values(n.pending))
		slices.SortFunc(jobs, func(a, b job) int { return strings.Compare(a.resource, b.resource) })
		n.pending = nil
		s.mu.Unlock()
		s.run(jobs)
		s.deleteWaiting(name)
	})
}

// deliver brings a satellite that is heard again what was sent to it meanwhile.
func (s *Server) deliver(nodeName string) {
	var jobs []job
	s.onNode(nodeName, func(n *node) {
		if !n.listens() || n.pending != nil {
			return
		}
		s.eachOn(n, func(d *definition, rsc *resource) {
			if n.queued[fold(d.name)] && d.adjustable(rsc) {
				rsc.heard = s.wantedQuorum(d)
				jobs = append(jobs, s.job(d, rsc))
			}
		})
		n.queued = nil
	})
	s.run(jobs)
	s.deleteWaiting(nodeName)
}

// deleteWaiting carries out the deletions that have waited for a satellite. What is open stays, with its flag.
func (s *Server) deleteWaiting(nodeName string) {
	type deletion struct {
		d   *definition
		rsc *resource
	}
	var deletions []deletion
	s.onNode(nodeName, func(n *node) {
		if !n.listens() {
			return
		}
		s.eachOn(n, func(d *definition, rsc *resource) {
			if rsc.has(FlagDelete) && !rsc.has(FlagEvicted) {
				deletions = append(deletions, deletion{d, rsc})
			}
		})
	})
	for _, x := range deletions {
		_ = s.forget(x.d, x.rsc)
	}
}
