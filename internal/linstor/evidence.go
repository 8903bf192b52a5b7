package linstor

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// announceFor is how long after the first list of a replica an event of it still counts as its first word.
const announceFor = 10 * time.Second

// form judges the quorum that LINSTOR wants of a resource by a reading that ended now: the list of its replicas and then the definition,
// which LINSTOR writes in one step. It tells whether that changed anything. The lock must be held.
func (s *Store) form(e *entry, now stamp) (changed bool) {
	d := s.definitions[fold(e.name)]
	quorum, _, byUser := s.quorum(d)
	if e.read && len(e.replicas) > 0 && !e.inDoubt(d) && quorum != "" {
		reading := e.reading(quorum, now)
		reading.ByUser, reading.Marked = byUser, d.quorum.byUser
		changed = e.fence.Judge(reading)
	}
	return s.bearOutOne(fold(e.name), e, now) || changed
}

// reading is what LINSTOR wants of a resource by a reading that ended now.
func (e *entry) reading(quorum string, now stamp) evidence.Reading {
	reading := evidence.Reading{Quorum: quorum, Old: e.old, End: evidence.Moment(now), Brought: e.brought, Lacked: evidence.Moment(e.lacked)}
	for i := range e.replicas {
		r := &e.replicas[i]
		switch r.kind() {
		case evidence.WithDisk:
			reading.Disks++
		case evidence.WithoutDisk:
			reading.Diskless++
		case evidence.Absent:
		}
	}
	e.brought = false
	return reading
}

// formAll is form for all resources. It returns the names of those that it changed. The lock must be held.
func (s *Store) formAll(now stamp) (changed []string) {
	for _, e := range s.resources {
		if s.form(e, now) {
			changed = append(changed, e.name)
		}
	}
	return changed
}

// bearOut looks for evidence, and returns the names of the resources that it changed. The lock must be held.
func (s *Store) bearOut(now stamp) (changed []string) {
	for key := range s.unsettled {
		if e := s.resources[key]; e == nil {
			delete(s.unsettled, key)
		} else if s.bearOutOne(key, e, now) {
			changed = append(changed, e.name)
		}
	}
	return changed
}

func (s *Store) bearOutOne(key string, e *entry, now stamp) (changed bool) {
	settled := true
	for i := range e.replicas {
		r := &e.replicas[i]
		shown := s.shown(e, r)
		if n := s.nodes[r.Node]; n != nil {
			changed = r.evidence.See(shown, n.satellite(), &e.fence) || changed
		}
		r.evidence.Note(&e.fence, evidence.Moment(now))
		settled = settled && !r.evidence.Awaits(&e.fence) && !r.evidence.Overlooks(shown)
	}
	if settled {
		delete(s.unsettled, key)
	} else {
		s.unsettled[key] = true
	}
	return changed
}

// satellite is what evidence needs to know of a node.
func (n *nodeEntry) satellite() evidence.Satellite {
	return evidence.Satellite{
		Online: n.blind == 0 && isTrue(n.Online), Away: evidence.Moment(n.away), Back: evidence.Moment(n.back),
		LastOnline: evidence.Moment(stampOf(n.LastOnline)), Alive: evidence.Moment(n.alive), Sighted: evidence.Moment(n.sighted), Reports: n.reports,
	}
}

// shown is what LINSTOR shows of a replica, and of the others.
func (s *Store) shown(e *entry, r *replicaEntry) evidence.Replica {
	shown := evidence.Replica{
		Peer: s.peer(r), Resource: e.name, Reporting: r.Reports.Value,
		Since: evidence.Moment(r.reporting), Read: evidence.Moment(r.read), Others: make([]evidence.Peer, 0, len(e.replicas)),
	}
	if r.Score.Known { // 1 for each UpToDate copy that it sees of the volume with the fewest
		shown.UpToDate, shown.SeenAt = r.Score.Value%100, evidence.Moment(stampOf(r.Score.Confirmed))
	}
	for i := range e.replicas {
		if peer := &e.replicas[i]; peer.Node != r.Node {
			shown.Others = append(shown.Others, s.peer(peer))
		}
	}
	return shown
}

