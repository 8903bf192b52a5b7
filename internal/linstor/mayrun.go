package linstor

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// beginAfter is how long after the reading of its first setting a node must be seen ONLINE for that setting to be believed:
	// LINSTOR calls a dead node ONLINE for up to 7 s.
	beginAfter = 10 * time.Second
	// userApart is how much later than a quorum that a person has set a replica must be listed to show that the quorum was
	// applied: a person may set it at any moment between two readings, while LINSTOR sets one in the same step as the replica.
	userApart = 10 * time.Second
	// adjustedAfter is how long a node must have been ONLINE again to have applied what LINSTOR sent it: its satellite is
	// ONLINE, and repeats old words, before it adjusts DRBD.
	adjustedAfter = time.Minute
)

// mayRun is what a node may run of a resource: each setting that LINSTOR was seen to want since the last one that the node is
// known to have applied. Nothing but evidence takes a setting out of it.
type mayRun struct {
	// members are the settings, the one that LINSTOR wants last.
	members []member
	// settings are those of members, for snapshots to share: a change makes new ones.
	settings []*failover.Setting
	// begun is set once the node is known to have applied one of them. Until then it may run anything.
	begun bool
	// created is set where the replica came while LINSTOR was followed: its first report shows that the node has applied the
	// first setting, by which it was created.
	created bool
	// severalSince is since when there has been more than one; 0 while there is not.
	severalSince stamp
}

// member is a setting that a node may run.
type member struct {
	setting *failover.Setting
	// at is when LINSTOR was first seen to want it, and read when the reading ended that told so.
	at, read stamp
	// byUserAt is when LINSTOR was first seen to want its quorum, where a person has brought that; 0 where none has.
	byUserAt stamp
	// told is set where another process has seen LINSTOR want it, and this one has not.
	told bool
}

// join adds a setting that LINSTOR was seen to want since at, by a reading that ended at read. gone reports whether a replica
// went while its node was ONLINE. byUserAt is that of a member. It returns whether that changed anything.
func (m *mayRun) join(setting *failover.Setting, at, read, byUserAt stamp, gone func(node string) bool) bool {
	one := member{setting: setting, at: at, read: read}
	if !m.created {
		one.byUserAt = byUserAt
	}
	if n := len(m.members); n > 0 {
		newest := &m.members[n-1]
		switch {
		case !newest.setting.Equal(*setting):
		case newest.told: // seen for the first time by this process: no evidence from before counts
			*newest = one
			return false
		default:
			if newest.byUserAt == 0 && !m.created { // who has set it was read after it
				newest.byUserAt = byUserAt
			}
			return false
		}
		if newest.setting.Quorum == setting.Quorum && !newest.told {
			one.byUserAt = newest.byUserAt
		} else {
			one.byUserAt = byUserAt
		}
	}
	rest := slices.DeleteFunc(slices.Clone(m.members), func(old member) bool {
		return old.setting.Equal(*setting) || covers(*old.setting, *setting, gone)
	})
	m.set(append(rest, one), read)
	return true
}

// covers reports whether a node that runs the old setting can write only where it could by the new one as well: the two differ by
// replicas only that have gone, of which each has a vote that the node cannot get.
func covers(old, setting failover.Setting, gone func(node string) bool) bool {
	word := setting.Quorum == "majority" || setting.Quorum == "all"
	return word && old.Quorum == setting.Quorum &&
		slices.Equal(slices.DeleteFunc(slices.Clone(old.Diskful), gone), setting.Diskful) &&
		slices.Equal(slices.DeleteFunc(slices.Clone(old.Diskless), gone), setting.Diskless)
}

// unite adds settings that another process says the node may run, as older than all others. Nobody knows when LINSTOR wanted them, so
// that what was seen until now is evidence against none of them. It returns whether that changed anything.
func (m *mayRun) unite(settings []failover.Setting, now stamp) bool {
	var told []member
	for _, s := range settings {
		if !slices.ContainsFunc(m.members, func(known member) bool { return known.setting.Equal(s) }) {
			told = append(told, member{setting: &s, told: true})
		}
	}
	if len(told) == 0 {
		return false
	}
	own := slices.Clone(m.members)
	for i := range own {
		if !own[i].told {
			own[i].at, own[i].read = now, now
		}
	}
	m.set(append(told, own...), now)
	return true
}

// creation takes it that the node has created the replica by the first setting, whose quorum it runs, whoever has set that.
func (m *mayRun) creation() {
	m.created = true
	if len(m.members) == 0 {
		return
	}
	since := m.members[0].byUserAt
	for i := range m.members {
		if m.members[i].byUserAt == since {
			m.members[i].byUserAt = 0
		}
	}
}

// retract takes out what only another process has said, which no longer says it, but for what it still says.
func (m *mayRun) retract(still []failover.Setting, now stamp) bool {
	rest := slices.DeleteFunc(slices.Clone(m.members), func(one member) bool {
		return one.told && !slices.ContainsFunc(still, one.setting.Equal)
	})
	if len(rest) == 0 || len(rest) == len(m.members) {
		return false
	}
	m.set(rest, now)
	return true
}

// applied takes it that the node has applied the setting at an index: older ones are over.
func (m *mayRun) applied(i int, now stamp) bool {
	if i == 0 && m.begun {
		return false
	}
	m.begun = true
	m.set(slices.Clone(m.members[i:]), now)
	return true
}

