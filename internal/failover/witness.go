package failover

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// survivorOf returns since when R could have been taken over by a node other than A, and whether it
// still can: by a replica whose satellite is ONLINE, that is not on its way out, and that DRBD
// says may be promoted; unless its peers contradict it, or A did, or it cannot have the quorum that it should.
func survivorOf(r Resource, node string) (since time.Time, ok bool) {
	a, _ := r.Replica(node)
	for _, replica := range r.Replicas {
		if replica.Node == node || !survives(replica) || a.outdates(replica) {
			continue
		}
		agreed, contradicted := hearPeers(r, replica, node)
		if contradicted || isWithoutQuorum(r, replica, node) {
			continue
		}
		s := latest(replica.MayPromote.Since, replica.Online.Since, agreed)
		if !ok || s.Before(since) {
			since = s
		}
		ok = true
	}
	return since, ok
}

// outdates tells whether what LINSTOR shows of a peer's connection to A is older than what A said of it itself: A was seen to
// connect to the peer anew, which the peer, of whom there was no news since, still denies. A connection has two
// ends; the satellite of the one that has not noticed it is not heard any more, whatever LINSTOR takes it for.
func (a Replica) outdates(peer Replica) bool {
	return peer.Connections[a.Node].is(false) && a.Rejoined[peer.Node].After(peer.Heard)
}

// isWithoutQuorum tells whether a replica that may be promoted runs without quorum, whatever LINSTOR shows, so that its word says nothing of
// whether A can write: it has no majority of those whom it counts with it by its own connections, and it is not known to run quorum, by which DRBD
// leaves out those that have left in order. A counts only where the replica says that it is connected to it. Where node is empty there is no A.
func isWithoutQuorum(r Resource, survivor Replica, node string) bool {
	if survivor.Confirmed && survivor.Proven && r.Quorum == evidence.Majority && !r.InDoubt {
		return false
	}
	votes := r.votesOf(survivor)
	adds := evidence.MayLackDisk(votes, survivor.Node) && !survivor.Client // to half of the disks
	return !evidence.CouldHold(votes, !adds, func(peer string) bool {
		there := survivor.Connections[peer]
		return peer == survivor.Node || there.is(true) || !there.Known && peer != node
	})
}

// runsWithoutQuorum names a node that says R may be promoted there although it cannot have quorum; empty where none does.
func runsWithoutQuorum(r Resource, node string) string {
	for _, replica := range r.Replicas {
		if replica.Node != node && survives(replica) && isWithoutQuorum(r, replica, "") {
			return replica.Node
		}
	}
	return ""
}

// WithoutQuorum names the nodes that say R may be promoted there although they reach no majority: whatever LINSTOR shows, they run R
// without quorum.
func WithoutQuorum(r Resource) []string {
	var nodes []string
	for _, replica := range r.Replicas {
		if survives(replica) && isWithoutQuorum(r, replica, "") {
			nodes = append(nodes, replica.Node)
		}
	}
	return nodes
}

func survives(r Replica) bool {
	return !r.Leaving && !r.Gone && r.Online.is(true) && r.MayPromote.is(true)
}

// hearPeers tells since when the peers of a survivor other than A, as far as they report, have agreed with it, or that
// they contradict it. LINSTOR is known to show the last words of a satellite that nobody hears any more. Then one end of a
// connection says Connected and the other does not, and the survivor could not have the quorum that it claims with those
// peers alone that do not deny it; or a replica without a disk says that it may be promoted while all peers whose
// data that would need have none, or no quorum.
func hearPeers(r Resource, survivor Replica, node string) (agreed time.Time, contradicted bool) {
	var votes evidence.Tally // held: by the survivor, with whom nobody denies; it does not deny itself
	denied := false
	for _, peer := range r.Replicas {
		if peer.Node == node {
			votes.Add(peer.kind(), false)
			continue
		}
		since, denies := compareEnds(survivor, peer)
		agreed = latest(agreed, since)
		denied = denied || denies
		there := survivor.Connections[peer.Node]
		votes.Add(peer.kind(), !denies && (!there.Known || there.Value))
	}
	return agreed, denied && !votes.CouldHold() || hasNoSource(r, survivor, node)
}

