package linstorsim

import "time"

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
