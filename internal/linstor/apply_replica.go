package linstor

import (
	"math"
	"slices"
	"strings"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// take takes over what a list shows of a replica. The lock must be held.
func (s *Store) take(r *replicaEntry, w client.Resource, at span) {
	values := w.Values()
	r.drbd = w.IsDRBD()
	kind := r.kind()
	r.volumes = int32(min(len(values.Volumes), math.MaxInt32))
	r.Diskless = client.AnyFlag(w.Flags, client.FlagDiskless, client.FlagDRBDDiskless)
	r.Client = r.Diskless && client.AnyFlag(values.Flags, client.FlagClient)
	r.Leaving = client.AnyFlag(w.Flags, client.FlagDelete, client.FlagDRBDDelete, client.FlagEvicted, client.FlagInactive)

	if r.read != 0 && r.kind() != kind {
		r.toggled = stampOf(at.end)
	}
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

// connect takes over the connections that a list shows, and reports whether that is news. The lock must be held.
func (s *Store) connect(r *replicaEntry, values client.DRBD, at span) (news bool) {
	peers := r.unlisted()
	for name, c := range values.Connections {
		node := s.nodeName(name)
		i, known := slices.BinarySearchFunc(peers, node, func(p peer, node string) int { return strings.Compare(p.node, node) })
		if !known {
			peers = slices.Insert(peers, i, peer{node: node})
		}
		p, old := &peers[i], r.connection(node)
		p.listed, p.connected = true, observe(old, c.IsConnected(), at)
		news = news || differs(old, p.connected)
		switch {
		case p.connected.Known && !p.connected.Value:
			p.rejoined = 0
		case isTrue(p.connected) && old.Known && !old.Value:
			p.rejoined = stampOf(at.end)
		}
	}
	r.peers = peers
	return news
}

// differs reports whether a satellite must have reported something between two readings of a fact. That LINSTOR no longer knows it is no
// report.
func differs[T comparable](before, after Fact[T]) bool { return after.Known && !same(before, after) }
