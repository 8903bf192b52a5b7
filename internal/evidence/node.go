package evidence

import (
	"slices"
	"time"
)

const (
	// beginAfter is how long after its first reading a node must be seen ONLINE for what was read to be believed: LINSTOR calls a dead node
	// ONLINE for up to 7 s.
	beginAfter = Moment(10 * time.Second)
	// adjustedAfter is how long a node must have been ONLINE again to have applied what LINSTOR sent it: its satellite is
	// ONLINE, and repeats old words, before it adjusts DRBD.
	adjustedAfter = Moment(time.Minute)
	// steady is for how long a replica must have reported for its list of connections to be whole: after a reconnect it is listed in part
	// for 0.1 s.
	steady = Moment(2 * time.Second)
)

// Node is what is known of one node X of a resource: whom it counts, and what it has applied.
type Node struct {
	// Created is set where X is known to have created its replica while LINSTOR was followed.
	Created bool

	peers []peer
	// first is the end of the first reading of the replica and its quorum.
	first Moment
	// begun is set once anything is known to have been applied; applied is AppliedAt, and proven is set where that was seen, and not only what
	// LINSTOR wanted at first trusted.
	begun, proven bool
	applied       Moment
	// sees is when X was last known to see each disk UpToDate that it may count: DRBD gives none away that it counts as diskless.
	sees Moment
	// told is when another process has said that X is unconfirmed; 0 where none does, or evidence has come since.
	told Moment
	// unsure is since when X is unconfirmed; 0 while it is not.
	unsure Moment
	// gone is set where LINSTOR no longer lists the replica, and frozen where X was confirmed when that began.
	gone, frozen bool
}

// peer is one that X has a connection to in DRBD, in whatever state.
type peer struct {
	node string
	// first is the end of the first list in which X had it.
	first Moment
}

// Satellite is what is known of X's satellite.
type Satellite struct {
	// Online is set while LINSTOR calls it ONLINE, and is not blind for it.
	Online bool
	// Away is the start of the newest list of nodes that did not show it ONLINE, Back the end of the first one that did again, and LastOnline the
	// start of the newest one that did.
	Away, Back, LastOnline Moment
	// Alive is its newest sign of life other than LINSTOR's word.
	Alive Moment
	// Sighted is when LINSTOR was blind for it last.
	Sighted Moment
	// Reports are its error reports.
	Reports *Reports
}

// Peer is a replica that LINSTOR lists, as X's peer.
type Peer struct {
	Node string
	Kind Kind
	// Diskless is set where it has no disk, be it that it has no vote either.
	Diskless bool
	// Detached is set where it says itself, since it was last toggled, that it has no disk that is UpToDate.
	Detached bool
	// Wanted is set unless it is on its way out, or its node is.
	Wanted bool
	// Listed is the end of the list that brought it, 0 for one of the first list of all; Lacked is the start of the last list without it.
	Listed, Lacked Moment
	// Toggled is the end of the last list that showed it with another kind of vote than before.
	Toggled Moment
}

// Replica is what LINSTOR shows of X.
type Replica struct {
	Peer
	Resource  string
	Reporting bool
	// Since is since when it reports without interruption, and Read the start of the newest list that had it.
	Since, Read Moment
	// UpToDate is how many disks X itself says to see UpToDate, its own included, by its promotion score, and SeenAt the start of the newest list that
	// said so; 0 where it does not say.
	UpToDate int
	SeenAt   Moment
	// Others are the replicas on other nodes.
	Others []Peer
}

// meets tells whether a replica has a connection to X: two without a disk have none.
func (x Replica) meets(p Peer) bool {
	return p.Node != x.Node && (!p.Diskless || !x.Diskless)
}

// Meet takes over which connections X reports by a list: start and end are the list's, since is since when X has reported and no event was missed,
// and forgotten tells since when LINSTOR has forgotten a node, of which nothing shows that it has let the replica go; 0 where it has not. X may go on
// counting such a one, until it has applied what LINSTOR wanted later.
func (n *Node) Meet(connections []string, start, end, since Moment, online bool, forgotten func(node string) Moment) {
	for _, c := range connections {
		if !n.Counts(c) {
			n.peers = append(n.peers, peer{c, end})
		}
	}
	if !online || start-since < steady {
		return
	}
	n.peers = slices.DeleteFunc(n.peers, func(p peer) bool { return !slices.Contains(connections, p.node) && forgotten(p.node) <= n.applied })
}

