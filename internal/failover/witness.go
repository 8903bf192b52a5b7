package failover

import (
	"slices"
	"time"
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

// isWithoutQuorum tells whether a replica that may be promoted has no majority with it by its own connections. It runs without quorum
// then, whatever LINSTOR shows, and its word says nothing of whether A can write. A counts only where the replica says that it is
// connected to it: who would take over from A can not rest on A's vote unseen. Where node is empty there is no A.
func isWithoutQuorum(r Resource, survivor Replica, node string) bool {
	var votes votes // held: by the survivor, with whom it is not known to have lost; itself it does not list
	for _, peer := range r.Replicas {
		there := survivor.Connections[peer.Node]
		unseen := !there.Known && peer.Node != node
		votes.add(peer, unseen || there.is(true) || peer.Diskless && survivor.Diskless)
	}
	return !votes.couldHoldQuorum()
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
	var votes votes // held: by the survivor, with whom nobody denies; it does not deny itself
	denied := false
	for _, peer := range r.Replicas {
		if peer.Node == node {
			votes.add(peer, false)
			continue
		}
		since, denies := compareEnds(survivor, peer)
		agreed = latest(agreed, since)
		denied = denied || denies
		there := survivor.Connections[peer.Node]
		votes.add(peer, !denies && (!there.Known || there.Value))
	}
	return agreed, denied && !votes.couldHoldQuorum() || hasNoSource(r, survivor, node)
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

// denies tells whether A could not hold quorum by a setting that it may run, even together with everyone who could not be asked, of whom
// one is that is not listed any more, unless its replica has really gone.
func (t testimony) denies(r Resource, node string, s Setting) bool {
	var votes votes // held: by A, if it reaches everyone who is silent
	disklessA := slices.Contains(s.Diskless, node)
	silent := func(peer string, diskless bool) bool {
		return peer == node || diskless && disklessA || !t.heard[peer] && !r.hasLeft(peer)
	}
	for _, peer := range s.Diskful {
		votes.add(Replica{}, silent(peer, false))
	}
	for _, peer := range s.Diskless {
		votes.add(Replica{Diskless: true}, silent(peer, true))
	}
	return !t.connected && votes.diskful > 0 && !votes.couldHoldQuorum()
}

// testimonyOn asks every witness of A: each replica on another node whose satellite is ONLINE and which
// reports its DRBD connection to A explicitly, in words no older than A's own. A peer that has no entry for A is unknown, not
// disconnected. Two diskless replicas have no connection to each other in DRBD, so that an entry saying
// "not connected" is no denial between them.
func testimonyOn(r Resource, node string) testimony {
	t := testimony{heard: make(map[string]bool, len(r.Replicas))}
	var votes votes // held: by A, if it reaches everyone who is silent
	a, _ := r.Replica(node)
	for _, replica := range r.Replicas {
		if replica.Node == node {
			votes.add(replica, true)
			continue
		}
		connection := replica.Connections[node]
		witness := replica.Online.is(true) && connection.Known && !a.outdates(replica)
		t.hear(replica, witness && connection.Value)
		t.since = latest(t.since, connection.Since, spokenSince(replica))
		t.heard[replica.Node] = witness
		votes.add(replica, !witness || a.Diskless && replica.Diskless)
	}
	t.outvoted = votes.diskful > 0 && !votes.couldHoldQuorum()
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

// votes counts replicas with and without a disk, and those of them that a side could hold.
type votes struct{ diskful, diskfulHeld, diskless, disklessHeld int }

func (v *votes) add(r Replica, held bool) {
	switch {
	case r.Client: // has none
	case r.Diskless:
		v.diskless++
		v.disklessHeld += count(held)
	default:
		v.diskful++
		v.diskfulHeld += count(held)
	}
}

// couldHoldQuorum is DRBD's rule (drbd_state.c, calc_quorum) at its most generous: a majority of
// the diskful replicas has quorum; with exactly half of them the majority of the diskless ones decides.
func (v votes) couldHoldQuorum() bool {
	if 2*v.diskfulHeld == v.diskful {
		return 2*v.disklessHeld > v.diskless
	}
	return 2*v.diskfulHeld > v.diskful
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