func (s *Store) peer(r *replicaEntry) evidence.Peer {
	n := s.nodes[r.Node]
	return evidence.Peer{
		Node: r.Node, Kind: r.kind(), Diskless: r.Diskless, Detached: r.isDetached(), Wanted: !r.Leaving && (n == nil || !n.Leaving),
		Listed: evidence.Moment(r.listed), Lacked: evidence.Moment(r.lacked), Toggled: evidence.Moment(r.toggled),
	}
}

// isDetached tells whether a replica says itself that it has no UpToDate disk: drbdsetup_events2.c, compute_promotion_info counts 10000 for a disk, 100 for
// each UpToDate volume of it, and 1 for each UpToDate copy; with no quorum it says 0.
func (r *replicaEntry) isDetached() bool {
	return r.Score.Known && r.Score.Value > 0 && r.Score.Value%10000 < 100 && stampOf(r.Score.Confirmed) > r.toggled
}

func (r *replicaEntry) kind() evidence.Kind { return evidence.KindOf(r.Diskless, r.Client) }

// votes are whom a replica counts.
func (s *Store) votes(e *entry, r *replicaEntry) []evidence.Vote {
	return r.evidence.Votes(s.shown(e, r), func(node string) (evidence.Kind, bool) {
		if known := s.gone[fold(e.name)][node]; known != nil {
			return known.kind(), true
		}
		return 0, false
	})
}

// meet takes over which connections a replica reports.
func (s *Store) meet(e *entry, r *replicaEntry, at span) {
	var listed []string
	for _, p := range r.peers {
		if p.listed {
			listed = append(listed, p.node)
		}
	}
	r.evidence.Meet(listed, evidence.Moment(stampOf(at.start)), evidence.Moment(stampOf(at.end)),
		evidence.Moment(max(r.reporting, s.events)), s.isOnline(r.Node) && r.Reports.Value,
		func(node string) evidence.Moment {
			if gone := s.gone[fold(e.name)][node]; gone != nil {
				return evidence.Moment(gone.forgotten)
			}
			return 0
		})
}

// Alive notes a sign of life of a node other than LINSTOR's word: LINSTOR is known to call nodes ONLINE that are dead.
func (s *Store) Alive(node string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[fold(node)]; n != nil {
		n.alive = max(n.alive, stampOf(at))
	}
}

// hears notes that events are heard from now on. What came and went before was not seen: a replica that had left may have come back,
// and have been forgotten by LINSTOR.
func (s *Store) hears(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.deaf = stampOf(at), false
	for _, e := range s.resources {
		e.left = nil
	}
}

// follows reports whether events have been heard since a time.
func (s *Store) follows(since time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.deaf && s.events != 0 && s.events <= stampOf(since)
}

// deafens notes that no events are heard any more.
func (s *Store) deafens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = true
}

// announce notes an event that came while LINSTOR was followed. The first word of a replica that was not there before shows that the
// node has just created it, by what LINSTOR wants.
func (s *Store) announce(ev client.Event, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Place{fold(ev.Resource), fold(ev.Node)}
	var replica *replicaEntry
	if e := s.resources[key.Resource]; e != nil {
		replica = e.replica(key.Node)
	}
	switch {
	case ev.MayPromote == nil:
	case replica == nil:
		for other, since := range s.announced {
			if stampOf(at)-since > stamp(announceFor) {
				delete(s.announced, other)
			}
		}
		s.announced[key] = stampOf(at)
	case replica.listed != 0 && !replica.returned && (!replica.Reports.Value || stampOf(at)-replica.listed <= stamp(announceFor)):
		replica.evidence.Created = true
	}
}