// Counts tells whether X has shown a connection to a node.
func (n *Node) Counts(node string) bool {
	return slices.ContainsFunc(n.peers, func(p peer) bool { return p.node == node })
}

// listsAll tells whether X has a connection to each one that LINSTOR wants it to have one to.
func (n *Node) listsAll(x Replica) bool {
	return !slices.ContainsFunc(x.Others, func(p Peer) bool { return p.Wanted && x.meets(p) && !n.Counts(p.Node) })
}

// See looks for evidence of what X has applied. It tells whether there was any that is new.
func (n *Node) See(x Replica, s Satellite, f *Fence) (changed bool) {
	if f.last.Quorum != "" && n.first == 0 {
		n.first = f.last.End
	}
	if !s.Online || !x.Reporting {
		return false
	}
	if x.UpToDate > 0 && x.UpToDate == n.visible(x) {
		n.sees = max(n.sees, x.SeenAt)
	}
	if n.first == 0 || !n.listsAll(x) {
		return false
	}
	if met := n.met(x, f.person); met > 0 {
		changed = n.apply(met, true)
	}
	if rejoined(x, s) && (!f.NeedsReports() || s.Reports.clear(x.Resource, s.Away, s.Back+adjustedAfter)) {
		changed = n.apply(s.Away, true) || changed
	}
	if !n.begun {
		changed = n.begin(x, s, f)
	}
	return changed
}

// met is before when X has applied everything, by the newest peer that it lists and that came later than X: one that came together with X shows nothing, as
// both may have been there all the time. It is 0 where there is none.
func (n *Node) met(x Replica, person bool) (before Moment) {
	for _, p := range x.Others {
		at := slices.IndexFunc(n.peers, func(met peer) bool { return met.node == p.Node })
		if at >= 0 && n.peers[at].first >= p.Listed && p.Lacked > x.Lacked {
			before = max(before, p.Lacked)
		}
	}
	if person {
		before = max(before-userApart, 0)
	}
	return before
}

// begin takes it that X has applied what was read first, once that is known.
func (n *Node) begin(x Replica, s Satellite, f *Fence) (changed bool) {
	switch {
	case n.Created:
		return n.apply(x.Lacked, true)
	case s.LastOnline >= n.first+beginAfter && s.Alive > n.first && (!f.person || s.Reports.clear(x.Resource, 0, n.first)):
		return n.apply(x.Lacked, false)
	}
	return false
}

// visible is how many disks X sees UpToDate if it sees all that there may be.
func (n *Node) visible(x Replica) int {
	votes := n.Votes(x, func(string) (Kind, bool) { return WithDisk, true })
	for _, p := range append(slices.Clip(x.Others), x.Peer) {
		if p.Kind != WithDisk && p.Detached {
			votes = slices.DeleteFunc(votes, func(v Vote) bool { return v.Node == p.Node })
		}
	}
	return disks(votes)
}

// rejoined tells whether X's satellite was seen to go away and to come back, and has been ONLINE and reporting the replica for a minute since.
func rejoined(x Replica, s Satellite) bool {
	return s.Away != 0 && x.Read >= s.Back && s.LastOnline >= max(s.Back, x.Since, s.Sighted)+adjustedAfter
}

// AwaitsReports tells whether all that lacks is a reading of the satellite's error reports.
func (n *Node) AwaitsReports(s Satellite) bool {
	asked := Moment(0)
	if s.Reports != nil {
		asked = s.Reports.asked
	}
	after := s.Back + adjustedAfter
	if s.Away != 0 && s.Back > s.Away && s.LastOnline >= after && asked < after {
		return true
	}
	return !n.begun && n.first != 0 && s.LastOnline >= n.first+beginAfter && asked < n.first
}

func (n *Node) apply(at Moment, proven bool) (changed bool) {
	changed = !n.begun || at > n.applied || proven && !n.proven
	n.begun, n.proven, n.applied = true, n.proven || proven, max(n.applied, at)
	if n.applied > n.told {
		n.told = 0
	}
	return changed
}

// Confirmed tells whether X is known to have applied what LINSTOR wanted since its quorum has fenced.
func (n *Node) Confirmed(f *Fence) bool {
	if n.gone {
		return n.frozen && n.told == 0
	}
	return n.begun && n.told == 0 && n.applied >= f.Since()
}

