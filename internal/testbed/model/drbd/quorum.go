package drbd

import "strconv"

// quorumOf decides whether a replica has quorum for a volume, as the kernel's calc_quorum does.
func (r *resource) quorumOf(x *replica, volume int) bool {
	setting := x.options[OptionQuorum]
	if setting == "" || setting == QuorumOff {
		return true
	}
	if x.diskless() && r.peerIsQuorate(x, volume) {
		return true
	}

	var upToDate, present, outdated, quorumless, unknown, diskless, missingDiskless int
	switch {
	case x.diskless():
	case x.disks[volume] == UpToDate:
		upToDate++
	case x.disks[volume] == Diskless || x.disks[volume] == Failed:
		// A disk that is gone without intent has lost its vote, but it still counts as one to be had.
		unknown++
	default:
		present++
	}
	for _, name := range x.peerNames() {
		p := x.peers[name]
		switch {
		case p.spec.Client:
		case p.spec.diskless() && p.state == Connected:
			diskless++
		case p.spec.diskless():
			missingDiskless++
		case p.state != Connected && p.outdated:
			outdated++
		case p.state != Connected && p.quorumless:
			quorumless++
		case p.state != Connected:
			unknown++
		case p.disks[volume] == UpToDate:
			upToDate++
		default:
			present++
		}
	}

	voters := upToDate + present
	absent := outdated + quorumless + unknown
	// Absent members have no vote only when none of them can be promoted elsewhere: because all of them are known
	// to be Outdated, or because some lost their quorum and all together are too few to get it back.
	together := quorumless > 0 && absent >= votesNeeded(setting, voters+absent)
	if unknown > 0 || together {
		voters += absent
	}
	quorumAt := votesNeeded(setting, voters)
	if upToDate+present >= quorumAt {
		return true
	}
	if x.diskless() {
		// Beyond a majority that it sees itself, a diskless node depends on the word of its peers: were it to
		// break ties in its own favour, two of them could do so on two sides of a partition.
		return false
	}
	// The tie-breakers decide an even split, but only to keep a quorum: a node that lost it, or that was
	// rebooted, does not get it back from them.
	return voters != 0 && voters%2 == 0 && upToDate+present == quorumAt-1 &&
		diskless >= votesNeeded(QuorumMajority, diskless+missingDiskless) && x.quorum[volume]
}

// peerIsQuorate tells whether a connected peer with UpToDate data says that it has quorum; a diskless replica
// takes its word.
func (r *resource) peerIsQuorate(x *replica, volume int) bool {
	for _, p := range x.peers {
		if p.state == Connected && p.disks[volume] == UpToDate && p.quorum[volume] {
			return true
		}
	}
	return false
}

// votesNeeded is the number of votes that a quorum setting demands of so many voters.
func votesNeeded(setting string, voters int) int {
	switch setting {
	case QuorumMajority:
		return voters/2 + 1
	case QuorumAll:
		return voters
	}
	n, _ := strconv.Atoi(setting)
	return n
}

// fences tells whether a replica's quorum setting keeps two halves of the disks from having quorum at once.
func fences(x *replica) bool {
	setting := x.options[OptionQuorum]
	if setting == "" || setting == QuorumOff {
		return false
	}
	disks := 0
	if !x.diskless() {
		disks++
	}
	for _, p := range x.peers {
		if !p.spec.diskless() {
			disks++
		}
	}
	return votesNeeded(setting, disks) > disks/2
}