// found returns the entry of a replica that was not listed before. The lock must be held.
func (s *Store) found(e *entry, node string, at span) replicaEntry {
	key := Place{fold(e.name), node}
	replica := replicaEntry{Replica: Replica{Node: node}}
	if known := s.gone[key.Resource][node]; known != nil {
		replica.evidence, replica.peers, replica.LastInUse, replica.returned = known.evidence, known.unlisted(), known.LastInUse, true
		replica.evidence.Return(evidence.Moment(stampOf(at.end)))
		s.forget(key.Resource, node)
	}
	e.left = slices.DeleteFunc(slices.Clone(e.left), func(name string) bool { return name == node })
	if e.old && !e.read {
		return replica
	}
	replica.listed = stampOf(at.end)
	if since, ok := s.announced[key]; ok && !replica.returned {
		replica.evidence.Created = stampOf(at.end)-since <= stamp(announceFor)
	}
	delete(s.announced, key)
	return replica
}

// isOnline tells whether the newest list of nodes shows a node ONLINE, and LINSTOR is not blind for it. The lock must be held.
func (s *Store) isOnline(node string) bool {
	n := s.nodes[node]
	return n != nil && n.blind == 0 && isTrue(n.Online)
}

// Unconfirmed returns the nodes of a resource that are not known to run the quorum that LINSTOR wants, and since when. It is for who keeps that for
// other processes, which may not have seen it.
func (s *Store) Unconfirmed(resource string) map[string]time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nodes := map[string]time.Time{}
	s.eachReplica(fold(resource), func(r *replicaEntry) {
		if unsure := r.evidence.Unsure(); unsure != 0 {
			nodes[r.Node] = moment(unsure)
		}
	})
	return nodes
}

// moment is the time of a moment; zero for none.
func moment(m evidence.Moment) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return stamp(m).time()
}

// Tell takes it that nodes are not known to run quorum, as another process has said, and since when; zero where it has not said that.
func (s *Store) Tell(resource string, nodes map[string]time.Time, at time.Time) {
	key := fold(resource)
	s.mu.Lock()
	e := s.resources[key]
	for node, since := range nodes {
		node = fold(node)
		var replica *replicaEntry
		if e != nil {
			replica = e.replica(node)
		}
		if replica == nil {
			replica = s.gone[key][node]
		}
		switch {
		case replica != nil:
		case e != nil && e.hasLeft(node):
			continue // it is known to have gone since
		default:
			replica = &replicaEntry{Replica: Replica{Node: node}}
			replica.evidence.Leave(&evidence.Fence{}, evidence.Moment(stampOf(at)))
			replica.forgotten = stampOf(at)
			s.keepGone(key, replica)
		}
		if since.IsZero() || since.After(at) {
			since = at
		}
		replica.evidence.Tell(evidence.Moment(stampOf(at)), evidence.Moment(stampOf(since)))
	}
	s.said(resource, e, at)
}

// Untell takes back what only another process has said of a resource, but for what it still says.
func (s *Store) Untell(resource string, still []string, at time.Time) {
	s.mu.Lock()
	changed := false
	s.eachReplica(fold(resource), func(r *replicaEntry) {
		if !slices.ContainsFunc(still, func(node string) bool { return fold(node) == r.Node }) {
			changed = r.evidence.Untell() || changed
		}
	})
	if !changed {
		s.mu.Unlock()
		return
	}
	s.said(resource, s.resources[fold(resource)], at)
}

// said draws the conclusions of what another process has said, or says no more, and unlocks the store.
func (s *Store) said(resource string, e *entry, at time.Time) {
	fence := &evidence.Fence{}
	if e != nil {
		s.bearOutOne(fold(resource), e, stampOf(at))
		resource, fence = e.name, &e.fence
	}
	for _, r := range s.gone[fold(resource)] {
		r.evidence.Note(fence, evidence.Moment(stampOf(at)))
	}
	s.mu.Unlock()
	s.notify(resource)
}

// eachReplica visits the replicas of a resource, those that LINSTOR no longer lists included. The lock must be held.
func (s *Store) eachReplica(resource string, visit func(*replicaEntry)) {
	if e := s.resources[resource]; e != nil {
		for i := range e.replicas {
			visit(&e.replicas[i])
		}
	}
	for _, r := range s.gone[resource] {
		visit(r)
	}
}

func (e *entry) hasLeft(node string) bool { return slices.Contains(e.left, node) }
