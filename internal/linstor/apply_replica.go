package linstor

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// take takes over what a list says of a replica. The lock must be held.
func (s *Store) take(r *replicaEntry, w client.Resource, at span) {
	values, read := w.Values(), r.read
	r.drbd = w.IsDRBD()
	r.volumes = int32(min(len(values.Volumes), math.MaxInt32))
	r.diskless = client.AnyFlag(w.Flags, client.FlagDiskless, client.FlagDRBDDiskless)
	r.leaving = client.AnyFlag(w.Flags, client.FlagDelete, client.FlagDRBDDelete, client.FlagEvicted, client.FlagInactive)

	mayPromote := observe(r.mayPromoteFact(), values.MayPromote, at)
	inUse := observe(r.inUse.fact(read), w.IsInUse(), at)
	score := observe(r.score.fact(read), values.PromotionScore, at)
	news := differs(r.mayPromoteFact(), mayPromote) || differs(r.inUse.fact(read), inUse) || differs(r.score.fact(read), score)
	r.mayPromote, r.mayPromoteConfirmed = keep(mayPromote), stampOf(mayPromote.Confirmed)
	r.inUse, r.score = keep(inUse), keep(score)
	before := r.reports.value
	r.reports = keep(observe(r.reports.fact(read), new(w.Reports()), at))
	if r.reports.value && !before {
		r.reporting = stampOf(at.end)
	}
	if isTrue(inUse) && !s.isBlindFor(r.node) && inUse.Confirmed.After(r.lastInUse.time()) {
		r.lastInUse = stampOf(inUse.Confirmed)
	}
	if s.connect(r, values, at) || news || r.spoke {
		r.heard, r.spoke = stampOf(at.end), false
	}
	r.read = stampOf(at.start)
}

// connect takes over what a list says of a replica's connections, and tells whether that is news. The lock must be held.
func (s *Store) connect(r *replicaEntry, values client.DRBD, at span) (news bool) {
	all := make([]keptConnection, 0, len(values.Connections))
	for name, connection := range values.Connections {
		peer := s.nodeName(name)
		old := r.connected(peer)
		seen := observe(old, connection.IsConnected(), at)
		news = news || differs(old, seen)
		r.rejoined = rejoined(r.rejoined, peer, old, seen, at.end)
		all = append(all, keptConnection{peer, keep(seen)})
	}
	slices.SortFunc(all, func(a, b keptConnection) int { return strings.Compare(a.peer, b.peer) })
	r.connections = slices.CompactFunc(all, func(a, b keptConnection) bool { return a.peer == b.peer })
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
