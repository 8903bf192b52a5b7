package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// linstorController is the component that the Piraeus Operator calls the LINSTOR controller.
const linstorController = "linstor-controller"

func isLinstorController(pod *corev1.Pod) bool {
	return pod.Labels[cluster.ComponentLabel] == linstorController
}

// blindness is a node to which LINSTOR is proven to have no connection, and until when that proof holds.
type blindness struct {
	node  string
	until time.Time
}

// wasRestarted reports whether a pod, or the one that it replaces, may have been deleted lately because LINSTOR was blind. Another leader may have
// done that: any pod that is older than this leadership may be a replacement.
func (r *Recovery) wasRestarted(pod *corev1.Pod, now time.Time) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	created := r.serverTime.Local(pod.CreationTimestamp.Time)
	at := r.restarted[owner.UID]
	// Several pods of one owner are deleted at the same time.
	return at != now && now.Sub(at) < failover.BlindRetry || created.Before(r.begun) && now.Sub(created) < failover.BlindRetry
}

// restart deletes the pod of a blind LINSTOR controller if that was decided. Its node is up: the replacement may come to it again.
func (r *Recovery) restart(ctx context.Context, now time.Time, blind blindness, pod *corev1.Pod, d failover.Decision) error {
	if d.Verdict != failover.Lost {
		r.tell(ctx, pod, d, actionRefuse, "")
		return nil
	}
	until := now.Add(failover.ActAge) // the pods of one LINSTOR are deleted one after the other
	if blind.until.Before(until) {
		until = blind.until
	}
	deleted, err := r.remove(ctx, pod, d, until, "")
	if owner := metav1.GetControllerOf(pod); deleted && owner != nil {
		r.restarted[owner.UID], r.replaced[owner.UID] = now, now
	}
	return err
}
