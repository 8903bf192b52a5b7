package check

import (
	"fmt"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// lostNow tells whether a volume is lost on the pod's node already. A forecast that nobody could take over does not say so: the loss of
// a node counts as one only where moving would help.
func lostNow(in failover.Input, forecast failover.Forecast) bool {
	if forecast.Loss != "" {
		return true
	}
	switch forecast.State {
	case failover.PrimaryWithoutQuorum, failover.IOErrors:
		return true
	case failover.Unreachable:
		// Where only its satellite is silent, the node works on, and its peers are connected to it.
		return !slices.ContainsFunc(in.Resource.Replicas, func(r failover.Replica) bool {
			there := r.Connections[in.Node.Satellite]
			return r.Online.Known && r.Online.Value && there.Known && there.Value
		})
	default:
		return false
	}
}

// stuck tells whether the volume is lost on the pod's node and nothing moves the pod.
func (r Row) stuck() bool { return r.Lost && r.Verdict == failover.Unprotected }

// endangered tells whether the pod works, and would not be moved if its node were lost next.
func (r Row) endangered() bool { return !r.Lost && r.Verdict == failover.Unprotected }

// headline tells what is lost now from what would not survive the next loss.
func headline(rows []Row) string {
	var stuck, moving, endangered, lost, next []string
	for _, r := range rows {
		pod := r.Namespace + "/" + r.Pod
		switch {
		case r.stuck():
			stuck, lost = appendNew(stuck, pod), appendNew(lost, r.Node)
		case r.Verdict == failover.Failing:
			moving = appendNew(moving, pod)
		case r.endangered():
			endangered, next = appendNew(endangered, pod), appendNew(next, r.Node)
		}
	}
	slices.Sort(lost)
	slices.Sort(next)
	text := "no selected pod is stuck now"
	if len(stuck) > 0 {
		text = fmt.Sprintf("%s stuck now, because the storage is lost on %s", pods(len(stuck)), firstOf(lost))
	}
	if len(moving) > 0 {
		text += fmt.Sprintf("; %s being moved", pods(len(moving)))
	}
	if len(endangered) > 0 {
		text += "; some pods would not survive the next loss, that of " + firstOf(next)
	}
	return text
}

// pods counts pods, with the verb.
func pods(n int) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}
