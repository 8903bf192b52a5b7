package failover

import (
	"strconv"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// obstacle says why DRBD would not let a replica be promoted after the node was lost, empty when it would. It follows
// drbd-utils' may promote (drbdsetup_events2.c, compute_promotion_info): a replica may be promoted if it has
// quorum, reaches an UpToDate copy of every volume, and neither it nor a peer it reaches is Primary.
func obstacle(r Resource, replica Replica, lost string) string {
	switch {
	case replica.Leaving:
		return "is being removed or is inactive"
	case !replica.Online.is(true):
		return unheard(replica)
	case !replica.Score.Known:
		return "does not report its state to LINSTOR"
	case replica.Score.Value <= 0:
		return "has no quorum, or no up-to-date data"
	case !dataWithout(r, replica, lost):
		return "would have no up-to-date data"
	case !quorateWithout(r, replica, lost):
		return "would have no quorum"
	}
	if replica.InUse.is(true) {
		return "is Primary itself"
	}
	for _, peer := range r.Replicas {
		if peer.Node != lost && reaches(replica, peer) && peer.InUse.is(true) {
			return "is connected to " + peer.Node + ", which is Primary"
		}
	}
	return ""
}

// unheard says why LINSTOR has no word of a replica now.
func unheard(r Replica) string {
	switch {
	case r.Blind:
		return "is ONLINE in LINSTOR, which has no connection to it"
	case r.OtherVersion:
		return otherVersion
	}
	return "is not ONLINE in LINSTOR"
}

// otherVersion is what there is to say of a satellite with which LINSTOR does not talk for its version.
const otherVersion = "has a satellite of another version than LINSTOR's controller (VERSION_MISMATCH): finish the upgrade of LINSTOR"

// reaches tells whether a replica is or is connected to a peer.
func reaches(replica, peer Replica) bool {
	return replica.Node == peer.Node || replica.Connections[peer.Node].is(true)
}

// DRBD's promotion score is 10000 for a local disk, 100 for each volume that is UpToDate on it, and the number of
// UpToDate copies within reach, each at most 99.
const (
	scoreOfDisk     = 10000
	scoreOfUpToDate = 100
)

// dataWithout tells whether a replica reaches an UpToDate copy of every volume without the lost node.
func dataWithout(r Resource, replica Replica, lost string) bool {
	copies := replica.Score.Value % scoreOfUpToDate
	a, ok := r.Replica(lost)
	if !ok || a.Diskless || !replica.Connections[lost].is(true) {
		return copies > 0
	}
	if a.Score.Known && a.Score.Value%scoreOfDisk < scoreOfUpToDate {
		return copies > 0 // nothing on the lost node is UpToDate
	}
	return copies > 1
}

// quorateWithout tells whether a replica has quorum with the replicas that it reaches now, but for the lost node.
func quorateWithout(r Resource, replica Replica, lost string) bool {
	var votes evidence.Tally
	for _, vote := range r.votesOf(replica) {
		peer := Replica{Node: vote.Node, Diskless: vote.May == evidence.WithoutDisk, Client: vote.May == evidence.Absent}
		votes.Add(peer.kind(), peer.Node != lost && reaches(replica, peer))
	}
	switch r.Quorum {
	case "off", "":
		return true // a gate of its own finds that
	case "majority":
		return votes.CouldHold()
	case "all":
		return votes.DisksHeld == votes.Disks
	}
	n, err := strconv.Atoi(r.Quorum)
	return err != nil || votes.DisksHeld >= n
}
