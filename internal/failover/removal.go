package failover

import (
	"slices"
	"time"
)

// ForceSilence is how long no Lease renewal must have been seen for a pod to be removed without asking its kubelet:
// one renewal interval of 10 s and a margin.
const ForceSilence = 12 * time.Second

// Removal is how a pod that must go is removed.
type Removal string

const (
	// RemoveForce : delete without grace; nobody is left on A who could confirm.
	RemoveForce Removal = "Force"
	// RemoveGracefully : delete with the deletion grace, or shorten a longer one.
	RemoveGracefully Removal = "Graceful"
	// RemovalRunning : the pod is terminating and has time left, or only finalizers keep it.
	RemovalRunning Removal = "Running"
	// RemovalStuck : the time is over and the node could still write one of the pod's volumes.
	RemovalStuck Removal = "Stuck"
)

// RemovalOf says how to remove the pod of a volume whose verdict is Lost. Force needs the node itself to be silent,
// to LINSTOR and to Kubernetes, for every LINSTOR volume of the pod; or a deletion grace that has passed
// without any of those volumes being writable on A. It is the same for a pod that was deleted without grace and that no finalizer
// keeps: the API server deletes in two writes (rest.BeforeDelete), and waits for another deletion where the second one failed.
func RemovalOf(in Input, pod Pod) Removal {
	if pod.Forced && pod.Finalizers && !pod.Unended {
		return RemovalRunning
	}
	s := assess(in.freshened())
	_, closed := s.nobodyPrimary(s.Resource)
	if (s.cond.state == Unreachable || s.cond.state == Secondary && closed) && s.Node.LeaseSilent(ForceSilence) && s.othersFenced(pod) {
		return RemoveForce
	}
	switch {
	case !pod.Terminating, pod.Grace > s.Settings.DeletionGrace && pod.GraceEnds().After(s.Now.Add(s.Settings.DeletionGrace)):
		return RemoveGracefully
	case pod.forceAt(s.Settings.DeletionGrace).After(s.Now):
		return RemovalRunning
	case s.writable(s.Resource), s.anyOtherWritable(pod), s.shared() && !s.isAway():
		return RemovalStuck
	default:
		return RemoveForce
	}
}

// isAway reports whether A is silent to LINSTOR and to Kubernetes.
func (s situation) isAway() bool {
	return s.cond.state == Unreachable && s.Node.LeaseSilent(ForceSilence)
}

// othersFenced tells whether no other LINSTOR volume of the pod can be written on A either, by the same evidence that condemns this one.
func (s situation) othersFenced(pod Pod) bool {
	return !slices.ContainsFunc(pod.Others, func(other OtherVolume) bool { return !s.otherFenced(other) })
}

// otherFenced is othersFenced for one volume. A generic ephemeral one is the pod's own: nobody else will ever write it. One that is
// mounted by NFS is shared by its nature, and A has no DRBD relation to it. Of one that another node has in use at the same time, as it
// may, nothing but what its peers say of their connections to A counts: that there is a Primary is no sign of A. One that no node has open counts,
// too, as for a loss for that reason.
func (s situation) otherFenced(other OtherVolume) bool {
	if other.Ephemeral || other.NFSExport {
		return true
	}
	r := s.fresh(other.Resource)
	if _, ok := r.Replica(s.Node.satellite()); r.Known && !ok && r.hasLeft(s.Node.satellite()) {
		return true
	}
	t := testimonyOn(r, s.Node.satellite())
	_, survivor := survivorOf(r, s.Node.satellite())
	if other.Shared && usedElsewhere(r, s.Node.satellite()) {
		t, survivor = t.ofConnections(), true
	}
	if _, closed := s.nobodyPrimary(r); closed && !other.Block {
		t.connected = false
	}
	return survivor && !t.connected && s.fenced(r, t)
}

// anyOtherWritable tells whether A could still write another volume of the pod that somebody else may write next, which a generic ephemeral
// one is not: it goes with its pod.
func (s situation) anyOtherWritable(pod Pod) bool {
	return slices.ContainsFunc(pod.Others, func(other OtherVolume) bool {
		return !other.Ephemeral && s.writable(s.fresh(other.Resource))
	})
}

// writable tells whether A could still commit a write to R, for all that is known. A score above 0 says that it can.
// Only a score of 0 or, where LINSTOR has none, a quorum that A cannot have proves the contrary; the score of a
// resource with several volumes is 0 as soon as one of them is without quorum or data, and says nothing
// about the others.
func (s situation) writable(r Resource) bool {
	replica, ok := r.Replica(s.Node.satellite())
	switch {
	case !r.Known:
		return true
	case !ok && r.hasLeft(s.Node.satellite()):
		return false
	case replica.Score.Known && !replica.Gone:
		return replica.Score.Value != 0 || r.Volumes != 1
	default:
		t := testimonyOn(r, s.Node.satellite())
		return !t.full || !s.fenced(r, t)
	}
}

// fenced tells whether quorum keeps A, which does not answer, from writing R.
func (s situation) fenced(r Resource, t testimony) bool {
	b := bySilence
	if t.full {
		b = byWitnesses
	}
	reason, _ := fencing(r, s.Node.satellite(), t, b)
	return reason == ""
}
