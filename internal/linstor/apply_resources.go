package linstor

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// ApplyEvent takes over what an event that arrived at the given time says. It returns whether the store has the
// replica that the event is of, and whether it brought news. Events create nothing: they may be older than a deletion.
func (s *Store) ApplyEvent(ev PromotionEvent, at time.Time) (known, changed bool) {
	s.mu.Lock()
	var replica *replicaEntry
	e := s.resources[fold(ev.Resource)]
	if e != nil {
		replica = e.replicas[fold(ev.Node)]
	}
	if replica == nil {
		s.mu.Unlock()
		return false, false
	}
	before := replica.MayPromote
	replica.MayPromote = observe(before, ev.MayPromote, instant(at))
	changed = !same(before, replica.MayPromote)
	if changed && len(e.undecided) < maxUndecided {
		e.undecided = append(e.undecided, at)
	}
	name := e.name
	s.mu.Unlock()
	if changed {
		s.notify(name)
	}
	return true, changed
}

// maxUndecided bounds how many arrivals are kept of a resource that nobody decides on.
const maxUndecided = 16

// Undecided returns, once, when those events on a resource arrived that changed something, before the given time. It is for
// whoever measures how long events wait; where nobody asks, the oldest few are kept.
func (s *Store) Undecided(resource string, before time.Time) (arrivals []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.resources[fold(resource)]
	if e == nil {
		return nil
	}
	n := 0
	for n < len(e.undecided) && !e.undecided[n].After(before) {
		n++
	}
	arrivals, e.undecided = e.undecided[:n:n], e.undecided[n:]
	return arrivals
}

// applyResources takes over a per-definition list: replicas that are not in it are gone.
func (s *Store) applyResources(name string, list []wireResource, at span) {
	s.mu.Lock()
	key := fold(name)
	e := s.resources[key]
	if e != nil && at.start.Before(e.set.Confirmed) {
		s.mu.Unlock()
		return
	}
	var before Resource
	created := e == nil
	if created {
		if d := s.definitions[key]; d != nil {
			name = d.name
		}
		e = &entry{name: name, replicas: map[string]*replicaEntry{}}
		s.resources[key] = e
	} else {
		before = s.snapshot(e)
	}
	s.replace(e, list, at)
	after := s.snapshot(e)
	s.mu.Unlock()
	if created || !sameValues(before, after) {
		s.notify(after.Name)
	}
}

// remove forgets a resource definition that LINSTOR did not find, unless it was read later.
func (s *Store) remove(name string, at span) {
	s.mu.Lock()
	key := fold(name)
	if d := s.definitions[key]; d != nil && !at.start.Before(d.read.start) {
		delete(s.definitions, key)
	}
	e := s.resources[key]
	gone := e != nil && !at.start.Before(e.set.Confirmed)
	if gone {
		delete(s.resources, key)
	}
	s.mu.Unlock()
	if gone {
		s.notify(e.name)
	}
}

// applyView takes over the view of all resources, which hides resources without volumes. What it lacks is
// therefore no evidence as long as the definition is listed; the names of such resources are returned, to
// be read one by one. Resources whose definition is not listed either are gone, unless they were read
// after that list. Everything that was read later than the view stays as it is.
func (s *Store) applyView(all []wireResource, at span) (read []string) {
	rows := byResource(all)
	var changed []string
	s.mu.Lock()
	for key, list := range rows {
		isChanged, lacking := s.takeRows(key, list, at)
		if isChanged {
			changed = append(changed, s.resources[key].name)
		}
		if lacking {
			read = append(read, s.resources[key].name)
		}
	}
	for key, d := range s.definitions {
		e := s.resources[key]
		if e == nil {
			e = &entry{name: d.name, replicas: map[string]*replicaEntry{}}
			s.resources[key] = e
			changed = append(changed, e.name)
		}
		if rows[key] == nil && (len(e.replicas) > 0 || e.set.Confirmed.IsZero()) {
			read = append(read, e.name)
		}
	}
	maps.DeleteFunc(s.resources, func(key string, e *entry) bool {
		gone := rows[key] == nil && s.definitions[key] == nil &&
			!s.definitionsRead.start.IsZero() && !e.set.Confirmed.After(s.definitionsRead.start)
		if gone {
			changed = append(changed, e.name)
		}
		return gone
	})
	s.mu.Unlock()
	s.notify(changed...)
	return read
}

// applySome takes over what the view says of some resources, and returns the folded names of those of which it says
// everything. The others have no volumes, lack a replica that was there, or do not exist: the view cannot tell which.
func (s *Store) applySome(list []wireResource, at span) map[string]bool {
	complete := map[string]bool{}
	var changed []string
	s.mu.Lock()
	for key, rows := range byResource(list) {
		isChanged, lacking := s.takeRows(key, rows, at)
		complete[key] = !lacking
		if isChanged {
			changed = append(changed, s.resources[key].name)
		}
	}
	s.mu.Unlock()
	s.notify(changed...)
	return complete
}

func byResource(list []wireResource) map[string][]wireResource {
	rows := map[string][]wireResource{}
	for _, r := range list {
		rows[fold(r.Name)] = append(rows[fold(r.Name)], r)
	}
	return rows
}

// takeRows takes over what the view says of one resource definition, and tells whether that changed
// anything and whether it lacks replicas. The lock must be held.
func (s *Store) takeRows(key string, list []wireResource, at span) (changed, lacking bool) {
	e := s.resources[key]
	if e == nil {
		e = &entry{name: list[0].Name, replicas: map[string]*replicaEntry{}}
		s.resources[key] = e
		s.replace(e, list, at)
		return true, false
	}
	if at.start.Before(e.set.Confirmed) {
		return false, false
	}
	before := s.snapshot(e)
	if lacking = lacks(list, e); lacking {
		s.update(e, list, at)
	} else {
		s.replace(e, list, at)
	}
	return !sameValues(before, s.snapshot(e)), lacking
}

