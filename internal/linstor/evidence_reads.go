package linstor

import (
	"context"
	"time"
)

const (
	// listsAwaited is for how long after a replica has come, or a disk, a resource is read often of which evidence is awaited: a node that meets it
	// shows by that what it has applied.
	listsAwaited = 15 * time.Second
	// listsApart is how far these readings are apart.
	listsApart = 2 * time.Second
)

// awaitEvidence asks for the readings that show that nodes have applied what LINSTOR wants: that a satellite has left and come back, that a
// replica has met a new one.
func (f *Feed) awaitEvidence(_ context.Context, now time.Time) error {
	if early := f.store.earlyWord(); now.Sub(early) < evidenceEvery {
		f.schedule.hint(early)
	}
	f.pollAll(f.store.awaitsLists(now))
	return nil
}

// earlyWord is when a replica last reported whose node was not known to be ONLINE: satellites report up to 6 s before, and no event
// tells when they are.
func (s *Store) earlyWord() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.early.time()
}

// awaitsLists returns the resources that must be read for evidence: their replicas have changed a moment ago, or a node has been back for
// long enough.
func (s *Store) awaitsLists(now time.Time) (names []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key := range s.unsettled {
		e := s.resources[key]
		if e == nil {
			continue
		}
		age := now.Sub(e.set.Confirmed)
		due := false
		for i := range e.replicas {
			r := &e.replicas[i]
			came := max(r.listed, r.toggled)
			due = due || came != 0 && now.Sub(came.time()) < listsAwaited && age >= listsApart
			n := s.nodes[r.Node]
			due = due || r.evidence.Awaits(&e.fence) && n != nil && n.back > n.away && r.read < n.back && age >= listsApart
		}
		if due {
			names = append(names, e.name)
		}
	}
	return names
}

func (s *Store) unsettledOf(names []string) (unsettled []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range names {
		if s.unsettled[fold(name)] {
			unsettled = append(unsettled, name)
		}
	}
	return unsettled
}
