package failover

import "time"

// State is what A has of R.
type State string

const (
	// NoReplica : R has no replica on A any more, and A's satellite was ONLINE when that went.
	NoReplica State = "NoReplica"
	// Unreachable : LINSTOR has no word from A.
	Unreachable State = "Unreachable"
	// PrimaryUp : A is Primary, with quorum and data.
	PrimaryUp State = "PrimaryHealthy"
	// PrimaryWithoutQuorum : A is Primary and cannot write.
	PrimaryWithoutQuorum State = "PrimaryWithoutQuorum"
	// IOErrors : A was demoted by force and fails IO, or is Secondary without quorum.
	IOErrors State = "ForcedIOErrors"
	// Secondary : A could be promoted or follow a Primary.
	Secondary State = "Secondary"
	// Unknown : what LINSTOR says fits none of the others.
	Unknown State = "Unknown"
)

// condition is a state, since when it has held, and when that was last read.
type condition struct {
	state            State
	since, confirmed time.Time
}

// stateOf reads A's state of R. The order is part of the rule: the first match wins.
func stateOf(in Input, t testimony) condition {
	replica, ok := in.Resource.Replica(in.Node.satellite())
	switch {
	case !in.Resource.Known, !ok && in.Node.Unlisted:
		return condition{state: Unknown, since: in.Now}
	case !ok && in.Resource.hasLeft(in.Node.satellite()):
		return condition{NoReplica, in.Resource.SetSince, in.Resource.Confirmed}
	case !ok, replica.Gone:
		// LINSTOR forgets replicas that may be written to: an absence is no evidence.
		return condition{Unreachable, in.Resource.SetSince, in.Resource.Confirmed}
	case replica.Online.is(false):
		return condition{Unreachable, replica.Online.Since, replica.Online.Confirmed}
	case replica.Reports.is(false):
		return condition{Unreachable, replica.Reports.Since, replica.Reports.Confirmed}
	case (replica.Online.is(true) || replica.Blind) && t.full && in.Node.LeaseSilent(in.Settings.KubeletSilence):
		// LINSTOR is known to leave dead nodes ONLINE; two independent witnesses overrule it, from the
		// moment on when the second of them spoke.
		silent := in.Now.Add(in.Node.Patience(in.Settings.KubeletSilence) - in.Node.LeaseSilence)
		return condition{Unreachable, latest(t.since, silent), in.Resource.Confirmed}
	case !replica.Online.Known, !replica.InUse.Known, !replica.Score.Known, replica.Score.Value < 0:
		return condition{state: Unknown, since: in.Now}
	}
	return condition{
		state:     saidState(replica.InUse.Value, replica.Score.Value > 0),
		since:     latest(replica.Online.Since, replica.InUse.Since, replica.Score.Since),
		confirmed: earliest(replica.Online.Confirmed, replica.InUse.Confirmed, replica.Score.Confirmed),
	}
}

// saidState is A's state by its own words.
func saidState(inUse, quorate bool) State {
	switch {
	case inUse && quorate:
		return PrimaryUp
	case inUse:
		return PrimaryWithoutQuorum
	case !quorate:
		return IOErrors
	default:
		return Secondary
	}
}
