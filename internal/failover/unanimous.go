package failover

import (
	"math"
	"time"
)

// agreeAgain is how soon it is looked again whether Kubernetes agrees. This process renews its own Lease every two seconds by default.
const agreeAgain = 250 * time.Millisecond

// mayBeUnanimous tells whether the unanimous grace may end the wait for the confirmed one: DRBD's network and LINSTOR's say that A is gone,
// each by itself. That LINSTOR takes A for ONLINE, or has forgotten it, is no word of its own.
func (s situation) mayBeUnanimous() bool {
	replica, _ := s.Resource.Replica(s.Node.satellite())
	return !replica.Gone && replica.Online.is(false)
}

// missing is what keeps Kubernetes from agreeing although enough time has passed.
type missing int

const (
	nothing      missing = iota
	anOwnRenewal         // since A's renewal fell due: the API may be away
	aReading             // of A's Lease, past every cache, since it has been silent for long enough
)

// untilUnanimous is how long it takes until the peers have missed A for the unanimous grace and A's Lease has been silent for as long as
// a removal by force needs; and what is missing then for Kubernetes to agree. It does where a fresh reading shows that silence, too, and
// this process has renewed its own Lease after A's renewal fell due: so it is A that is silent, and not the API. The time is as long as
// can be where it cannot come to that.
func (s situation) untilUnanimous(f finding) (rest time.Duration, then missing) {
	if !s.Node.LeaseKnown || s.Renewed.IsZero() {
		return math.MaxInt64, nothing
	}
	renewed := s.Now.Add(-s.Node.LeaseSilence)
	patience := s.Node.Patience(ForceSilence)
	rest = max(s.Settings.UnanimousGrace-s.Now.Sub(f.since), patience-s.Node.LeaseSilence, 0)
	due := renewed.Add(max(s.Node.LeaseGap, usualGap))
	switch read := s.Node.LeaseRead; {
	case !s.Renewed.After(due):
		return rest, anOwnRenewal
	case !live(read, s.Now), read.Before(renewed.Add(patience)):
		return rest, aReading
	default:
		return rest, nothing
	}
}
