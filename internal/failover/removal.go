package failover

import "time"

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
	if pod.Forced && pod.Finalizers {
		return RemovalRunning
	}
	s := assess(in.freshened())
	if s.cond.state == Unreachable && s.Node.leaseSilent(ForceSilence) && s.othersFenced(pod) {
		return RemoveForce
	}
	switch {
	case !pod.terminating(), pod.DeleteBy.After(s.Now.Add(s.Settings.DeletionGrace)):
		return RemoveGracefully
	case pod.DeleteBy.After(s.Now):
		return RemovalRunning
	case s.writable(s.Resource), s.anyOtherWritable(pod):
		return RemovalStuck
	default:
		return RemoveForce
	}
}

// othersFenced tells whether every other LINSTOR volume of the pod is cut off from A by the same evidence that
// condemns this one.
func (s situation) othersFenced(pod Pod) bool {
	for _, other := range pod.Others {
		r := other.Resource.freshened(s.Now)
		_, survivor := survivorOf(r, s.Node.satellite())
		cutOff := survivor && !testimonyOn(r, s.Node.satellite()).connected && s.quorumHeld(r)
		if !cutOff && s.writable(r) {
			return false
		}
	}
	return true
}

func (s situation) anyOtherWritable(pod Pod) bool {
	for _, other := range pod.Others {
		if s.writable(other.Resource.freshened(s.Now)) {
			return true
		}
	}
	return false
}

// writable tells whether A could still commit a write to R, for all that is known. A score above 0 says that it can.
// Only a score of 0 or, where LINSTOR has none, a quorum that A cannot have proves the contrary; the score of a
// resource with several volumes is 0 as soon as one of them is without quorum or data, and says nothing
// about the others.
func (s situation) writable(r Resource) bool {
	replica, ok := r.replica(s.Node.satellite())
	switch {
	case !r.Known:
		return true
	case !ok:
		return false
	case replica.Score.Known:
		return replica.Score.Value != 0 || r.Volumes != 1
	default:
		return !testimonyOn(r, s.Node.satellite()).full || !s.quorumHeld(r)
	}
}

// quorumHeld tells whether quorum fences A, by the present settings and by those it is known to have heard of.
// Where nobody remembers A, a silence of the kubelet for the known grace takes the memory's place.
func (s situation) quorumHeld(r Resource) bool {
	if !quorumFencesAll(r, s.Node.satellite()) {
		return false
	}
	switch recallQuorum(r, s.Node.satellite()) {
	case memoryConfirms:
		return true
	case memoryMissing:
		return s.Node.leaseSilent(max(s.Settings.KnownGrace, s.Settings.KubeletSilence))
	default:
		return false
	}
}
