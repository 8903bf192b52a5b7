package linstorsim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
)

// Connection states of a node, as LINSTOR shows them.
const (
	Offline = "OFFLINE"
	Joining = "CONNECTED"
	Online  = "ONLINE"
)

// node is one LINSTOR node and the controller's connection to its satellite.
type node struct {
	name  string
	flags []string
	props map[string]string

	// running and reachable are the truth: the satellite process runs, and packets reach it.
	running, reachable bool
	// broken is set when the satellite process of the present connection is gone without having closed it.
	broken bool
	// frozen makes the controller see nothing of the satellite any more without noticing it.
	frozen bool

	// connected and status are what the controller believes.
	connected bool
	status    string
	// lost is when the controller lost the satellite; attempts to reach it count from then.
	lost time.Time
	// attempt tells planned steps of an earlier connection from those of the present one.
	attempt int
	// unsettled is closed when the controller has found out that a silent satellite is gone, or that it is not.
	unsettled chan struct{}
}

// reports tells whether the satellite's words reach the controller.
func (n *node) reports() bool {
	return n.connected && n.status == Online && n.running && n.reachable && !n.broken && !n.frozen
}

// settle releases those who wait for a silent satellite.
func (n *node) settle() {
	if n.unsettled != nil {
		close(n.unsettled)
		n.unsettled = nil
	}
}

// AddNode adds a node with an ONLINE satellite to LINSTOR and, where it is missing, to the cluster.
func (s *Server) AddNode(name string) {
	s.cluster.AddNode(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[fold(name)] == nil {
		s.nodes[fold(name)] = &node{
			name: name, props: map[string]string{}, status: Online, connected: true, running: true, reachable: true,
		}
	}
}

// ConnectionStatus returns the status that LINSTOR shows of a node; empty for unknown nodes.
func (s *Server) ConnectionStatus(nodeName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fold(nodeName)]; n != nil {
		return n.status
	}
	return ""
}

// StopSatellite ends the satellite process on a node. It closes its connection: the controller knows at once.
func (s *Server) StopSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.running = false
		if n.reachable {
			s.closedByPeer(n)
		} else {
			n.broken = true
		}
	})
}

// CutSatellite stops all traffic between the controller and a node's satellite; the controller gives it up after
// the ping timeout.
func (s *Server) CutSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.reachable = false
		s.fallSilent(n)
	})
}

// RestoreSatellite starts the satellite process on a node if it does not run, and lets traffic through. A
// connection that nobody has given up goes on; otherwise the controller's next attempt succeeds.
func (s *Server) RestoreSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.running, n.reachable = true, true
		switch {
		case n.connected && n.broken:
			s.closedByPeer(n)
		case n.connected:
			n.attempt++
			n.settle()
			s.reportAll(n)
		default:
			s.reconnect(n)
		}
	})
	s.adjust(nodeName)
}

// FreezeSatellite makes a node stay ONLINE with the values it has, whatever happens to the satellite, the node or
// DRBD there, until [Server.UnfreezeSatellite].
func (s *Server) FreezeSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) { n.frozen = true })
}

// UnfreezeSatellite undoes FreezeSatellite: the controller catches up with the satellite, or finds it gone.
func (s *Server) UnfreezeSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.frozen = false
		switch {
		case !n.connected:
		case n.reports():
			s.reportAll(n)
		default:
			s.lose(n, 0)
		}
	})
	s.adjust(nodeName)
}

// RestartEvents restarts a satellite's drbdsetup events2: every value of the node is absent for a moment, and
// in_use reads false where the role is not known yet.
func (s *Server) RestartEvents(nodeName string) {
	const moment = 5 * time.Millisecond
	s.onNode(nodeName, func(n *node) {
		if !n.reports() {
			return
		}
		s.eachOn(n, func(d *definition, rsc *resource) {
			if rsc.values != nil {
				s.store(d, rsc, &values{inUse: new(false)})
			}
		})
		s.later(moment, func() {
			if n.reports() {
				s.reportAll(n)
			}
		})
	})
}

// Crash takes the power from a node: DRBD and satellite are gone without a word.
func (s *Server) Crash(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.running, n.broken = false, true
		s.fallSilent(n)
	})
	s.cluster.Crash(s.displayName(nodeName))
}

// Return boots a crashed node, DRBD and satellite.
func (s *Server) Return(nodeName string) {
	s.cluster.Return(s.displayName(nodeName))
	s.RestoreSatellite(nodeName)
}

// Isolate takes a running node off the network, DRBD's and LINSTOR's.
func (s *Server) Isolate(nodeName string) {
	s.CutSatellite(nodeName)
	s.cluster.Isolate(s.displayName(nodeName))
}

// Rejoin undoes Isolate.
func (s *Server) Rejoin(nodeName string) {
	s.cluster.Rejoin(s.displayName(nodeName))
	s.RestoreSatellite(nodeName)
}

func (s *Server) displayName(nodeName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fold(nodeName)]; n != nil {
		return n.name
	}
	return nodeName
}

