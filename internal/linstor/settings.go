package linstor

import (
	"context"
	"errors"
	"time"
)

const (
	// levelsInterval is how often the properties of the controller and of the groups are read. LINSTOR changes all definitions
	// with the controller's, and does not say so.
	levelsInterval = 20 * time.Second
	// evidenceInterval is how often it is looked whether something must be read that evidence is awaited of.
	evidenceInterval = 500 * time.Millisecond
	// awaitedNodesAge is how old the list of nodes may be while evidence is awaited of a node, and missingNodesAge while LINSTOR has
	// just lost one, whose satellite may be back after 6 s, or hears again from one that it does not call ONLINE yet.
	awaitedNodesAge = 5 * time.Second
	missingNodesAge = 400 * time.Millisecond
	// missingFor is how long after LINSTOR has lost word of a replica, or has it again, the nodes are read that often.
	missingFor = 10 * time.Second
)

// readSettings reads what decides on the quorum of all resources, and asks for a read of those whose quorum may have changed.
func (f *Feed) readSettings(ctx context.Context) error {
	if err := f.readUpperLevels(ctx); err != nil {
		return err
	}
	return f.readDefinitions(ctx)
}

// readUpperLevels reads the properties of the controller and of the groups.
func (f *Feed) readUpperLevels(ctx context.Context) error {
	begin := time.Now()
	if err := f.controller.read(ctx, "", begin); err != nil {
		return err
	}
	return f.groups.read(ctx, "", begin)
}

// readDefinitions reads all definitions, and asks for a read of the resources whose quorum has changed: their replicas may have, too.
func (f *Feed) readDefinitions(ctx context.Context) error {
	at := span{start: time.Now()}
	definitions, err := f.client.Definitions(ctx)
	if err != nil {
		return err
	}
	at.end = time.Now()
	for _, name := range f.store.applyDefinitions(definitions, at) {
		f.Poll(name)
	}
	return nil
}

// readLevelsRegularly reads the levels above the definitions, and these once one of those has changed.
func (f *Feed) readLevelsRegularly(ctx context.Context) {
	for sleep(ctx, levelsInterval) {
		err := f.readUpperLevels(ctx)
		if f.levelsChanged.Swap(false) {
			err = errors.Join(err, f.readDefinitions(ctx))
		}
		if err != nil {
			f.failed(err)
		}
	}
}

// awaitEvidence reads what shows that nodes have applied what LINSTOR wants: that a node has been ONLINE for a while, that its satellite
// has left and come back, that a replica has met a new one.
func (f *Feed) awaitEvidence(ctx context.Context) {
	for sleep(ctx, evidenceInterval) {
		now := time.Now()
		age := time.Duration(0)
		switch {
		case now.Sub(time.Unix(0, f.missing.Load())) < missingFor, now.Sub(f.store.earlyWord()) < missingFor:
			age = missingNodesAge
		case f.store.awaitsNodes(now):
			age = awaitedNodesAge
		}
		if age > 0 {
			if err := f.readNodesSince(ctx, now.Add(-age)); err != nil {
				f.failed(err)
			}
		}
		for _, name := range f.store.awaitsLists(now) {
			f.Poll(name)
		}
	}
}

const (
	// nodesAwaited is for how long after a node has come the nodes are read often, and resources after their first reading.
	nodesAwaited = 2 * time.Minute
	// listsAwaited is for how long after a replica has come a resource is read often of which evidence is awaited: who meets it
	// shows by that what its node has applied.
	listsAwaited = 15 * time.Second
	// listsApart is how far these readings are apart.
	listsApart = 2 * time.Second
)

// earlyWord is when a replica last reported whose node was not known to be ONLINE: satellites report up to 6 s before, and no event
// tells when they are.
func (s *Store) earlyWord() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.early.time()
}

// awaitsNodes tells whether a satellite is away, or so lately back or known that its being ONLINE is evidence to come.
func (s *Store) awaitsNodes(now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, n := range s.nodes {
		if n.Satellite && (!isTrue(n.Online) || now.Sub(n.back.time()) < nodesAwaited) {
			return true
		}
	}
	for key := range s.unsettled {
		if e := s.resources[key]; e != nil && now.Sub(e.wantedRead.time()) < nodesAwaited {
			return true
		}
	}
	return false
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
			due = due || r.listed != 0 && now.Sub(r.listed.time()) < listsAwaited && age >= listsApart
			n := s.nodes[r.Node]
			due = due || !r.runs.settled() && n != nil && n.back > n.away && n.away >= e.wantedRead && r.read < n.back && age >= listsApart
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
