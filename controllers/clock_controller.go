package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// clockDelay is how long the clocks leave the processor to decisions when LINSTOR's word changes, and take what changes at
	// about the same time together. The feed asks for a reading by itself.
	clockDelay = 150 * time.Millisecond
	// readingDue is how old a reading is at least that is asked for again. That of an event is younger when the clock is called,
	// and the next one is due a second after it.
	readingDue = 250 * time.Millisecond
)

// ClockReconciler keeps the clocks of the grace periods running on every replica: as long as a loss could follow for a
// volume, it has LINSTOR's word on it read every second. LINSTOR announces neither a lost quorum nor a changed role,
// and a condition counts only while somebody confirms it. It changes nothing in Kubernetes.
type ClockReconciler struct {
	gatherer
}

func (r *ClockReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	options.NeedLeaderElection = new(false)
	return watchVolumes(ctrl.NewControllerManagedBy(mgr).Named("clock").WithOptions(options), &r.gatherer).Complete(r)
}

// Reconcile asks for a reading of every resource that the decision about the volume rests on.
func (r *ClockReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	var pv corev1.PersistentVolume
	if err := r.cache.Get(ctx, req.NamespacedName, &pv); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	resource, ours := resourceOf(&pv, r.driver)
	if !ours {
		return reconcile.Result{}, nil
	}
	inputs, err := r.candidates(ctx, &pv)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering what is known of volume %s: %w", pv.Name, err)
	}
	var next soonest
	for _, in := range inputs {
		if failover.Decide(in).After > 0 {
			next.add(r.poll(resource, in))
		}
	}
	r.decided(resource, began)
	return reconcile.Result{RequeueAfter: time.Duration(next)}, nil
}

// poll asks for the readings that are due, and returns how soon others are. A pending grace may end sooner, but a reading is
// due every second and no earlier.
func (r *ClockReconciler) poll(resource string, in failover.Input) time.Duration {
	next := soonest(time.Second)
	pollOne := func(name string, confirmed time.Time) {
		if age := in.Now.Sub(confirmed); age < readingDue {
			next.add(time.Second - age)
			return
		}
		r.linstor.Poll(name)
	}
	pollOne(resource, in.Resource.Confirmed)
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			pollOne(other.Resource.Name, other.Resource.Confirmed)
		}
	}
	return time.Duration(next)
}
