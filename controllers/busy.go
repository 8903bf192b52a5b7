package controllers

import (
	"context"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// afterRejection says when a volume is tried again for which the API server had no time (HTTP 429): as soon as that allows,
// together with all others that it has rejected, the one first that is lost for the longest time. A backoff that grows would
// let those overtake that are lost later.
func (r *FailoverReconciler) afterRejection(ctx context.Context, volume, node string, rejection error) reconcile.Result {
	seconds, _ := apierrors.SuggestsClientDelay(rejection)
	delay := min(max(time.Duration(seconds)*time.Second, retryAct), retryLimit)
	now := r.clock.Now()
	// All meet at the same moments, which are so far apart that who is rejected right after one makes it to the next.
	apart := delay + delay/2
	again := now.Add(delay + apart - 1).Truncate(apart)
	ctrl.LoggerFrom(ctx).Info("The Kubernetes API is busy", "volume", volume, "node", node, "error", rejection.Error(),
		"retryAfter", again.Sub(now).String())
	priority := ageOf(r.reports.suspectedSince(volume, node))
	return reconcile.Result{RequeueAfter: again.Sub(now), Priority: &priority}
}

// ageOf is the priority in the queue of what has been lost since then: higher for what was lost earlier.
func ageOf(since time.Time) int { return math.MaxInt32 - int(min(since.Unix(), math.MaxInt32)) }
