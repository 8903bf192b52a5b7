package linstor

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// Sets are the settings that nodes may run of one resource, by node in lower case, the newest last.
type Sets map[string][]failover.Setting

// Doubts returns what each node may run of a resource where one of them may run more than one setting, and since when that has been so;
// nil where none does. It is for who keeps that for other processes, which may not have seen it.
func (s *Store) Doubts(resource string) (sets Sets, since time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := Sets{}
	add := func(r *replicaEntry) {
		for _, setting := range r.runs.settings {
			all[r.Node] = append(all[r.Node], *setting)
		}
		if several := r.runs.severalSince.time(); !several.IsZero() && (since.IsZero() || several.Before(since)) {
			since = several
		}
	}
	s.eachRuns(fold(resource), add)
	if since.IsZero() {
		return nil, time.Time{}
	}
	return all, since
}

// Unite adds what another process has said that nodes may run of a resource to what is known here.
func (s *Store) Unite(resource string, sets Sets, at time.Time) {
	key := fold(resource)
	s.mu.Lock()
	e := s.resources[key]
	changed := false
	for node, settings := range sets {
		node = fold(node)
		var replica *replicaEntry
		if e != nil {
			replica = e.replica(node)
		}
		if replica == nil {
			replica = s.gone[key][node]
		}
		if replica == nil {
			if e != nil && e.hasLeft(node) {
				continue // it is known to have gone since
			}
			replica = &replicaEntry{Replica: Replica{Node: node}}
			s.keepGone(key, replica)
		}
		changed = replica.runs.unite(settings, stampOf(at)) || changed
	}
	if e != nil {
		changed = s.bearOutOne(key, e, stampOf(at)) || changed
	}
	name := s.nameOf(key, resource)
	s.mu.Unlock()
	if changed {
		s.notify(name)
	}
}

// Retract takes out what only another process has said of a resource, which no longer says it: evidence has overtaken it there. What it
// still says stays.
func (s *Store) Retract(resource string, still Sets, at time.Time) {
	key := fold(resource)
	said := make(Sets, len(still))
	for node, settings := range still {
		said[fold(node)] = append(said[fold(node)], settings...)
	}
	s.mu.Lock()
	changed := false
	s.eachRuns(key, func(r *replicaEntry) { changed = r.runs.retract(said[r.Node], stampOf(at)) || changed })
	name := s.nameOf(key, resource)
	s.mu.Unlock()
	if changed {
		s.notify(name)
	}
}

// eachRuns visits the replicas of a resource, those that LINSTOR no longer lists included. The lock must be held.
func (s *Store) eachRuns(resource string, visit func(*replicaEntry)) {
	if e := s.resources[resource]; e != nil {
		for i := range e.replicas {
			visit(&e.replicas[i])
		}
	}
	for _, r := range s.gone[resource] {
		visit(r)
	}
}

func (s *Store) nameOf(key, otherwise string) string {
	if e := s.resources[key]; e != nil {
		return e.name
	}
	return otherwise
}

// Assume takes it that each node runs what LINSTOR wants, where nobody has said otherwise. It is for who forecasts what the controller
// would do and has just come: nothing may be removed by it.
func (s *Store) Assume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.resources {
		for i := range e.replicas {
			if runs := &e.replicas[i].runs; len(runs.members) > 0 {
				runs.begun = true
			}
		}
	}
}
