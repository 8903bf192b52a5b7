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

	var upToDate, present, outdated, unknown, diskless, missingDiskless int
	switch {
	case x.diskless():
		if !x.Client {
			diskless++
		}
	case x.disks[volume] == UpToDate:
		upToDate++
	case x.disks[volume] == Diskless || x.disks[volume] == Failed:
		// A disk that is gone without intent has lost its vote, but it still counts as one to be had.
		unknown++
	default:
		present++
	}
	for _, name := range x.peerNames() {
		p, y := x.peers[name], r.replicas[name]
		switch {
		case y.Client:
		case y.diskless() && p.state == Connected:
			diskless++
		case y.diskless():
			missingDiskless++
		case p.state != Connected && p.outdated:
			outdated++
		case p.state != Connected:
			unknown++
		case p.disks[volume] == UpToDate:
			upToDate++
		default:
			present++
		}
	}

	voters := upToDate + present
	if unknown > 0 {
		// Only when every absent member is known to be Outdated can none of them be promoted elsewhere.
		voters += outdated + unknown
	}
	quorumAt := votesNeeded(setting, voters)
	if upToDate+present >= quorumAt {
		return true
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
