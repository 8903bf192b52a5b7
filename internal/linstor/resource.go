package linstor

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// MaxGap is the longest time two reads of the same fact may lie apart for the fact to count as
// having held without interruption. A longer gap restarts Since: nobody saw what happened in it.
const MaxGap = 2 * time.Second

// Fact is one observed value together with how long it has held.
//
// The zero Fact is "never observed". An observed fact may still be unknown: LINSTOR omits what it
// does not know, and an omitted value is neither false nor 0.
type Fact[T comparable] struct {
	// Value is meaningful only while Known is true.
	Value T
	// Known is false when LINSTOR did not say.
	Known bool
	// Since is the time from which on every observation, none more than MaxGap after the one
	// before, has said the same (an unknown counts as a value of its own).
	Since time.Time
	// Confirmed is the time of the newest observation that said so.
	Confirmed time.Time
}

// Resource is everything known of one LINSTOR resource definition, as an immutable snapshot:
// nothing in it changes after the store has handed it out, and the reader must not change it.
type Resource struct {
	// Name is the resource definition's display name.
	Name string
	// Confirmed is when the replica list was last read as a whole.
	Confirmed time.Time
	// SetSince is since when the set of nodes with a replica has been the same without a gap. It is
	// the clock of "there is no replica on that node".
	SetSince time.Time
	// DRBD tells whether the resource's top layer is DRBD.
	DRBD bool
	// Volumes is the number of volumes of the resource definition, as its replicas show it; 0 when not known.
	// DRBD reports one promotion score for all volumes of a resource.
	Volumes int
	// Quorum is the value of DrbdOptions/Resource/quorum that LINSTOR wants, merged over resource definition, resource group
	// and controller; "off" when it is set nowhere, and empty while not all of these levels have been read.
	Quorum string
	// InDoubt is set while the quorum may be another than that: LINSTOR adapts it when replicas come and go, and it was not read since.
	InDoubt bool
	// Left are the nodes, in lower case, whose replica went while the node's satellite was ONLINE, and so has really gone.
	Left []string
	// Replicas is sorted by node name.
	Replicas []Replica
}

// Replica is one resource of a resource definition: what one node has of it.
type Replica struct {
	// Node is the LINSTOR node name in lower case. LINSTOR compares names case-insensitively;
	// Kubernetes node names are lower case.
	Node string

	// Diskless is set for replicas without a local disk, tie-breakers included.
	Diskless bool
	// TieBreaker is set for the diskless replica that LINSTOR keeps for quorum only.
	TieBreaker bool
	// Leaving is set when the replica (DELETE, DRBD_DELETE, EVICTED, INACTIVE) or its node (DELETE,
	// EVICTED) is on its way out: it can not take a volume over.
	Leaving bool

	// Online tells whether the node's satellite is ONLINE, the only connection status under which
	// its values reach LINSTOR.
	Online Fact[bool]
	// Blind is set while LINSTOR has no connection to the node and calls it ONLINE all the same. What it says of the replica is void: all
	// facts are unknown.
	Blind bool
	// Reports tells whether LINSTOR has any dynamic state of this replica at all.
	Reports Fact[bool]
	// MayPromote is DRBD's word that this replica could become Primary now.
	MayPromote Fact[bool]
	// InUse is true while DRBD's role is Primary. It says nothing of whether a file system is mounted.
	InUse Fact[bool]
	// Score is DRBD's promotion score; 0 on a Primary means that it lost quorum or its data.
	Score Fact[int]
	// Connections tells whether this replica's DRBD connections are Connected, sorted by peer. A peer without
	// an entry is unknown. (Of a slice ten thousands take a quarter of the memory of a map.)
	Connections []Connection

	// Heard is when a list last brought news of this replica's state, or was read after events that did: its satellite was alive
	// shortly before.
	Heard time.Time
	// Rejoined tells per peer node (lower case) when this replica was last seen to turn Connected to it. It stays
	// until the replica says that the connection is gone, also while LINSTOR has no state of the replica.
	Rejoined map[string]time.Time

	// LastInUse is when this replica was last seen Primary by this process; zero when never.
	LastInUse time.Time
	// Gone is set where LINSTOR no longer lists the replica, and it is not known that its node has let it go: LINSTOR forgets
	// replicas (node lost, a database restored) that may still be written to. The rest is what was known of it.
	Gone bool
	// MayRun are the settings that its node may run, the newest last: each that LINSTOR was seen to want since the last one that
	// the node is known to have applied. Resources share it.
	MayRun []*failover.Setting
	// Begun is set once the node is known to have applied one of them; until then it may run anything.
	Begun bool
}

// Replica returns the replica on the named node.
func (r Resource) Replica(node string) (Replica, bool) {
	for _, replica := range r.Replicas {
		if replica.Node == node {
			return replica, true
		}
	}
	return Replica{}, false
}

// Connection is one end of a DRBD connection.
type Connection struct {
	// Peer is the node at the other end, in lower case.
	Peer string
	// Connected tells whether the connection's state is Connected.
	Connected Fact[bool]
}

// Connection returns what the replica says of its connection to a peer, named in lower case; false where it says nothing.
func (r Replica) Connection(peer string) (Fact[bool], bool) {
	for _, c := range r.Connections {
		if c.Peer == peer {
			return c.Connected, true
		}
	}
	return Fact[bool]{}, false
}
