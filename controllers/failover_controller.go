package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// FailoverReconciler moves the workload of one PersistentVolume away from each node that has lost the volume's
// storage: it removes the selected pods there, then the attachment. It runs on the leader only. It never creates
// pods: that is for their owners.
type FailoverReconciler struct {
	gatherer
	client   client.Client
	keepAway *KeepAway
	inUse    *volumesInUse
	recorder events.EventRecorder
	reports  *reports
	waits    *waitList
	losses   *losses
	halt     *haltSwitch
	memory   *settingsMemory
	crowd    *crowd
	// listsUntil is until when pods are not read one by one, because that was forbidden; nil where it was not.
	listsUntil atomic.Pointer[time.Time]

	fastDetach        bool
	reconcileInterval time.Duration
}

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=get;list;watch

func (r *FailoverReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return watchVolumes(ctrl.NewControllerManagedBy(mgr).Named("failover").WithOptions(options), &r.gatherer).
		WatchesRawSource(r.silence()).Complete(r)
}

// Reconcile decides for every node the volume is used on, and acts where the storage is lost. It asks to be called
// again while a loss could follow without anything happening; changes call it by themselves.
func (r *FailoverReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	var pv corev1.PersistentVolume
	if err := r.cache.Get(ctx, req.NamespacedName, &pv); err != nil {
		r.reports.forget(req.Name)
		r.waits.keep(req.Name, nil)
		r.losses.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	resource, ours := resourceOf(&pv, r.driver)
	if !ours {
		return reconcile.Result{}, nil
	}
	if err := r.noteArrival(ctx, pv.Name); err != nil {
		return reconcile.Result{}, err
	}
	// What others have said must be known before anything is decided, and before it is written anew.
	attachments, err := r.attachmentsOf(ctx, pv.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("looking up the attachments of volume %s: %w", pv.Name, err)
	}
	if err := r.memory.take(pv.Name, resource, attachments, r.clock.Now()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot take over what nodes may run", "volume", pv.Name)
	}
	inputs, err := r.candidates(ctx, &pv)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("gathering what is known of volume %s: %w", pv.Name, err)
	}
	r.reports.keep(pv.Name, inputs)
	r.waits.keep(pv.Name, inputs)
	r.losses.keep(pv.Name, inputs)

	result, err := r.decideAll(ctx, &pv, resource, inputs, began)
	// Also where a write was rejected: that may go on for long, and the memory must outlive this process then, too.
	kept := r.keepSettings(ctx, pv.Name, resource, attachments)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := soonest(result.RequeueAfter)
	next.add(kept)
	result.RequeueAfter = time.Duration(next)
	return result, nil
}

// decideAll decides on each input, acts where the storage is lost, and tells when to come back.
func (r *FailoverReconciler) decideAll(
	ctx context.Context, pv *corev1.PersistentVolume, resource string, inputs []failover.Input, began time.Time,
) (reconcile.Result, error) {
	var next soonest
	for _, in := range inputs {
		d := failover.Decide(in)
		r.losses.decided(pv.Name, in.Node.Name, d)
		r.decided(resource, began)
		after, begins := r.crowd.begins(in, d)
		if d.Verdict == failover.Lost || d.ReadLease || begins {
			var err error
			in, d, err = r.act(ctx, pv, in)
			next.add(r.explain(ctx, pv, in, d, err))
			if apierrors.IsTooManyRequests(err) {
				return r.afterRejection(ctx, pv.Name, in.Node.Name, err), nil
			}
			if err != nil {
				return reconcile.Result{}, fmt.Errorf("moving volume %s away from node %s: %w", pv.Name, in.Node.Name, err)
			}
		} else {
			next.add(after)
			r.report(ctx, pv, in, d)
			next.add(r.explain(ctx, pv, in, d, nil))
			if err := r.unmark(ctx, in, d); err != nil {
				return reconcile.Result{}, err
			}
		}
		next.add(d.After)
		if d.Reason != failover.PrimaryHealthy {
			next.add(r.reconcileInterval)
		}
	}
	return reconcile.Result{RequeueAfter: time.Duration(next)}, nil
}

// noteArrival sees whether a volume that was taken off a lost node is attached elsewhere by now.
func (r *FailoverReconciler) noteArrival(ctx context.Context, volume string) error {
	from, ok := r.reports.leftFrom(volume)
	if !ok {
		return nil
	}
	attachments, err := r.attachmentsOf(ctx, volume)
	if err != nil {
		return fmt.Errorf("looking up the attachments of volume %s: %w", volume, err)
	}
	for _, va := range attachments {
		if va.Spec.NodeName != from && va.Status.Attached {
			r.reports.arrived(volume)
		}
	}
	return nil
}

// soonest is the smallest of the added durations; zero when none was.
type soonest time.Duration

func (s *soonest) add(d time.Duration) {
	if d > 0 && (*s == 0 || d < time.Duration(*s)) {
		*s = soonest(d)
	}
}

// keepTimeout bounds how long a volume waits for what is kept of it.
const keepTimeout = 2 * time.Second

// keepSettings keeps what nodes may run of a resource on the attachments of its volume, after all that is urgent, and tells when to come
// back. A failure holds nothing up.
func (r *FailoverReconciler) keepSettings(
	ctx context.Context, volume, resource string, attachments []storagev1.VolumeAttachment,
) time.Duration {
	if r.halt.dryRun {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	after, err := r.memory.keep(ctx, r.client, volume, resource, attachments, r.clock.Now())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot keep what nodes may run", "volume", volume)
		return retryLimit
	}
	return after
}