// lacks tells whether a replica of e is not in the list.
func lacks(list []wireResource, e *entry) bool {
	for node := range e.replicas {
		if !slices.ContainsFunc(list, func(r wireResource) bool { return fold(r.NodeName) == node }) {
			return true
		}
	}
	return false
}

// replace makes the list the whole of e. The lock must be held.
func (s *Store) replace(e *entry, list []wireResource, at span) {
	listed := make(map[string]bool, len(list))
	for _, r := range list {
		listed[fold(r.NodeName)] = true
	}
	maps.DeleteFunc(e.replicas, func(node string, _ *replicaEntry) bool { return !listed[node] })
	set := strings.Join(slices.Sorted(maps.Keys(listed)), "\n")
	e.set = observe(e.set, &set, at)
	s.update(e, list, at)
}

// update takes over the listed replicas and leaves the others alone. The lock must be held.
func (s *Store) update(e *entry, list []wireResource, at span) {
	for _, r := range list {
		if r.Name != "" {
			e.name = r.Name
		}
		node := fold(r.NodeName)
		replica := e.replicas[node]
		if replica == nil {
			replica = &replicaEntry{Replica: Replica{Node: node}}
			e.replicas[node] = replica
		}
		if !at.start.Before(replica.read) {
			replica.take(r, at)
		}
	}
	s.remember(e, at)
}

// take takes over what a list says of a replica.
func (r *replicaEntry) take(w wireResource, at span) {
	values, before := w.values(), r.Replica
	r.read = at.start
	r.drbd = w.drbd()
	r.volumes = len(values.Volumes)
	r.Diskless = anyFlag(w.Flags, flagDiskless, flagDRBDDiskless)
	r.TieBreaker = anyFlag(w.Flags, flagTieBreaker)
	r.leaving = anyFlag(w.Flags, flagDelete, flagDRBDDelete, flagEvicted, flagInactive)
	r.quorum = observeLevel(r.quorum, w.Props, at)
	r.Reports = observe(r.Reports, new(w.reports()), at)
	r.MayPromote = observe(r.MayPromote, values.MayPromote, at)
	r.Score = observe(r.Score, values.PromotionScore, at)
	r.InUse = observe(r.InUse, w.inUse(), at)
	if r.InUse.Known && r.InUse.Value && r.InUse.Confirmed.After(r.LastInUse) {
		r.LastInUse = r.InUse.Confirmed
	}
	r.Connections = connections(before, values, at)
	r.Rejoined = rejoined(before, r.Connections, at.end)
	if isNews(before, r.Replica) {
		r.Heard = at.end
	}
}

// connections returns what a list says of a replica's connections. The old slice has been handed out and stays.
func connections(before Replica, values wireDRBD, at span) []Connection {
	all := make([]Connection, 0, len(values.Connections))
	for name, connection := range values.Connections {
		peer := fold(name)
		old, _ := before.Connection(peer)
		all = append(all, Connection{peer, observe(old, connection.connected(), at)})
	}
	slices.SortFunc(all, func(a, b Connection) int { return strings.Compare(a.Peer, b.Peer) })
	return slices.CompactFunc(all, func(a, b Connection) bool { return a.Peer == b.Peer })
}

// rejoined returns since when a replica has been Connected to those peers that it was seen to connect to.
func rejoined(before Replica, connections []Connection, now time.Time) map[string]time.Time {
	all := maps.Clone(before.Rejoined)
	for _, c := range connections {
		old, _ := before.Connection(c.Peer)
		switch {
		case !c.Connected.Known:
		case !c.Connected.Value:
			delete(all, c.Peer)
		case old.Known && !old.Value:
			if all == nil {
				all = map[string]time.Time{}
			}
			all[c.Peer] = now
		}
	}
	return all
}

// isNews tells whether a satellite must have said something between two readings of its replica. What LINSTOR no longer
// knows is no news from there.
func isNews(before, after Replica) bool {
	for _, c := range after.Connections {
		if old, _ := before.Connection(c.Peer); differs(old, c.Connected) {
			return true
		}
	}
	return differs(before.MayPromote, after.MayPromote) || differs(before.InUse, after.InUse) || differs(before.Score, after.Score)
}

func differs[T comparable](before, after Fact[T]) bool { return after.Known && !same(before, after) }

// remember keeps, of each replica that this read shows reporting from an ONLINE node, under which quorum
// it does so. A quorum counts only if LINSTOR was seen to have it before the read began: then the
// node had heard of it. The lock must be held.
func (s *Store) remember(e *entry, at span) {
	var diskful, diskless []string
	for node, replica := range e.replicas {
		if replica.Diskless {
			diskless = append(diskless, node)
		} else {
			diskful = append(diskful, node)
		}
	}
	slices.Sort(diskful)
	slices.Sort(diskless)
	for _, replica := range e.replicas {
		if !replica.read.Equal(at.start) || !isTrue(replica.Reports) {
			continue
		}
		node := s.nodes[replica.Node]
		if node == nil || !isTrue(node.Online) {
			continue
		}
		quorum, since := s.quorum(e, replica)
		if quorum == "" || since.After(at.start) {
			continue
		}
		replica.Remembered = &Memory{Time: at.start, Quorum: quorum, Diskful: diskful, Diskless: diskless}
	}
}

func isTrue(f Fact[bool]) bool { return f.Known && f.Value }
