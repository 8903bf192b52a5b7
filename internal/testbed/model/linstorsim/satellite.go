package linstorsim

import (
	"cmp"
	"time"
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
	uuid  string
	flags []string
	props map[string]string

	// running and reachable are the truth: the satellite process runs, and packets reach it.
	running, reachable bool
	// process is the number of the satellite's process, and written are the reports of what went wrong in it and in earlier ones.
	process int
	written []errorReport
	// broken is set when the satellite process of the present connection is gone without having closed it.
	broken bool
	// poolKiB is the capacity of its storage pool; 0 where that has room for everything.
	poolKiB int64
	// pingTimeout is the node's own, see [Server.SetPingTimeout]; zero where it has none.
	pingTimeout time.Duration
	// adjustFaults are what goes wrong with adjusts, by resource; of all of them by the empty name.
	adjustFaults map[string]AdjustFault
	// adjustDelay replaces the option's of that name where it is not nil.
	adjustDelay *time.Duration
	// pending is the adjust that the satellite has been told of by a full sync and has not begun yet.
	pending map[string]job
	// syncs counts the full syncs: a later one replaces what an earlier one left to do.
	syncs int
	// frozen makes the controller see nothing of the satellite any more without noticing it.
	frozen bool
	// blind is set on each node while the controller has no connector, see [Server.LoseConnector].
	blind bool

	// connected and status are what the controller believes.
	connected bool
	status    string
	// lost is when the controller lost the satellite; attempts to reach it count from then.
	lost time.Time
	// attempt tells planned steps of an earlier connection from those of the present one.
	attempt int
	// speaking is set while the values of a satellite that is not ONLINE yet are shown already, partial while its
	// connections are not complete.
	speaking, partial bool
	// eventsEnded is the number of the last end of the satellite's events2 until it has got over it, then 0.
	eventsEnded int
	// queued are the definitions that were sent to the satellite while it was silent.
	queued map[string]bool
	// stranger is set while LINSTOR does not know the node, evicted while it does not talk to it.
	stranger, evicted bool
	// unsettled is closed when the controller has found out that a silent satellite is gone, or that it is not.
	unsettled chan struct{}
	// poolsHang is not nil while queries of the thin pools hang, and closed when they do not any more.
	poolsHang chan struct{}
}

// reports tells whether the satellite's words reach the controller.
func (n *node) reports() bool {
	return n.linked() && (n.status == Online || n.speaking) && n.eventsEnded == 0
}

// listens tells whether what LINSTOR sends reaches the satellite.
func (n *node) listens() bool { return n.linked() && n.status == Online }

func (n *node) linked() bool {
	return n.connected && n.running && n.reachable && !n.broken && !n.unnoticed()
}

// unnoticed tells whether the controller notices nothing of the satellite.
func (n *node) unnoticed() bool { return n.frozen || n.blind }

// hangUp forgets what belongs to a connection that has ended.
func (n *node) hangUp() {
	n.speaking, n.partial, n.eventsEnded, n.queued = false, false, 0, nil
}

// settle releases those who wait for a silent satellite.
func (n *node) settle() {
	if n.unsettled != nil {
		close(n.unsettled)
		n.unsettled = nil
	}
}

// AddNode adds a node with an ONLINE satellite to LINSTOR and, where it is missing, to the cluster. A node that LINSTOR
// has forgotten is as it is by now, and joins if it can be reached.
func (s *Server) AddNode(name string) {
	s.cluster.AddNode(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fold(name)
	if n := s.strangers[key]; n != nil {
		s.recall(n)
		s.join(n, n.attempt)
	}
	if s.nodes[key] == nil {
		s.nodes[key] = &node{
			name: name, props: map[string]string{}, status: Online, connected: true, running: true, reachable: true,
			uuid: s.newUUID("node", name),
		}
		if s.blind {
			s.nodes[key].status, s.nodes[key].connected, s.nodes[key].blind = Offline, false, true
		}
	}
}

func (s *Server) displayName(nodeName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := cmp.Or(s.nodes[fold(nodeName)], s.strangers[fold(nodeName)]); n != nil {
		return n.name
	}
	return nodeName
}

// onNode runs f with the lock held if there is such a node, whether or not LINSTOR knows it.
func (s *Server) onNode(nodeName string, f func(*node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := cmp.Or(s.nodes[fold(nodeName)], s.strangers[fold(nodeName)]); n != nil {
		f(n)
	}
}

// fallSilent lets the controller's pings go unanswered from now on.
func (s *Server) fallSilent(n *node) {
	if !n.connected || n.unsettled != nil || n.blind {
		return
	}
	n.unsettled = make(chan struct{})
	n.attempt++
	attempt := n.attempt
	s.later(cmp.Or(n.pingTimeout, s.options.PingTimeout), func() {
		if n.attempt == attempt && !n.unnoticed() {
			s.lose(n, 0)
		}
	})
}

// closedByPeer is the end of a connection by FIN or RST: values go at once, the status lags behind.
func (s *Server) closedByPeer(n *node) {
	if n.connected && !n.unnoticed() {
		s.lose(n, s.options.StatusLag)
	}
}

// lose makes the controller forget what a satellite reported, with one event for every value that was known.
func (s *Server) lose(n *node, statusLag time.Duration) {
	n.connected, n.broken = false, false
	n.hangUp()
	s.endMoves(n)
	s.endShipments(n)
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

// reconnect plans the controller's next attempt to reach a satellite: the first one after the loss, or a multiple of the reconnect
// interval later.
func (s *Server) reconnect(n *node) {
	if n.connected || s.down {
		return
	}
	interval := max(s.options.ReconnectInterval, 1)
	wait := cmp.Or(s.options.FirstReconnect, interval) - time.Since(n.lost)
	if wait <= 0 {
		wait = interval - -wait%interval
	}
	attempt := n.attempt
	s.later(wait, func() { s.join(n, attempt) })
}

// join is a successful attempt to connect: CONNECTED, a full sync, ONLINE.
func (s *Server) join(n *node, attempt int) {
	if n.attempt != attempt || n.connected || !n.running || !n.reachable || n.stranger || n.evicted || n.blind {
		return
	}
	n.attempt++
	attempt = n.attempt
	n.connected, n.broken, n.status = true, false, Joining
	current := func() bool { return n.attempt == attempt && n.connected && !n.blind }
	early := min(s.options.ValuesBeforeOnline, s.options.SyncDuration)
	if early > 0 {
		s.later(s.options.SyncDuration-early, func() {
			if current() {
				n.speaking = true
				s.firstWords(n, current)
			}
		})
	}
	s.later(s.options.SyncDuration, func() {
		if !current() {
			return
		}
		n.status = Online
		if early == 0 {
			s.firstWords(n, current)
		}
		s.fullSync(n)
	})
}

// firstWords shows the values of a satellite that is back: at first not all of them.
func (s *Server) firstWords(n *node, current func() bool) {
	n.partial = s.options.PartialConnections > 0
	s.reportAll(n)
	if !n.partial {
		return
	}
	s.later(s.options.PartialConnections, func() {
		if current() {
			n.partial = false
			s.reportAll(n)
		}
	})
}