// compareEnds compares what a survivor and a peer say of their connection: since when they have agreed, or that the peer
// denies it. Who says nothing does neither.
func compareEnds(survivor, peer Replica) (since time.Time, denies bool) {
	there, back := survivor.Connections[peer.Node], peer.Connections[survivor.Node]
	switch {
	case !there.Known, !back.Known, !peer.Online.is(true):
		return time.Time{}, false
	case there.Value != back.Value:
		return time.Time{}, true
	}
	return latest(there.Since, back.Since), false
}

// hasNoSource tells whether all disks are known to be without data or quorum that a survivor without one is connected to.
func hasNoSource(r Resource, survivor Replica, node string) bool {
	if !survivor.Diskless {
		return false
	}
	sources, dry := 0, 0
	for _, peer := range r.Replicas {
		if peer.Node != node && !peer.Diskless && survivor.Connections[peer.Node].is(true) {
			sources++
			dry += count(peer.Online.is(true) && peer.Score.is(0))
		}
	}
	return sources > 0 && sources == dry
}

// testimony is what the other replicas of R say about A.
type testimony struct {
	// connected is set when a witness has a DRBD connection to A or sees a Primary, or another node is Primary.
	connected bool
	// met is set when a witness has a DRBD connection to A.
	met bool
	// outvoted is set when A could not hold quorum even together with every replica that could not be asked.
	outvoted bool
	// full is set when no witness is connected to A, and A is outvoted.
	full bool
	// since is since when all witnesses have said so, and no replica has fallen silent.
	since time.Time
	// heard are the nodes of the witnesses.
	heard map[string]bool
}

// ofConnections is the testimony for a resource that may be in use on several nodes, so that a Primary elsewhere says nothing of A.
func (t testimony) ofConnections() testimony {
	t.connected, t.full = t.met, !t.met && t.outvoted
	return t
}

// testimonyOn asks every witness of A: each replica on another node whose satellite is ONLINE and which
// reports its DRBD connection to A explicitly, in words no older than A's own. A peer that has no entry for A is unknown, not
// disconnected. Two diskless replicas have no connection to each other in DRBD, so that an entry saying
// "not connected" is no denial between them.
func testimonyOn(r Resource, node string) testimony {
	t := testimony{heard: make(map[string]bool, len(r.Replicas))}
	a, _ := r.Replica(node)
	for _, replica := range r.Replicas {
		if replica.Node == node {
			continue
		}
		connection := replica.Connections[node]
		witness := replica.Online.is(true) && connection.Known && !a.outdates(replica)
		t.hear(replica, witness && connection.Value)
		t.since = latest(t.since, connection.Since, spokenSince(replica))
		t.heard[replica.Node] = witness
	}
	// A has with it, at most, everyone who is silent.
	mine := r.votesOf(a)
	t.outvoted = evidence.HasDisks(mine) && !evidence.CouldHold(mine, !evidence.MayLackDisk(mine, node), func(peer string) bool {
		return peer == node || !t.heard[peer] && !r.hasLeft(peer)
	})
	t.full = !t.connected && t.outvoted
	return t
}

// hear takes the word of a replica, which is connected to A where it says so.
func (t *testimony) hear(replica Replica, connected bool) {
	t.met = t.met || connected
	t.connected = t.connected || connected || replica.Online.is(true) && knowsOfPrimary(replica)
}

// knowsOfPrimary tells whether a replica is Primary or sees one.
func knowsOfPrimary(r Replica) bool { return r.InUse.is(true) || seesPrimary(r) }

// spokenSince is since when a replica has said the same, be it nothing, of whether there is a Primary. A silence has a
// beginning too: until then, the replica may have been connected to A or Primary.
func spokenSince(r Replica) time.Time {
	since := latest(r.Online.Since, r.Reports.Since, r.InUse.Since, r.MayPromote.Since)
	if !r.MayPromote.is(true) {
		since = latest(since, r.Score.Since) // see seesPrimary
	}
	return since
}

// seesPrimary tells whether a replica knows of a Primary, be it beyond a peer: with quorum and data within reach (a score
// above 0) DRBD forbids a promotion only where a connected peer is Primary or the data comes from neighbours of one
// (drbdsetup_events2.c, compute_promotion_info). It contradicts a peer whose own word is seconds old.
func seesPrimary(r Replica) bool {
	return r.MayPromote.is(false) && r.Score.Known && r.Score.Value > 0
}
