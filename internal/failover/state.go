package failover

import "time"

// State is what A has of R.
type State string

const (
	// NoReplica : R has no replica on A.
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

// condition is a state and since when it has held.
type condition struct {
	state State
	since time.Time
}

// stateOf reads A's state of R. The order is part of the rule: the first match wins.
func stateOf(in Input, t testimony) condition {
	replica, ok := in.Resource.replica(in.Node.Name)
	switch {
	case !in.Resource.Known:
		return condition{state: Unknown, since: in.Now}
	case !ok:
		return condition{NoReplica, in.Resource.SetSince}
	case replica.Online.is(false):
		return condition{Unreachable, replica.Online.Since}
	case replica.Reports.is(false):
		return condition{Unreachable, replica.Reports.Since}
	case replica.Online.is(true) && t.full && in.Node.leaseSilent(in.Settings.KubeletSilence):
		// LINSTOR is known to leave dead nodes ONLINE; two independent witnesses overrule it.
		return condition{Unreachable, t.since}
	case !replica.Online.Known || !replica.InUse.Known || !replica.Score.Known:
		return condition{state: Unknown, since: in.Now}
	}
	since := latest(replica.InUse.Since, replica.Online.Since)
	if replica.Score.Value == 0 || replica.InUse.Value {
		since = latest(since, replica.Score.Since)
	}
	switch inUse, quorate := replica.InUse.Value, replica.Score.Value > 0; {
	case inUse && quorate:
		return condition{PrimaryUp, since}
	case inUse:
		return condition{PrimaryWithoutQuorum, since}
	case !quorate:
		return condition{IOErrors, since}
	default:
		return condition{Secondary, since}
	}
}
