package linstor

import (
	"maps"
	"math"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// take takes over what a list says of a replica. The lock must be held.
func (s *Store) take(r *replicaEntry, w client.Resource, at span) {
	values := w.Values()
	r.drbd = w.IsDRBD()
	r.volumes = int32(min(len(values.Volumes), math.MaxInt32))
	r.Diskless = client.AnyFlag(w.Flags, client.FlagDiskless, client.FlagDRBDDiskless)
	r.Client = r.Diskless && client.AnyFlag(values.Flags, client.FlagClient)
	r.Leaving = client.AnyFlag(w.Flags, client.FlagDelete, client.FlagDRBDDelete, client.FlagEvicted, client.FlagInactive)

	before := r.Replica
	r.MayPromote = observe(r.MayPromote, values.MayPromote, at)
	r.InUse = observe(r.InUse, w.IsInUse(), at)
	r.Score = observe(r.Score, values.PromotionScore, at)
	r.Reports = observe(r.Reports, new(w.Reports()), at)
	news := differs(before.MayPromote, r.MayPromote) || differs(before.InUse, r.InUse) || differs(before.Score, r.Score)
	if r.Reports.Value && !before.Reports.Value {
		r.reporting = stampOf(at.end)
	}
	if isTrue(r.InUse) && !s.isBlindFor(r.Node) && r.InUse.Confirmed.After(r.LastInUse) {
		r.LastInUse = r.InUse.Confirmed
	}
	if s.connect(r, values, at) || news || r.spoke {
		r.Heard, r.spoke = at.end, false
	}
	r.read = stampOf(at.start)
}

// connect takes over what a list says of a replica's connections, and tells whether that is news. The old map has been handed out and
// stays. The lock must be held.
func (s *Store) connect(r *replicaEntry, values client.DRBD, at span) (news bool) {
	all := make(map[string]Fact[bool], len(values.Connections))
	for name, c := range values.Connections {
		peer := s.nodeName(name)
		old := r.Connections[peer]
		seen := observe(old, c.IsConnected(), at)
		news = news || differs(old, seen)
		r.Rejoined = rejoined(r.Rejoined, peer, old, seen, at.end)
		all[peer] = seen
	}
	r.Connections = all
	return news
}

// rejoined returns since when a replica has been Connected to those peers that it was seen to connect to, after it was read
// what it says of one peer. The old map has been handed out and stays.
func rejoined(all map[string]time.Time, peer string, old, seen Fact[bool], now time.Time) map[string]time.Time {
	switch _, there := all[peer]; {
	case seen.Known && !seen.Value && there:
		all = maps.Clone(all)
		delete(all, peer)
	case seen.Known && seen.Value && old.Known && !old.Value:
		all = maps.Clone(all)
		if all == nil {
			all = map[string]time.Time{}
		}
		all[peer] = now
	}
	return all
}

// differs tells whether a satellite must have said something between two readings of a fact. What LINSTOR no longer knows is
// no news from there.
func differs[T comparable](before, after Fact[T]) bool { return after.Known && !same(before, after) }