func (m *mayRun) set(members []member, now stamp) {
	m.members = members
	m.settings = make([]*failover.Setting, 0, len(members))
	for _, one := range members {
		m.settings = append(m.settings, one.setting)
	}
	switch {
	case len(members) < 2:
		m.severalSince = 0
	case m.severalSince == 0:
		m.severalSince = now
	}
}

// settled reports whether no evidence is awaited.
func (m *mayRun) settled() bool { return m.begun && len(m.members) < 2 }

// borneOut takes out of what a replica may run all that evidence has overtaken, and returns whether there was any. What LINSTOR shows of
// a node that it is blind for is none.
func (e *entry) borneOut(r *replicaEntry, n *nodeEntry, now stamp) bool {
	m := &r.runs
	if m.settled() || len(m.members) == 0 || n == nil || n.blind != 0 {
		return false
	}
	for i, one := range slices.Backward(m.members) {
		if !one.told && (e.connectedWith(r, one) || n.rejoinedWith(r, one)) {
			return m.applied(i, now)
		}
	}
	if !m.begun {
		m.begun = e.begins(r, n)
		return m.begun
	}
	return false
}

// begins reports whether the first setting of a replica is known to have been applied by its node.
func (e *entry) begins(r *replicaEntry, n *nodeEntry) bool {
	switch first := r.runs.firstRead(); {
	case !r.Reports.Value || !isTrue(n.Online):
		return false
	case r.runs.created:
		return fits(r.runs.members[0].setting) && (e.isAlone(r) || e.meetsAll(r, r.listed))
	default:
		return first != 0 && stampOf(n.LastOnline) >= first+stamp(beginAfter) && n.alive > first
	}
}

// firstRead is the end of this process's first reading; 0 where it has read none of the settings itself.
func (m *mayRun) firstRead() stamp {
	first := stamp(0)
	for _, one := range m.members {
		if one.read != 0 && (first == 0 || one.read < first) {
			first = one.read
		}
	}
	return first
}

// connectedWith reports whether a replica reports connections that it did not report before, to all replicas of a reading at which
// LINSTOR wanted the setting already. Adjusting DRBD sets the quorum first, and adds peers only then.
func (e *entry) connectedWith(r *replicaEntry, one member) bool {
	wanted, lacked := one.at, stamp(0)
	if one.byUserAt != 0 {
		// Of a replica that no list since then lacked nobody knows that it did not come before.
		wanted, lacked = max(wanted, one.byUserAt+stamp(userApart)), one.byUserAt
	}
	return slices.ContainsFunc(e.replicas, func(peer replicaEntry) bool {
		return peer.listed != 0 && peer.listed >= wanted && peer.lacked >= lacked && e.meetsAll(r, peer.listed)
	})
}

// meetsAll reports whether a replica has reported a connection to each one that was first listed by a reading, and that it would
// have a connection to. There must be such a one.
func (e *entry) meetsAll(r *replicaEntry, listed stamp) bool {
	met := false
	for i := range e.replicas {
		other := &e.replicas[i]
		if other.listed != listed || other.Leaving || !connectable(r, other) {
			continue
		}
		if !slices.ContainsFunc(r.peers, func(p peer) bool { return p.node == other.Node && p.first >= listed }) {
			return false
		}
		met = true
	}
	return met
}

// isAlone reports whether no replica that r would have a connection to was first listed together with it.
func (e *entry) isAlone(r *replicaEntry) bool {
	return !slices.ContainsFunc(e.replicas, func(peer replicaEntry) bool {
		return peer.listed == r.listed && !peer.Leaving && connectable(r, &peer)
	})
}

// connectable reports whether two replicas have a connection: two without a disk do not.
func connectable(a, b *replicaEntry) bool { return a.Node != b.Node && (!a.Diskless || !b.Diskless) }

// rejoinedWith reports whether a node was seen to leave LINSTOR and to come back after LINSTOR wanted the setting, and has been
// ONLINE and reporting the replica for long enough since, of which only the time counts in which LINSTOR was not blind for it: LINSTOR
// sends everything anew to a satellite that comes back.
func (n *nodeEntry) rejoinedWith(r *replicaEntry, one member) bool {
	if n.away < one.read || n.back <= n.away || !r.Reports.Value || r.read < n.back {
		return false
	}
	return stampOf(n.LastOnline) >= max(n.back, r.reporting, n.sighted)+stamp(adjustedAfter)
}

// steady is for how long a replica must have reported for its list of connections to be whole: after a reconnect it is listed in part
// for 0.1 s. An event tells of that.
const steady = 2 * time.Second

// meet forgets the peers of a replica to which it has no connection any more, so that a connection counts as new if it comes again: LINSTOR
// no longer lists the peer, and an ONLINE node that had reported for a while did so without it. events is since when no event was missed.
func (e *entry) meet(r *replicaEntry, online bool, events stamp, at span) {
	if !online || !r.Reports.Value || stampOf(at.start)-max(r.reporting, events) < stamp(steady) {
		return
	}
	r.peers = slices.DeleteFunc(r.peers, func(p peer) bool { return !p.listed && e.replica(p.node) == nil })
}
