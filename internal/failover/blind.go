package failover

import (
	"maps"
	"slices"
	"time"
)

// LINSTOR is known to go blind: after "node lost" during a reconnect the thread ends by which it talks to its satellites. It goes on to
// answer, and shows for ever what it knew last. Only its storage pools tell to which nodes it has no connection.

const (
	// BlindApart is how far two answers must lie apart between which LINSTOR has had no connection to a node that it calls ONLINE. One that
	// sees calls a node ONLINE for up to a second after it has lost the connection.
	BlindApart = 10 * time.Second
	// sightGap is how far two answers in a row may lie apart, of which nobody knows what was in between.
	sightGap = 5 * time.Second
	// proofSpan is how far back of the newest answer of a row there is surely another one that ended BlindApart before it: they begin
	// sightGap apart at most, and take ActAge.
	proofSpan = BlindApart + sightGap + ActAge
)

// Sight is one answer of LINSTOR on which nodes it sees.
type Sight struct {
	// Began is when the first question was asked, Ended when the last one was answered.
	Began, Ended time.Time
	// Nodes are those that LINSTOR lists, by their names in LINSTOR, in lower case.
	Nodes map[string]SeenNode
}

// SeenNode is what an answer says of one node. Of its facts only the values count.
type SeenNode struct {
	// Online tells whether each list of nodes of that time called it ONLINE.
	Online Fact[bool]
	// Connected tells whether LINSTOR has a connection to its satellite.
	Connected Fact[bool]
}

// blind tells whether LINSTOR calls a node ONLINE to which it has no connection, and sees whether it is known to be otherwise.
func (n SeenNode) blind() bool { return n.Online.is(true) && n.Connected.is(false) }
func (n SeenNode) sees() bool  { return n.Online.is(false) || n.Connected.is(true) }

// Blindness is what a process remembers of LINSTOR's answers. The zero value remembers nothing.
type Blindness struct {
	nodes map[string]unseen
}

// unseen is a node that LINSTOR may be blind for.
type unseen struct {
	// first is the end of the first and last the beginning of the newest answer of a row that all say so; zero while there is none.
	first, last time.Time
	// since is since when LINSTOR is known to be blind for it; zero while it is not.
	since time.Time
}

// apart tells whether the row is long enough.
func (u unseen) apart() bool { return u.last.Sub(u.first) >= BlindApart }

// Observe takes an answer. Who is asked and does not say, or takes longer than a value is fresh, ends the row, but not what is known:
// that ends when LINSTOR sees the node again, or no longer says that it does.
func (b *Blindness) Observe(s Sight) {
	late := s.Ended.Sub(s.Began) > ActAge
	nodes := make(map[string]unseen, len(b.nodes))
	for name, node := range s.Nodes {
		before := b.nodes[name]
		switch {
		case node.sees():
			continue
		case late || !node.blind():
			before.first, before.last = time.Time{}, time.Time{}
		case s.Began.Sub(before.last) > sightGap: // also where there is none before
			before.first, before.last = s.Ended, s.Began
		default:
			before.last = s.Began
		}
		if before.since.IsZero() && before.apart() {
			before.since = before.first
		}
		if before != (unseen{}) {
			nodes[name] = before
		}
	}
	b.nodes = nodes
}

// Unanswered takes it that LINSTOR has not answered.
func (b *Blindness) Unanswered() {
	for name, node := range b.nodes {
		node.first, node.last = time.Time{}, time.Time{}
		if node.since.IsZero() {
			delete(b.nodes, name)
		} else {
			b.nodes[name] = node
		}
	}
}

// Nodes returns the nodes that LINSTOR is known to be blind for, and since when: its words on them are void.
func (b *Blindness) Nodes() map[string]time.Time {
	since := make(map[string]time.Time, len(b.nodes))
	for name, node := range b.nodes {
		if !node.since.IsZero() {
			since[name] = node.since
		}
	}
	return since
}

// Suspects tells whether there is a node that LINSTOR may be blind for.
func (b *Blindness) Suspects() bool { return len(b.nodes) > 0 }

// Clone returns a copy.
func (b *Blindness) Clone() Blindness { return Blindness{nodes: maps.Clone(b.nodes)} }

// Proof returns until when it may be acted on that LINSTOR is blind for a node, as only a restart of it ends: each answer since
// BlindApart ago said so, the newest one a moment ago, and the node's kubelet was silent all the time. It is false where that is not so.
// LINSTOR may have been known to be blind for long before the kubelet fell silent.
func (b *Blindness) Proof(n Node, now time.Time, silence time.Duration) (until time.Time, ok bool) {
	node := b.nodes[n.satellite()]
	from := latest(node.first, node.last.Add(-proofSpan))
	ok = node.apart() && live(node.last, now) && n.LeaseKnown && n.LeaseSilence-now.Sub(from) >= n.Patience(silence)
	return node.last.Add(ActAge), ok
}

// Void returns R with everything unknown that LINSTOR says of the nodes, in lower case, for which it is blind.
func (r Resource) Void(nodes []string, now time.Time) Resource {
	if len(nodes) == 0 {
		return r
	}
	r.Replicas = slices.Clone(r.Replicas)
	for i := range r.Replicas {
		if replica := &r.Replicas[i]; slices.Contains(nodes, replica.Node) {
			replica.Blind = true
			replica.ChangeFacts(func(f AnyFact) { f.Void(now) })
		}
	}
	return r
}
