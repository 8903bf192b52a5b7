package failover

import "time"

// survivorOf returns since when R could have been taken over by a node other than A, and whether it
// still can: by a replica whose satellite is ONLINE, that is not on its way out, and that DRBD
// says may be promoted; unless its peers contradict it, or A did.
func survivorOf(r Resource, node string) (since time.Time, ok bool) {
	a, _ := r.replica(node)
	for _, replica := range r.Replicas {
		if replica.Node == node || !survives(replica) || a.outdates(replica) {
			continue
		}
		agreed, contradicted := hearPeers(r, replica, node)
		if contradicted {
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

func survives(r Replica) bool {
	return !r.Leaving && r.Online.is(true) && r.MayPromote.is(true)
}

// hearPeers tells since when the peers of a survivor other than A, as far as they report, have agreed with it, or that
// they contradict it. LINSTOR is known to show the last words of a satellite that nobody hears any more. Then one end of a
// connection says Connected and the other does not, and the survivor could not have the quorum that it claims with those
// peers alone that do not deny it; or a replica without a disk says that it may be promoted while all peers whose
// data that would need have none, or no quorum.
func hearPeers(r Resource, survivor Replica, node string) (agreed time.Time, contradicted bool) {
	var denied bool
	var sources, dry int
	var diskful, diskfulHeld, diskless, disklessHeld int // held: by the survivor, with whom nobody denies
	for _, peer := range r.Replicas {
		there, back := survivor.Connections[peer.Node], peer.Connections[survivor.Node]
		held := peer.Node == survivor.Node
		if peer.Node != node && !held {
			held = !there.Known || there.Value
			if there.Known && back.Known && peer.Online.is(true) {
				agrees := there.Value == back.Value
				held = held && agrees
				denied = denied || !agrees
				if agrees {
					agreed = latest(agreed, there.Since, back.Since)
				}
			}
			if there.is(true) && !peer.Diskless {
				sources++
				dry += count(peer.Online.is(true) && peer.Score.is(0))
			}
		}
		if peer.Diskless {
			diskless++
			disklessHeld += count(held)
		} else {
			diskful++
			diskfulHeld += count(held)
		}
	}
	if denied && !couldHoldQuorum(diskful, diskfulHeld, diskless, disklessHeld) {
		return time.Time{}, true
	}
	return agreed, survivor.Diskless && sources > 0 && sources == dry
}

// testimony is what the other replicas of R say about A.
type testimony struct {
	// connected is set when a witness has a DRBD connection to A or sees a Primary, or another node is Primary.
	connected bool
	// full is set when no witness is connected to A, and A could not hold quorum even together with
	// every replica that could not be asked.
	full bool
	// since is since when all witnesses have said so, and no replica has fallen silent.
	since time.Time
}

// testimonyOn asks every witness of A: each replica on another node whose satellite is ONLINE and which
// reports its DRBD connection to A explicitly, in words no older than A's own. A peer that has no entry for A is unknown, not
// disconnected. Two diskless replicas have no connection to each other in DRBD, so that an entry saying
// "not connected" is no denial between them.
func testimonyOn(r Resource, node string) testimony {
	var t testimony
	a, _ := r.replica(node)
	var diskful, diskfulHeld, diskless, disklessHeld int // held: by A, if it reaches everyone who is silent
	for _, replica := range r.Replicas {
		held := true
		if replica.Node != node {
			if replica.Online.is(true) && (replica.InUse.is(true) || seesPrimary(replica)) {
				t.connected = true
			}
			connection, ok := replica.Connections[node]
			// A silence has a beginning too: until then, the replica may have been connected to A or Primary.
			t.since = latest(t.since, connection.Since, replica.Online.Since, replica.Reports.Since, replica.InUse.Since, replica.MayPromote.Since)
			if !replica.MayPromote.is(true) {
				t.since = latest(t.since, replica.Score.Since)
			}
			if witness := ok && connection.Known && replica.Online.is(true) && !a.outdates(replica); witness {
				held = a.Diskless && replica.Diskless
				t.connected = t.connected || connection.Value
			}
		}
		if replica.Diskless {
			diskless++
			disklessHeld += count(held)
		} else {
			diskful++
			diskfulHeld += count(held)
		}
	}
	t.full = !t.connected && diskful > 0 && !couldHoldQuorum(diskful, diskfulHeld, diskless, disklessHeld)
	return t
}

// seesPrimary tells whether a replica knows of a Primary, be it beyond a peer: with quorum and data within reach (a score
// above 0) DRBD forbids a promotion only where a connected peer is Primary or the data comes from neighbours of one
// (drbdsetup_events2.c, compute_promotion_info). It contradicts a peer whose own word is seconds old.
func seesPrimary(r Replica) bool {
	return r.MayPromote.is(false) && r.Score.Known && r.Score.Value > 0
}

// couldHoldQuorum is DRBD's rule (drbd_state.c, calc_quorum) at its most generous: a majority of
// the diskful replicas has quorum; with exactly half of them the majority of the diskless ones decides.
func couldHoldQuorum(diskful, diskfulHeld, diskless, disklessHeld int) bool {
	if 2*diskfulHeld == diskful {
		return 2*disklessHeld > diskless
	}
	return 2*diskfulHeld > diskful
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
