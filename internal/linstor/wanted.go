package linstor

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// form adds the setting that LINSTOR wants of a resource to what each of its nodes may run, as soon as it is known, and takes out what
// evidence has overtaken. now is the end of a reading. It reports whether that changed anything. The lock must be held.
//
// A reading of a resource is the list of its replicas and then the definition. LINSTOR writes both in one step, so that the other order
// could make up a setting that never was, and that no node would ever be known to have left behind. This order can do so only where the
// replicas change again in between, see fits.
func (s *Store) form(e *entry, now stamp) (changed bool) {
	key := fold(e.name)
	d := s.definitions[key]
	quorum, byUser, by := s.quorum(d)
	if e.read && len(e.replicas) > 0 && !e.inDoubt(d) && quorum != "" {
		first := e.wanted == nil
		byUser = e.isByUser(byUser, d.read, now)
		e.want(quorum, byUser, now)
		byUserAt := stamp(0)
		switch {
		case byUser && first: // a group's may be known for long when a resource comes
			byUserAt = min(by, e.wantedAt)
		case byUser:
			byUserAt = e.wantedAt
		}
		for i := range e.replicas {
			changed = e.replicas[i].runs.join(e.wanted, e.wantedAt, e.wantedRead, byUserAt, e.hasLeft) || changed
		}
	}
	return s.bearOutOne(key, e, now) || changed
}

// want notes the setting that LINSTOR wants by a reading that ended now.
func (e *entry) want(quorum string, byUser bool, now stamp) {
	wanted := &failover.Setting{Quorum: quorum}
	for i := range e.replicas { // sorted by node
		switch replica := &e.replicas[i]; {
		case replica.Client: // whoever runs it counts it nowhere
		case replica.Diskless:
			wanted.Diskless = append(wanted.Diskless, replica.Node)
		default:
			wanted.Diskful = append(wanted.Diskful, replica.Node)
		}
	}
	if e.wanted != nil && e.wanted.Equal(*wanted) {
		return
	}
	before := e.wantedAt
	e.wanted, e.wantedAt, e.wantedRead = wanted, now, now
	if e.reshaped > before && (byUser || fits(wanted)) {
		e.wantedAt = e.reshaped
	}
}

// fits reports whether LINSTOR may have set a quorum by itself for the replicas that were listed: majority takes three disks, or two and a
// replica without one. Where there are two disks alone, and no person has set it, it came with replicas that came after the list: LINSTOR has
// never wanted it with those of the list, and a node that has met them need not have heard of it. A single disk is a majority of its own,
// whoever has set that, and fences nothing.
func fits(s *failover.Setting) bool {
	return s.Quorum != quorumMajority || len(s.Diskful) != 2 || len(s.Diskless) > 0
}

// isByUser reports whether a person may have brought the quorum that is wanted now, where the levels say so or not. Who takes his own one back
// changes the quorum as well, and LINSTOR sends that as little as the one that was set, but it leaves no mark: until a definition has been
// read since the mark was missed, it is that. read is when the definition was, and now the end of this reading.
func (e *entry) isByUser(marked bool, read, now stamp) bool {
	switch was := e.byUser; {
	case marked:
		e.byUser, e.unmarked = true, 0
		return true
	case was && e.unmarked == 0:
		e.unmarked = now
		return true
	default:
		e.byUser = was && read < e.unmarked
		return was
	}
}

func (e *entry) hasLeft(node string) bool { return slices.Contains(e.left, node) }

// formAll is form for all resources. It returns the names of those that it changed. The lock must be held.
func (s *Store) formAll(now stamp) (changed []string) {
	for _, e := range s.resources {
		if s.form(e, now) {
			changed = append(changed, e.name)
		}
	}
	return changed
}

// bearOut takes out of what nodes may run all that evidence has overtaken, and returns the names of the resources that it
// changed. The lock must be held.
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
		changed = e.borneOut(r, s.nodes[r.Node], now) || changed
		settled = settled && r.runs.settled()
	}
	if settled {
		delete(s.unsettled, key)
	} else {
		s.unsettled[key] = true
	}
	return changed
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

// announceFor is how long after the first list of a replica an event of it still counts as its first word.
const announceFor = 10 * time.Second

// announce notes an event that came while LINSTOR was followed. The first word of a replica that was not there before shows that the
// node has just created it, by the setting that LINSTOR wants.
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
		replica.runs.creation()
	}
}

// found returns the entry of a replica that was not listed before. The lock must be held.
func (s *Store) found(e *entry, node string, at span) replicaEntry {
	key := Place{fold(e.name), node}
	replica := replicaEntry{Replica: Replica{Node: node}}
	if known := s.gone[key.Resource][node]; known != nil {
		// It may have been there all the time, and run what it ran.
		replica.runs, replica.peers, replica.LastInUse, replica.returned = known.runs, known.unlisted(), known.LastInUse, true
		s.forget(key.Resource, node)
	}
	e.left = slices.DeleteFunc(slices.Clone(e.left), func(name string) bool { return name == node })
	if e.old && !e.read {
		return replica
	}
	replica.listed = stampOf(at.end)
	if since, ok := s.announced[key]; ok && !replica.returned {
		replica.runs.created = stampOf(at.end)-since <= stamp(announceFor)
	}
	delete(s.announced, key)
	return replica
}

// isOnline reports whether the newest list of nodes shows a node ONLINE, and LINSTOR is not blind for it. The lock must be held.
func (s *Store) isOnline(node string) bool {
	n := s.nodes[node]
	return n != nil && n.blind == 0 && isTrue(n.Online)
}
