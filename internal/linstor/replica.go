package linstor

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// stamp is a moment by which the store orders what it has read, in nanoseconds since epoch; 0 is the zero time.
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

// replicaEntry is a Replica as the store keeps it, without connections: peers has them. What the node and the levels above decide is added
// when it is handed out.
type replicaEntry struct {
	Replica
	// peers are those to which it has reported a connection, sorted by node. A slice is never changed: a reading makes a new one.
	peers []peer
	// read is the start of the newest list that had it.
	read stamp
	// listed is the end of the list that brought the replica; 0 for one that the first list of the resource had.
	listed stamp
	// lacked is the start of the last list that lacked it.
	lacked stamp
	// reporting is since when each list has had a state of it, and no event reported that there is none.
	reporting stamp
	// toggled is the end of the last list that showed it with another kind of vote than before; 0 where none has.
	toggled  stamp
	evidence evidence.Node
	// forgotten is the end of the first list without it, of one that is gone.
	forgotten stamp
	volumes   int32
	// returned is set if LINSTOR lists the replica again after it had disappeared from the list for an unknown reason.
	returned bool
	// spoke is set from an event that changed a fact until a list is read.
	spoke bool
	drbd  bool
}

// peer is a node to which a replica has reported a connection.
type peer struct {
	node string
	// connected is whether it is Connected, and listed is set if the newest list shows the connection at all.
	connected Fact[bool]
	listed    bool
	// rejoined is when it was last seen to turn Connected. It becomes 0 when it is seen not to be.
	rejoined stamp
}

// unlisted returns the peers without their connections.
func (r *replicaEntry) unlisted() []peer {
	peers := slices.Clone(r.peers)
	for i := range peers {
		peers[i].connected, peers[i].listed = Fact[bool]{}, false
	}
	return peers
}

// connection returns whether a replica is connected to a node, by the newest list.
func (r *replicaEntry) connection(node string) Fact[bool] {
	for _, p := range r.peers {
		if p.node == node {
			return p.connected
		}
	}
	return Fact[bool]{}
}

// replica returns the Replica as it is handed out.
func (r *replicaEntry) replica() Replica {
	out := r.Replica
	out.Connections = make(map[string]Fact[bool], len(r.peers))
	for _, p := range r.peers {
		if p.listed {
			out.Connections[p.node] = p.connected
		}
		if p.rejoined != 0 {
			if out.Rejoined == nil {
				out.Rejoined = map[string]time.Time{}
			}
			out.Rejoined[p.node] = p.rejoined.time()
		}
	}
	return out
}
