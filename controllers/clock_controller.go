package controllers

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// clockDelay is how long the clocks leave the processor to decisions when LINSTOR's word changes, and take what changes at
	// about the same time together. The feed asks for a reading by itself then, and the next one is due a second later.
	clockDelay = 500 * time.Millisecond
	// clockPodDelay is the same where a pod or an attachment changes, which a fail-over does a dozen times for each volume. What a
	// clock rests on is LINSTOR's word; they only say whether a volume is used.
	clockPodDelay = 2 * time.Second
	// clockInterval is how often a volume is looked at while its clocks may run, though nothing changes.
	clockInterval = 4 * time.Second
	// clockHorizon is for how long its resources are read every second then. It leaves a busy process time to look again.
	clockHorizon = 2 * clockInterval
)

// ClockReconciler keeps the clocks of the grace periods running on every replica: as long as a loss could follow for a
// volume, it has LINSTOR's word on it read every second. LINSTOR announces neither a lost quorum nor a changed role,
// and a condition counts only while somebody confirms it. It changes nothing in Kubernetes.
type ClockReconciler struct {
	gather gather
}

func (r *ClockReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	options.NeedLeaderElection = new(false)
	return r.gather.watch.of(ctrl.NewControllerManagedBy(mgr).Named("clock").WithOptions(options)).Complete(r)
}

// Reconcile has every resource read every second for a while that the decision about the volume rests on, if it asks for that.
func (r *ClockReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	g, err := r.gather.volume(ctx, req.Name)
	if err != nil || g.pv == nil {
		return reconcile.Result{RequeueAfter: g.remadeLeft}, err
	}
	var again time.Duration
	for _, in := range g.inputs {
		d := failover.Decide(in)
		r.gather.losses.decided(g.pv.Name, in.Node.Name, d)
		if d.After > 0 {
			again = clockInterval
			r.keep(g.resource, in, began.Add(clockHorizon))
		}
	}
	r.gather.decided(g.resource, began)
	return reconcile.Result{RequeueAfter: again}, nil
}

// keep has everything read until then that the decision rests on.
func (r *ClockReconciler) keep(resource string, in failover.Input, until time.Time) {
	linstor := r.gather.watch.linstor
	linstor.Keep(resource, until)
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			linstor.Keep(other.Resource.Name, until)
		}
	}
}
