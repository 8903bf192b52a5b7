package linstor

import (
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// ApplyEvent takes over what an event that arrived at the given time says. It returns whether the store has the
// replica that the event is of, and whether it brought news. Events create nothing: they may be older than a deletion.
func (s *Store) ApplyEvent(ev client.Event, at time.Time) (known, changed bool) {
	s.mu.Lock()
	e := s.resources[fold(ev.Resource)]
	replica := e.replica(fold(ev.Node))
	if replica == nil {
		s.mu.Unlock()
		return false, false
	}
	before, span := replica.MayPromote, instant(at)
	span.unsure = s.unsure(0, stampOf(before.Confirmed))
	after := observe(before, ev.MayPromote, span)
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
	if changed = !same(before, after); changed {
		e.heard = stampOf(at)
		if ev.MayPromote == nil {
			s.lost = e.heard
		}
	}
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
	e.undecided = slices.DeleteFunc(e.undecided, func(at time.Time) bool {
		decided := !at.After(before)
		if decided {
			arrivals = append(arrivals, at)
		}
		return decided
	})
	return arrivals
}

// applyResources takes over a per-definition list: replicas that are not in it are gone. It reports whether replicas or their disks
// have changed.
func (s *Store) applyResources(name string, list []client.Resource, at span) (reshaped bool) {
	s.mu.Lock()
	changed, reshaped := s.takeList(name, list, at)
	if changed {
		name = s.resources[fold(name)].name
	}
	s.mu.Unlock()
	if changed {
		s.notify(name)
	}
	return reshaped
}

// takeList takes over all replicas of a resource definition, unless a later reading was taken over. It reports whether anything has changed,
// and replicas or their disks. The lock must be held.
func (s *Store) takeList(name string, list []client.Resource, at span) (changed, reshaped bool) {
	e := s.resources[fold(name)]
	if e != nil && at.start.Before(e.set.Confirmed) {
		return false, false
	}
	created := e == nil
	if created {
		e = s.add(name)
	}
	changed, reshaped = s.follow(e, at, func(at span) { s.replace(e, list, at) })
	return created || changed, reshaped
}

// follow has a reading of replicas change an entry, and draws the conclusions for what the nodes may run. It reports whether
// anything has changed, and replicas or their disks. The lock must be held.
func (s *Store) follow(e *entry, at span, read func(at span)) (changed, reshaped bool) {
	at.unsure = s.unsure(e.heard, stampOf(e.set.Confirmed))
	changed, reshaped = changes(e, func() { read(at) })
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
		s.drop(e, stampOf(at.end))
	}
	s.mu.Unlock()
	if gone {
		s.notify(e.name)
	}
}

// applyView takes over the view of all resources, which hides resources without volumes. What it lacks is therefore no evidence. It returns
// the names of the resources that must be read one by one for that. Everything that was read later than the view stays as it is.
func (s *Store) applyView(all []client.Resource, at span) (read []string) {
	rows := map[string][]client.Resource{}
	for _, r := range all {
		rows[fold(r.Name)] = append(rows[fold(r.Name)], r)
	}
	var changed []string
	s.mu.Lock()
	for _, d := range s.definitions {
		if s.resources[fold(d.name)] == nil {
			s.add(d.name).old = true
			changed = append(changed, d.name)
		}
	}
	for key, list := range rows {
		if e := s.resources[key]; e != nil && lacks(list, e) {
			continue
		}
		if isChanged, _ := s.takeList(list[0].Name, list, at); isChanged {
			changed = append(changed, s.resources[key].name)
		}
	}
	for key, e := range s.resources {
		isGone := s.definitions[key] == nil && len(rows[key]) == 0
		if isGone || lacks(rows[key], e) || e.set.Confirmed.IsZero() {
			read = append(read, e.name)
		}
	}
	s.complete = true
	s.mu.Unlock()
	s.notify(changed...)
	return read
}

// lacks reports whether a replica of e is not in the list.
func lacks(list []client.Resource, e *entry) bool {
	return slices.ContainsFunc(e.replicas, func(replica replicaEntry) bool { return !lists(list, replica.Node) })
}

// lacks reports whether a replica that is known is not in the list.
func (s *Store) lacks(name string, list []client.Resource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.resources[fold(name)]
	return e != nil && lacks(list, e)
}

// lists reports whether a replica on a node is in the list.
func lists(list []client.Resource, node string) bool {
	return slices.ContainsFunc(list, func(r client.Resource) bool { return fold(r.NodeName) == node })
}

// add creates the entry of a resource definition. The lock must be held.
func (s *Store) add(name string) *entry {
	if d := s.definitions[fold(name)]; d != nil {
		name = d.name // one string for both
	}
	e := &entry{name: name, old: !s.complete}
	s.resources[fold(name)] = e
	return e
}

// replace makes the list the whole of e. The lock must be held.
func (s *Store) replace(e *entry, list []client.Resource, at span) {
	before, lacked := len(e.replicas), e.began
	e.began = max(stampOf(at.start), e.began+1) // no two lists begin at once
	s.bury(e, stampOf(at.end), func(node string) bool { return !lists(list, node) })
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
			e.brought, e.lacked = true, lacked
		}
		if stampOf(at.start) >= replica.read {
			s.take(replica, r, at)
			s.meet(e, replica, at)
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