// Proven tells whether that was seen, and not only trusted.
func (n *Node) Proven() bool { return n.proven }

// Awaits tells whether evidence of X would tell anything new.
func (n *Node) Awaits(f *Fence) bool {
	return !n.Confirmed(f) && !(n.begun && n.told == 0 && f.Since() == Never)
}

// Overlooks tells whether X is not known to count each disk that LINSTOR wants it to.
func (n *Node) Overlooks(x Replica) bool {
	unseen := func(p Peer) bool { return p.Kind == WithDisk && p.Toggled > max(n.applied, n.sees) }
	return unseen(x.Peer) || slices.ContainsFunc(x.Others, unseen)
}

// Note notes since when X is unconfirmed, for other processes: not before first sight, when nobody has said so, nor while the quorum does not fence.
func (n *Node) Note(f *Fence, now Moment) {
	isRead := f.last.Quorum != "" // until then, what another process has said goes on
	switch {
	case isRead && n.Confirmed(f), !n.begun && n.told == 0, isRead && f.Since() == Never && !n.gone:
		n.unsure = 0
	case n.unsure == 0:
		n.unsure = now
	}
}

// Unsure is since when X is unconfirmed, as other processes should know; 0 where they need not.
func (n *Node) Unsure() Moment { return n.unsure }

// Other is the quorum that X may run beside the one that LINSTOR wants; empty where there is none.
func (n *Node) Other(f *Fence) string {
	switch {
	case f.before != f.last.Quorum && n.applied < f.changed:
		return f.before
	case n.unsure != 0:
		return "off"
	}
	return ""
}

// Since is since when X is unconfirmed, be it that it was first read then; 0 where it is confirmed, or nothing is known of it.
func (n *Node) Since(f *Fence) Moment {
	switch {
	case n.Confirmed(f):
		return 0
	case n.unsure != 0:
		return n.unsure
	}
	return n.first
}

// Tell takes it that X has been unconfirmed since a moment, as another process has said.
func (n *Node) Tell(at, since Moment) {
	n.told = at
	if n.unsure == 0 || since < n.unsure {
		n.unsure = since
	}
}

// Untell takes back what another process has said. It tells whether one had.
func (n *Node) Untell() (changed bool) {
	changed, n.told = n.told != 0, 0
	return changed
}

// Leave takes it that LINSTOR no longer lists X, of which nothing shows that it has let the replica go.
func (n *Node) Leave(f *Fence, now Moment) {
	n.frozen = n.Confirmed(f)
	n.gone = true
	if !n.frozen && n.unsure == 0 {
		n.unsure = now
	}
}

// Return takes it that LINSTOR lists X again: it may have been there all the time, and run what it ran.
func (n *Node) Return(now Moment) {
	if n.gone && !n.frozen {
		n.told = now
	}
	n.gone, n.frozen, n.Created = false, false, false
}

// Votes are whom X counts, itself included. Where LINSTOR wants others than X has shown, or has changed a disk since X is known to have applied
// anything, it may be either. gone is what is known of those that LINSTOR has forgotten. It is nil where nothing was seen of X.
func (n *Node) Votes(x Replica, gone func(node string) (Kind, bool)) []Vote {
	if n.peers == nil {
		return nil
	}
	const both = WithDisk | WithoutDisk
	may := func(p Peer) Kind {
		if p.Toggled > n.applied && (p.Kind != WithDisk || p.Toggled > n.sees) {
			return p.Kind | both
		}
		return p.Kind
	}
	votes := []Vote{{x.Node, may(x.Peer)}}
	for _, met := range n.peers {
		vote := Vote{met.node, both | Absent}
		if at := slices.IndexFunc(x.Others, func(p Peer) bool { return p.Node == met.node }); at >= 0 {
			vote.May = may(x.Others[at])
			if !x.Others[at].Wanted {
				vote.May |= Absent
			}
		} else if kind, ok := gone(met.node); ok {
			vote.May = kind | Absent
		}
		votes = append(votes, vote)
	}
	for _, p := range x.Others {
		if !n.Counts(p.Node) && p.Wanted && x.meets(p) {
			votes = append(votes, Vote{p.Node, p.Kind | WithoutDisk | Absent}) // a client too: X does not know that it writes
		}
	}
	return votes
}
