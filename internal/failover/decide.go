package failover

import (
	"fmt"
	"slices"
	"time"
)

// lookAgain is how soon a state is looked at again from which a loss may follow. It is below MaxGap, so
// that a running clock is not interrupted.
const lookAgain = time.Second

// settle is how long A's own state must have held in at least two readings when the grace ends: LINSTOR and DRBD
// learn of a dead node at different times, in either order.
const settle = time.Second

// Decision is what follows from an input.
type Decision struct {
	// Verdict is what to do.
	Verdict Verdict
	// Reason is why.
	Reason Reason
	// Loss is the reason of the loss itself, which a gate's hides; empty where nothing is known to be lost.
	Loss Reason
	// State is A's state of R.
	State State
	// Message is the reason in words, for a log line or an Event.
	Message string
	// GraceLeft is how much is left of the grace; zero unless the verdict is Pending.
	GraceLeft time.Duration
	// ReadLease is set while nothing but a reading of A's Lease is missing for the unanimous grace to end the wait.
	ReadLease bool
	// After is how soon R must be read and the decision taken again, although nothing may have happened;
	// zero when only a change can alter the decision.
	After time.Duration
}

// Decide answers whether the workload on A must be moved because its storage is lost there.
func Decide(in Input) Decision {
	last := assess(in)
	if calm(last) {
		f := find(last)
		d := Decision{Verdict: NotLost, Reason: f.reason, State: last.cond.state, Message: f.message}
		if f.unsure {
			d.Verdict = Undecided
		}
		return d
	}
	return judge(assess(in.freshened()))
}

func judge(s situation) Decision {
	f := find(s)
	d := Decision{Reason: f.reason, State: s.cond.state, Message: f.message, After: lookAgain}
	switch {
	case f.unsure:
		d.Verdict = Undecided
		return d
	case !f.lost:
		d.Verdict = NotLost
		return d
	}
	f = tempered(s, f)
	if f.reason == VolumeStarting {
		d.Verdict, d.Reason, d.Message = NotLost, f.reason, f.message
		return d
	}
	left := remaining(s, f)
	if s.HasBegun() {
		f.reason = s.Attachment.Reason
		// A shared volume has a grace of its own, and replicas that have just changed, as when the volume is attached elsewhere, are read within a second.
		if d.Reason = f.reason; !s.Resource.InDoubt && (!s.shared() || s.cond.state != Unreachable) {
			left = wait{}
		}
	}
	d.Loss = f.reason
	if left.rest > 0 {
		d.Verdict, d.GraceLeft, d.After, d.ReadLease = Pending, left.rest, min(left.rest, left.again), left.readLease
		d.Message = fmt.Sprintf("%s; the grace of %s has not passed", f.message, f.grace)
		return d
	}
	if left.early {
		d.Message = f.message + ", nor does Kubernetes hear of it"
	}
	if reason, message := gated(s); reason != "" {
		d.Verdict, d.Reason, d.Message = Blocked, reason, message
		return d
	}
	d.Verdict = Lost
	return d
}

// HasBegun reports whether a fail-over of these pods has begun, which goes on under its first reason while the volume is lost: our own deletion of a pod
// changes what LINSTOR shows, because the pod closes the device.
func (in Input) HasBegun() bool {
	begun := func(pod Pod) bool { return slices.Contains(in.Attachment.Pods, pod.UID) }
	return in.Attachment != nil && in.Attachment.Reason != "" && !slices.ContainsFunc(in.Pods, func(pod Pod) bool { return !begun(pod) })
}

// tempered adjusts the grace of a loss to what is known of the workload and of the node.
func tempered(s situation, f finding) finding {
	starting := len(s.Pods) > 0 && !s.workloadHasRun()
	if starting {
		// Starting pods are the normal cause of every other picture.
		if f.reason != NodeUnreachable {
			return finding{reason: VolumeStarting, message: "the pod has not run with the volume yet"}
		}
		f.grace, f.unanimous = max(f.grace, s.Settings.KnownGrace), false
	}
	if s.Node.Shutdown && (f.reason != NodeUnreachable || !s.witness.met) { // else its kernel is up
		f.grace = 0
	}
	if s.shared() && s.cond.state == Unreachable { // its peers have the time to see it again
		f.grace, f.unanimous = max(f.grace, s.Settings.KnownGrace), false
	}
	if starting {
		f.grace = max(f.grace, backoff(s))
	}
	return f
}

