package linstor

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// ApplyEvent takes over what an event that arrived at the given time says. It returns whether the store has the
// replica that the event is of, and whether it brought news. Events create nothing: they may be older than a deletion.
func (s *Store) ApplyEvent(ev client.Event, at time.Time) (known, changed bool) {
	s.mu.Lock()
	var replica *replicaEntry
	e := s.resources[fold(ev.Resource)]
	if e != nil {
		replica = e.replica(fold(ev.Node))
	}
	if replica == nil {
		s.mu.Unlock()
		return false, false
	}
	before := replica.MayPromote
	after := observe(before, ev.MayPromote, instant(at))
	replica.MayPromote = after
	if ev.MayPromote != nil && !before.Known && before.Confirmed.Before(at) && replica.Heard.Before(at) {
		replica.Heard = at // LINSTOR knew nothing of it, and has heard it since
	}
	if before.Known && differs(before, after) {
		replica.spoke = true // the next list may show what the last one did
	}
	if ev.MayPromote == nil {
		replica.reporting = stampOf(at) // no list may show that its satellite said nothing for a moment
	}
	changed = !same(before, after)
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
	s.mu.RLock()
	e := s.resources[fold(resource)]
	none := e == nil || len(e.undecided) == 0
	s.mu.RUnlock()
	if none {
		return nil // without keeping anybody from the store, for that is asked with each decision
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.resources[fold(resource)]; e == nil {
		return nil
	}
	n := 0
	for n < len(e.undecided) && !e.undecided[n].After(before) {
		n++
	}
	arrivals, e.undecided = e.undecided[:n:n], e.undecided[n:]
	return arrivals
}

// applyResources takes over a per-definition list: replicas that are not in it are gone. It tells whether replicas or their disks
// have changed.
func (s *Store) applyResources(name string, list []client.Resource, at span) (reshaped bool) {
	s.mu.Lock()
	key := fold(name)
	e := s.resources[key]
	if e != nil && at.start.Before(e.set.Confirmed) {
		s.mu.Unlock()
		return false
	}
	created := e == nil
	if created {
		if d := s.definitions[key]; d != nil {
			name = d.name
		}
		e = s.add(name)
	}
	changed, reshaped := s.follow(e, at, func() { s.replace(e, list, at) })
	name = e.name
	s.mu.Unlock()
	if created || changed {
		s.notify(name)
	}
	return reshaped
}

// follow has a reading of replicas change an entry, and draws the conclusions for what the nodes may run. It tells whether
// anything has changed, and replicas or their disks. The lock must be held.
func (s *Store) follow(e *entry, at span, read func()) (changed, reshaped bool) {
	changed, reshaped = changes(e, read)
	if reshaped {
		e.reshaped = stampOf(at.end)
	}
	formed := s.form(e, stampOf(at.end))
	return changed || formed, reshaped
}

// remove forgets a resource definition that LINSTOR did not find, unless it was read later.
func (s *Store) remove(name string, at span) {
	s.mu.Lock()
	key := fold(name)
	if d := s.definitions[key]; d != nil && stampOf(at.start) >= d.read {
		delete(s.definitions, key)
	}
	e := s.resources[key]
	gone := e != nil && !at.start.Before(e.set.Confirmed)
	if gone {
		s.drop(e)
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
func (s *Store) applyView(all []client.Resource, at span) (read []string) {
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
			e = s.add(d.name)
			e.old = true
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
			s.bury(e, func(string) bool { return true })
			delete(s.unsettled, key)
		}
		return gone
	})
	s.complete = true
	s.mu.Unlock()
	s.notify(changed...)
	return read
}

// applySome takes over what the view says of some resources, and returns the folded names of those of which it says
// everything. The others have no volumes, lack a replica that was there, or do not exist: the view cannot tell which.
func (s *Store) applySome(list []client.Resource, at span) map[string]bool {
	complete := map[string]bool{}
	var changed []string
	for key, rows := range byResource(list) {
		name, isChanged, lacking := s.applyRows(key, rows, at)
		complete[key] = !lacking
		if isChanged {
			changed = append(changed, name)
		}
	}
	s.notify(changed...)
	return complete
}

// applyRows is takeRows for one resource definition by itself, so that others wait for no more than that. It returns its name.
func (s *Store) applyRows(key string, rows []client.Resource, at span) (name string, changed, lacking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, lacking = s.takeRows(key, rows, at)
	return s.resources[key].name, changed, lacking
}

