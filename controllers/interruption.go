package controllers

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// interruptionNews is for how long the end of an interruption is news. Another one that begins so soon after it is no news: the pods have just
// been told.
const interruptionNews = time.Minute

// interruption is a time in which a node had no quorum for a volume in use, and which ended before the volume was moved. With on-no-quorum=io-error,
// writes have failed then, and a file system that has seen that stays read-only although DRBD is healthy.
type interruption struct {
	began, ended time.Time // zero if there was none, or while it lasts
	pods         []types.UID
	// told is set once it was reported, or another process has done so.
	told bool
}

// observe records what a decision says of the quorum.
func (i *interruption) observe(in failover.Input, d failover.Decision) {
	reached := slices.ContainsFunc(in.Resource.Replicas, func(r failover.Replica) bool { return r.Connections[in.Node.Satellite].Value })
	without := d.State == failover.PrimaryWithoutQuorum || d.State == failover.Unreachable && d.Loss == failover.NodeUnreachable && !reached
	if !slices.ContainsFunc(in.Pods, func(pod failover.Pod) bool { return slices.Contains(i.pods, pod.UID) }) {
		*i = interruption{} // nobody is left to whom it matters
	}
	switch {
	case without && in.Resource.FailsIO && (i.began.IsZero() || !i.ended.IsZero() && in.Now.Sub(i.ended) > interruptionNews):
		*i = interruption{began: in.Now, pods: podUIDs(in.Pods)}
	case d.State == failover.PrimaryUp && !i.began.IsZero() && i.ended.IsZero():
		i.ended = in.Now
	}
}

// interrupted reports an interruption that has ended to the pods that used the volume all the time.
func (r *reporter) interrupted(v *volume) {
	i := &v.state.interruption
	if i.ended.IsZero() || i.told {
		return
	}
	if i.told = true; r.clock.Now().Sub(i.ended) > interruptionNews { // while another process led, which has reported it
		return
	}
	for _, pod := range v.in.Pods {
		if pod.Selected && !pod.Terminating && !pod.ReadOnly && slices.Contains(i.pods, pod.UID) {
			r.event(podRef(pod.Namespace, pod.Name, pod.UID), pvRef(v.pv), EventStorageInterrupted, actionRefuse, fmt.Sprintf(
				"node %s had no quorum for volume %s for %s, and writes have failed (on-no-quorum is io-error): restart the pod if its file system is read-only",
				v.in.Node.Name, v.pv.Name, i.ended.Sub(i.began).Round(time.Second)))
		}
	}
}
