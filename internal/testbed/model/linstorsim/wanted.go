package linstorsim

// WantedQuorum is the quorum that LINSTOR wants and shows for a resource definition; empty where there is no such one.
func (s *Server) WantedQuorum(resourceName string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions[fold(resourceName)]; d != nil {
		return s.wantedQuorum(d)
	}
	return ""
}

// HasDefinition tells whether LINSTOR has a resource definition, which it keeps also where the last replica is gone.
func (s *Server) HasDefinition(resourceName string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.definitions[fold(resourceName)] != nil
}
