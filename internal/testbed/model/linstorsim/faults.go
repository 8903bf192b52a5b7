package linstorsim

import "time"

// ConnectionStatus returns the status that LINSTOR shows of a node; empty for unknown nodes.
func (s *Server) ConnectionStatus(nodeName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fold(nodeName)]; n != nil {
		return n.status
	}
	return ""
}

// Hears tells whether what a node's satellite says reaches LINSTOR now.
func (s *Server) Hears(nodeName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[fold(nodeName)]
	return n != nil && n.reports()
}

// StopSatellite ends the satellite process on a node. It closes its connection: the controller knows at once.
func (s *Server) StopSatellite(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.running, n.pending, n.process = false, nil, n.process+1
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
	s.deliver(nodeName)
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
		case !n.connected, n.blind:
		case n.reports():
			s.reportAll(n)
		default:
			s.lose(n, 0)
		}
	})
	s.deliver(nodeName)
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

// EndEvents ends a satellite's drbdsetup events2. Until the satellite starts another one after 5 s, its words are frozen
// while it is ONLINE; then may_promote and the score are absent for the [Options.EventsDelay], and everything is true again. Whatever
// ends the satellite's connection ends this too.
func (s *Server) EndEvents(nodeName string) {
	const pause = 5 * time.Second
	s.onNode(nodeName, func(n *node) {
		if !n.reports() {
			return
		}
		s.eventEnds++
		end := s.eventEnds
		n.eventsEnded = end
		s.later(pause, func() {
			if n.eventsEnded != end {
				return
			}
			if n.linked() {
				s.eachOn(n, func(d *definition, rsc *resource) {
					if v := rsc.values; v != nil {
						s.store(d, rsc, &values{inUse: v.inUse, connections: v.connections, disks: v.disks})
					}
				})
			}
			s.later(s.options.EventsDelay, func() {
				if n.eventsEnded == end {
					n.eventsEnded = 0
					s.reportAll(n)
				}
			})
		})
	})
}

// SetPingTimeout gives a node a [Options.PingTimeout] of its own for what happens from now on; 0 takes it away.
func (s *Server) SetPingTimeout(nodeName string, d time.Duration) {
	s.onNode(nodeName, func(n *node) { n.pingTimeout = d })
}

// Crash takes the power from a node: DRBD and satellite are gone without a word.
func (s *Server) Crash(nodeName string) {
	s.onNode(nodeName, func(n *node) {
		n.running, n.broken, n.pending, n.process = false, true, nil, n.process+1
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
