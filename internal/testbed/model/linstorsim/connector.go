package linstorsim

// LoseConnector ends the thread by which the controller talks to its satellites, as "linstor node lost" can during a reconnect. From
// then on it hears of no satellite, notices no loss, reaches nobody and sends nothing, and it does not know that: REST answers at once,
// each node keeps the status and each replica the values that it has. Only the storage pools tell that there are no connections.
// [Server.Restart] ends it.
func (s *Server) LoseConnector() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.closed {
		return
	}
	s.blind = true
	for _, n := range s.nodes {
		n.blind = true
		n.settle() // nobody is waited for any more
	}
}

// Blind tells whether the controller has lost its connector.
func (s *Server) Blind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blind
}

// regain gives a new controller process its connector.
func (s *Server) regain() {
	s.blind = false
	for _, n := range s.nodes {
		n.blind = false
	}
}
