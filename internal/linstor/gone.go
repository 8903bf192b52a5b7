package linstor

import (
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// bury takes the replicas out of an entry whose nodes match. One that went while its node was ONLINE was taken down there: LINSTOR
// forgets it only then. Of any other nobody knows whether it is still written to (node lost, a database restored), nor of one that was in
// use when it was last listed, or may have been: LINSTOR deletes none that is, but has no state of it while it does. Nor is it known of
// one that was listed for the last time before events were heard anew: LINSTOR may have been given an older database since. Such a
// replica is kept as gone. The lock must be held.
func (s *Store) bury(e *entry, now stamp, match func(node string) bool) {
	key := fold(e.name)
	e.replicas = slices.DeleteFunc(e.replicas, func(r replicaEntry) bool {
		if !match(r.Node) {
			return false
		}
		online, inUse := s.isOnline(r.Node), isTrue(r.InUse)
		switch {
		case !online || r.read < s.events || inUse || !r.InUse.Known && !r.Leaving:
			r.peers = r.unlisted()
			r.forgotten = now
			r.evidence.Leave(&e.fence, evidence.Moment(now))
			s.keepGone(key, &r)
		case !e.hasLeft(r.Node):
			e.left = append(slices.Clone(e.left), r.Node)
		}
		return true
	})
}

// drop forgets a resource definition that LINSTOR no longer has. The lock must be held.
func (s *Store) drop(e *entry, now stamp) {
	s.bury(e, now, func(string) bool { return true })
	delete(s.resources, fold(e.name))
	delete(s.unsettled, fold(e.name))
}

func (s *Store) keepGone(resource string, r *replicaEntry) {
	if s.gone[resource] == nil {
		s.gone[resource] = map[string]*replicaEntry{}
	}
	s.gone[resource][r.Node] = r
}

func (s *Store) forget(resource, node string) {
	delete(s.gone[resource], node)
	if len(s.gone[resource]) == 0 {
		delete(s.gone, resource)
	}
}

// goneReplica returns a gone replica as it is handed out: nothing is known of its state.
func (s *Store) goneReplica(e *entry, r *replicaEntry) Replica {
	out := r.replica()
	out.Gone, out.Confirmed, out.Votes = true, r.evidence.Confirmed(&e.fence), s.votes(e, r)
	out.Unconfirmed = moment(r.evidence.Since(&e.fence))
	out.Reports, out.MayPromote, out.InUse, out.Score = Fact[bool]{}, Fact[bool]{}, Fact[bool]{}, Fact[int]{}
	if n := s.nodes[r.Node]; n != nil {
		out.Online = n.Online
		out = n.doubted(out)
	}
	return out
}

// Place is a resource definition on a node, both in lower case.
type Place struct{ Resource, Node string }

// Gone returns the replicas that LINSTOR no longer lists, and of which it is not known that their nodes have let them go.
func (s *Store) Gone() []Place {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var places []Place
	for resource, replicas := range s.gone {
		for node := range replicas {
			places = append(places, Place{resource, node})
		}
	}
	return places
}

// Forget drops what is known of a replica that LINSTOR no longer lists. It is for who knows that nobody asks for it any more. One that
// others may count is kept.
func (s *Store) Forget(p Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.resources[p.Resource]; e == nil || !slices.ContainsFunc(e.replicas, func(r replicaEntry) bool { return r.evidence.Counts(p.Node) }) {
		s.forget(p.Resource, p.Node)
	}
}