func byResource(list []client.Resource) map[string][]client.Resource {
	rows := map[string][]client.Resource{}
	for _, r := range list {
		rows[fold(r.Name)] = append(rows[fold(r.Name)], r)
	}
	return rows
}

// takeRows takes over what the view says of one resource definition, and tells whether that changed anything, and whether it
// lacks replicas. The lock must be held.
func (s *Store) takeRows(key string, list []client.Resource, at span) (changed, lacking bool) {
	e := s.resources[key]
	if e == nil {
		e = s.add(list[0].Name)
		s.follow(e, at, func() { s.replace(e, list, at) })
		return true, false
	}
	if at.start.Before(e.set.Confirmed) {
		return false, false
	}
	take := s.replace
	if lacking = lacks(list, e); lacking {
		take = s.update
	}
	changed, _ = s.follow(e, at, func() { take(e, list, at) })
	return changed, lacking
}

// lacks tells whether a replica of e is not in the list.
func lacks(list []client.Resource, e *entry) bool {
	return slices.ContainsFunc(e.replicas, func(replica replicaEntry) bool { return !lists(list, replica.Node) })
}

// lacks tells whether a replica that is known is not in the list.
func (s *Store) lacks(name string, list []client.Resource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.resources[fold(name)]
	return e != nil && lacks(list, e)
}

// lists tells whether a replica on a node is in the list.
func lists(list []client.Resource, node string) bool {
	return slices.ContainsFunc(list, func(r client.Resource) bool { return fold(r.NodeName) == node })
}

// add creates the entry of a resource definition. The lock must be held.
func (s *Store) add(name string) *entry {
	if d := s.definitions[fold(name)]; d != nil && d.name == name {
		name = d.name // one string for both
	}
	e := &entry{name: name, old: !s.complete}
	s.resources[fold(name)] = e
	return e
}

// replace makes the list the whole of e. The lock must be held.
func (s *Store) replace(e *entry, list []client.Resource, at span) {
	before, lacked := len(e.replicas), stampOf(e.set.Confirmed)
	s.bury(e, func(node string) bool { return !lists(list, node) })
	if len(e.replicas) < before {
		e.shrunk = stampOf(at.end)
	}
	nodes := make([]string, 0, len(list))
	for _, r := range list {
		nodes = append(nodes, fold(r.NodeName))
	}
	slices.Sort(nodes)
	set := strings.Join(slices.Compact(nodes), "\n")
	if e.set.Value == set {
		set = e.set.Value // the string that is there already
	}
	e.set = observe(e.set, &set, at)
	s.takeOver(e, list, at, lacked)
}

// update takes over the listed replicas and leaves the others alone. The lock must be held.
func (s *Store) update(e *entry, list []client.Resource, at span) {
	s.takeOver(e, list, at, stampOf(e.set.Confirmed))
}

// takeOver is update; lacked is the start of the last list by which the replicas were others. The lock must be held.
func (s *Store) takeOver(e *entry, list []client.Resource, at span, lacked stamp) {
	if len(e.replicas) == 0 {
		e.replicas = make([]replicaEntry, 0, len(list)) // no larger than it need be
	}
	for _, r := range list {
		if r.Name != "" && r.Name != e.name {
			e.name = r.Name
		}
		node := s.nodeName(r.NodeName)
		replica := e.replica(node)
		if replica == nil {
			i, _ := slices.BinarySearchFunc(e.replicas, node, func(r replicaEntry, node string) int { return strings.Compare(r.Node, node) })
			e.replicas = slices.Insert(e.replicas, i, s.found(e, node, at))
			replica = &e.replicas[i]
			replica.lacked = lacked
		}
		if stampOf(at.start) >= replica.read {
			s.take(replica, r, at)
			e.meet(replica, s.isOnline(node), s.events, at)
			if replica.Reports.Value && !s.isOnline(node) {
				s.early = stampOf(at.end)
			}
		}
	}
	e.read = true
}

// nodeName folds the name of a node. Of one that is known it returns the string that is there already: it is wanted for each
// replica and connection. The lock must be held.
func (s *Store) nodeName(name string) string {
	name = fold(name)
	if node := s.nodes[name]; node != nil {
		return node.Name
	}
	return name
}

func isTrue(f Fact[bool]) bool { return f.Known && f.Value }