// onNode runs f with the lock held if there is such a node.
func (s *Server) onNode(nodeName string, f func(*node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fold(nodeName)]; n != nil {
		f(n)
	}
}

// fallSilent lets the controller's pings go unanswered from now on.
func (s *Server) fallSilent(n *node) {
	if !n.connected || n.unsettled != nil {
		return
	}
	n.unsettled = make(chan struct{})
	n.attempt++
	attempt := n.attempt
	s.later(s.options.PingTimeout, func() {
		if n.attempt == attempt && !n.frozen {
			s.lose(n, 0)
		}
	})
}

// closedByPeer is the end of a connection by FIN or RST: values go at once, the status lags behind.
func (s *Server) closedByPeer(n *node) {
	if n.connected && !n.frozen {
		s.lose(n, s.options.StatusLag)
	}
}

// lose makes the controller forget what a satellite reported, with one event for every value that was known.
func (s *Server) lose(n *node, statusLag time.Duration) {
	n.connected, n.broken = false, false
	n.lost = time.Now()
	n.attempt++
	attempt := n.attempt
	n.settle()
	s.eachOn(n, func(d *definition, rsc *resource) { s.store(d, rsc, nil) })
	s.later(statusLag, func() {
		if n.attempt == attempt {
			n.status = Offline
		}
	})
	if n.running && n.reachable {
		s.reconnect(n)
	}
}

// reconnect plans the controller's next attempt to reach a satellite: a multiple of the reconnect interval after
// the loss.
func (s *Server) reconnect(n *node) {
	if n.connected || s.down {
		return
	}
	interval := max(s.options.ReconnectInterval, 1)
	attempt := n.attempt
	s.later(interval-time.Since(n.lost)%interval, func() { s.join(n, attempt) })
}

// join is a successful attempt to connect: CONNECTED, a full sync, ONLINE.
func (s *Server) join(n *node, attempt int) {
	if n.attempt != attempt || n.connected || !n.running || !n.reachable {
		return
	}
	n.attempt++
	attempt = n.attempt
	n.connected, n.broken, n.status = true, false, Joining
	s.later(s.options.SyncDuration, func() {
		if n.attempt != attempt || !n.connected {
			return
		}
		n.status = Online
		s.reportAll(n)
		// The full sync brings settings and deletions to the node. Changing the cluster needs the lock free.
		name := n.name
		time.AfterFunc(0, func() { s.adjust(name) })
	})
}

// changed is told by the cluster that a replica's state is different.
func (s *Server) changed(resourceName, nodeName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, d := s.nodes[fold(nodeName)], s.definitions[fold(resourceName)]
	if n == nil || d == nil || d.resources[fold(nodeName)] == nil || !n.reports() {
		return
	}
	s.report(d, d.resources[fold(nodeName)])
}

// reportAll stores the present state of everything on a node.
func (s *Server) reportAll(n *node) {
	if n.reports() {
		s.eachOn(n, s.report)
	}
}

// report stores the present state of one replica, as its satellite sends it.
func (s *Server) report(d *definition, rsc *resource) {
	state, ok := s.cluster.Replica(d.name, rsc.node.name)
	if !ok {
		s.store(d, rsc, nil)
		return
	}
	if rsc.fresh && state.MayPromote {
		s.store(d, rsc, &values{inUse: new(false), mayPromote: new(false), score: new(0)})
	}
	rsc.fresh = false
	s.store(d, rsc, &values{
		inUse:       new(state.Role == drbd.Primary),
		mayPromote:  new(state.MayPromote),
		score:       new(state.Score),
		connections: state.Connections,
		disks:       state.DiskStates,
	})
}

// store replaces what the controller knows of a replica, nil being nothing. If may promote changed, among true,
// false and unknown, every subscriber is told first.
func (s *Server) store(d *definition, rsc *resource, v *values) {
	if before, now := rsc.values.promotable(), v.promotable(); before != now {
		s.broadcast(eventText(d.name, rsc.node.name, v.mayPromoteOrNil()))
	}
	rsc.values = v
	if v != nil && v.inUse != nil && *v.inUse {
		// LINSTOR keeps a tie-breaker that somebody works on as an ordinary diskless resource.
		rsc.flags = slices.DeleteFunc(rsc.flags, func(flag string) bool { return flag == FlagTieBreaker })
	}
}

// eachOn calls f for every resource on a node, sorted by name.
func (s *Server) eachOn(n *node, f func(*definition, *resource)) {
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		if rsc := d.resources[fold(n.name)]; rsc != nil {
			f(d, rsc)
		}
	}
}

// values are what a satellite reported of one replica; nil pointers are unknown.
type values struct {
	inUse       *bool
	mayPromote  *bool
	score       *int
	connections map[string]string
	disks       []string
}

func (v *values) mayPromoteOrNil() *bool {
	if v == nil {
		return nil
	}
	return v.mayPromote
}

// promotable is may promote as a comparable three-valued word.
func (v *values) promotable() string {
	p := v.mayPromoteOrNil()
	if p == nil {
		return "unknown"
	}
	return fmt.Sprint(*p)
}
