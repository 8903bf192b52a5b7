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
