package linstor

import (
	"context"
	"fmt"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// Sight reads to which nodes LINSTOR has a connection, and before and after that whether it calls them ONLINE. LINSTOR asks its satellites for
// that, so only callers that suspect it to be stale should ask. It works whether or not the event stream does.
func (f *Feed) Sight(ctx context.Context) (failover.Sight, error) {
	at := span{start: time.Now()}
	if err := f.readNodes(ctx, at.start); err != nil {
		return failover.Sight{}, fmt.Errorf("ask LINSTOR for its nodes: %w", err)
	}
	pools, err := f.client.StoragePools(ctx)
	if err != nil {
		return failover.Sight{}, fmt.Errorf("ask LINSTOR for its storage pools: %w", err)
	}
	if err := f.readNodes(ctx, time.Now()); err != nil {
		return failover.Sight{}, fmt.Errorf("ask LINSTOR for its nodes again: %w", err)
	}
	at.end = time.Now()
	return f.store.sight(pools, at), nil
}

// sight combines what was read of the pools and of the nodes in a span.
func (s *Store) sight(pools []client.Pool, at span) failover.Sight {
	connected := map[string]failover.Fact[bool]{}
	for _, pool := range pools {
		node := fold(pool.NodeName)
		said := failover.Fact[bool]{}
		if is := pool.IsConnected(); is != nil {
			said = failover.Fact[bool]{Known: true, Value: *is}
		}
		if before, ok := connected[node]; ok && before != said {
			said = failover.Fact[bool]{} // its pools contradict each other
		}
		connected[node] = said
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	result := failover.Sight{Began: at.start, Ended: at.end, Nodes: make(map[string]failover.SeenNode, len(s.nodes))}
	for name, n := range s.nodes {
		if !n.Satellite {
			continue
		}
		result.Nodes[name] = failover.SeenNode{
			Online:    failover.Fact[bool]{Known: n.Online.Known, Value: n.Online.Value && n.away < stampOf(at.start)},
			Connected: connected[name],
		}
	}
	return result
}

// Void makes everything unknown that LINSTOR reports of exactly these nodes, by name in lower case: it has had no connection to them since those
// times. Once it has one again, what it reports counts from then on.
func (s *Store) Void(nodes map[string]time.Time, now time.Time) {
	var changed []string
	s.mu.Lock()
	for name, n := range s.nodes {
		since, blind := nodes[name]
		switch {
		case blind == (n.blind != 0):
			continue
		case blind:
			n.blind = stampOf(since)
		default:
			n.blind, n.sighted = 0, stampOf(now)
		}
		changed = append(changed, s.namesWhere(func(e *entry) bool { return e.replica(name) != nil })...)
	}
	s.mu.Unlock()
	s.notify(changed...)
}

// isBlindFor reports whether LINSTOR is known to have no connection to a node that it calls ONLINE. The lock must be held.
func (s *Store) isBlindFor(node string) bool {
	n := s.nodes[node]
	return n != nil && n.blind != 0
}

// doubted returns the replica with everything unknown while LINSTOR has no connection to its node, and after that with no fact that has held
// for longer than the connection.
func (n *nodeEntry) doubted(r Replica) Replica {
	switch {
	case n.blind != 0:
		r.Blind = true
		r.ChangeFacts(func(f failover.AnyFact) { f.Void(n.blind.time()) })
	case n.sighted != 0:
		r.ChangeFacts(func(f failover.AnyFact) { f.NotBefore(n.sighted.time()) })
	}
	return r
}
