package linstor

import "time"

// stamp is a time as the store keeps it, in nanoseconds since epoch; 0 is the zero time. There are hundreds of thousands of
// them in a large cluster, and a time.Time takes three times as much, with a pointer in it that the garbage collector follows.
type stamp int64

// epoch lies long before any time that is kept, so that none of them is 0. It has a reading of the monotonic clock, and so
// have the times that are made of it: a step of the machine's clock changes no duration.
var epoch = time.Now().Add(-1 << 60)

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(t.Sub(epoch))
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(s))
}

// kept is a Fact as the store keeps it, but for when it was confirmed.
type kept[T comparable] struct {
	value T
	known bool
	since stamp
}

// fact returns the Fact, given when it was confirmed.
func (k kept[T]) fact(confirmed stamp) Fact[T] {
	return Fact[T]{Value: k.value, Known: k.known, Since: k.since.time(), Confirmed: confirmed.time()}
}

func keep[T comparable](f Fact[T]) kept[T] {
	return kept[T]{value: f.Value, known: f.Known, since: stampOf(f.Since)}
}

// same tells whether two facts say the same, whenever they do.
func (k kept[T]) same(other kept[T]) bool {
	return k.known == other.known && (!k.known || k.value == other.value)
}

// replicaEntry is a Replica as the store keeps it, without what the node and the levels above decide. Its facts are confirmed
// by the newest list that had it, but for mayPromote, of which events tell as well.
type replicaEntry struct {
	node string
	// read is the start of that list.
	read                stamp
	mayPromote          kept[bool]
	mayPromoteConfirmed stamp
	reports             kept[bool]
	inUse               kept[bool]
	score               kept[int]
	// connections are sorted by peer.
	connections []keptConnection
	// rejoined is never changed once it is there: snapshots share it.
	rejoined  map[string]time.Time
	heard     stamp
	lastInUse stamp
	// listed is the end of the list that brought the replica; 0 for one that the first list of the resource had.
	listed stamp
	// reporting is since when each list has had a state of it, and no event said that there is none.
	reporting stamp
	// peers are those that it has reported a connection to.
	peers []reportedPeer
	runs  mayRun
	// returned is set where LINSTOR lists the replica again, after it had gone from the list for no reason that is known.
	returned bool
	volumes  int32
	// spoke is set from an event that changed what the replica said on, until a list is read.
	spoke    bool
	drbd     bool
	diskless bool
	leaving  bool
}

// keptConnection is a connection as the store keeps it.
type keptConnection struct {
	peer      string
	connected kept[bool]
}

func (r *replicaEntry) mayPromoteFact() Fact[bool] { return r.mayPromote.fact(r.mayPromoteConfirmed) }

// connected returns what the last list said of the connection to a peer.
func (r *replicaEntry) connected(peer string) Fact[bool] {
	for _, c := range r.connections {
		if c.peer == peer {
			return c.connected.fact(r.read)
		}
	}
	return Fact[bool]{}
}

// replica returns the Replica as it is handed out.
func (r *replicaEntry) replica() Replica {
	connections := make(map[string]Fact[bool], len(r.connections))
	for _, c := range r.connections {
		connections[c.peer] = c.connected.fact(r.read)
	}
	return Replica{
		Node:        r.node,
		Diskless:    r.diskless,
		Leaving:     r.leaving,
		Reports:     r.reports.fact(r.read),
		MayPromote:  r.mayPromoteFact(),
		InUse:       r.inUse.fact(r.read),
		Score:       r.score.fact(r.read),
		Connections: connections,
		Heard:       r.heard.time(),
		Rejoined:    r.rejoined,
		LastInUse:   r.lastInUse.time(),
		MayRun:      r.runs.settings,
		Begun:       r.runs.begun,
	}
}