// maxBackoff is how long a pod that was placed on a lost node may have to wait there at most, as long as Kubernetes has a container wait
// that crashes again and again.
const maxBackoff = 5 * time.Minute

// backoff is how long a pod stays that was placed on A after A was lost, and so can not start: half as long as A had been
// lost by then. Where Kubernetes places one replacement after the other there, each stays half as long again as the one
// before, and no memory is needed for that.
func backoff(s situation) time.Duration {
	lost := s.cond.since
	if s.cond.state == Secondary { // it may have been so for days
		lost = s.Now.Add(-s.Node.LeaseSilence)
	}
	return min(s.workloadSince().Sub(lost)/2, maxBackoff)
}

// wait is how long a loss must still hold.
type wait struct {
	// rest is that time; not above zero where it is over.
	rest time.Duration
	// again is how soon it may turn out to be shorter.
	again time.Duration
	// early is set where it is shorter than the grace, because three networks agree.
	early bool
	// readLease is set where nothing but a reading of A's Lease is missing for that.
	readLease bool
}

// remaining is how long the loss must still hold.
func remaining(s situation, f finding) wait {
	w := wait{rest: f.grace - s.Now.Sub(f.since), again: lookAgain}
	settled := s.untilSettled()
	if f.unanimous {
		switch agreed, then := s.untilUnanimous(f); {
		case agreed >= w.rest: // also where the grace is over, or the unanimous one is no shorter
		case agreed > 0 || then == nothing:
			w.rest, w.early = agreed, true
		case settled <= 0:
			w.again, w.readLease = agreeAgain, then == aReading
		}
	}
	w.rest = max(w.rest, settled)
	return w
}

// untilSettled is how long it takes until A's own state has settled and, where the loss rests on that LINSTOR misses A, until the others
// are known to be still there; not above zero where that is so.
func (s situation) untilSettled() (rest time.Duration) {
	if s.cond.confirmed.Sub(s.cond.since) < settle {
		rest = max(settle-s.Now.Sub(s.cond.since), readAgain)
	}
	if missed, ok := s.missedSince(); ok && !s.othersStillThere(missed.Add(stillThere)) {
		rest = max(rest, stillThere-s.Now.Sub(missed), readAgain)
	}
	return rest
}

// readAgain is how soon something is read once more that is missing: soon, but not in a tight loop.
const readAgain = settle / 10

// stillThere is how long after A the others must have been seen ONLINE. LINSTOR misses a satellite 5 to 7 s after it was cut off, each at its
// own time: when all were cut off together, the first to be missed looks like the only one.
const stillThere = 2500 * time.Millisecond

// missedSince is since when LINSTOR has not heard of A, where a loss rests on that.
func (s situation) missedSince() (time.Time, bool) {
	if s.cond.state != Unreachable {
		return time.Time{}, false
	}
	replica, _ := s.Resource.Replica(s.Node.satellite())
	switch {
	case !replica.Gone && (replica.Online.is(true) || replica.Blind) && !replica.Reports.is(false):
		return time.Time{}, false // it rests on the silence of the kubelet
	case replica.Online.is(false):
		return replica.Online.Since, true
	default:
		return s.cond.since, true
	}
}

// othersStillThere tells whether each survivor and each witness was ONLINE in a list of nodes that began at a time or later.
func (s situation) othersStillThere(from time.Time) bool {
	for _, replica := range s.Resource.Replicas {
		speaks := survives(replica) || replica.Online.is(true) && replica.Connections[s.Node.satellite()].Known
		if replica.Node != s.Node.satellite() && speaks && replica.Online.Confirmed.Before(from) {
			return false
		}
	}
	return true
}

// calm tells, by the last known values however old, that no loss can follow unless something changes:
// nobody could take over, or a volume that nobody need hold open is closed on a living node.
func calm(s situation) bool {
	successor := mayGetSurvivor(s.Resource, s.Node.satellite())
	if s.Node.LeaseSilent(s.Settings.KubeletSilence) && successor {
		return false
	}
	switch s.cond.state {
	case Unknown:
		return !successor
	case Secondary:
		return !successor || s.Volume.Block || s.readOnly()
	default:
		return !successor || s.Volume.NFSExport || !s.Resource.DRBD
	}
}

// mayGetSurvivor tells whether a node other than A could take R over, or could as soon as LINSTOR calls it ONLINE, of which
// no event tells.
func mayGetSurvivor(r Resource, node string) bool {
	return slices.ContainsFunc(r.Replicas, func(replica Replica) bool {
		return replica.Node != node && replica.MayPromote.is(true)
	})
}
