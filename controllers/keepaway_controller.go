package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// keepAwayInterval is how often the cause of a taint is looked at: a node that is well again may wait that long for pods.
const keepAwayInterval = 5 * time.Second

// KeepAwayReconciler owns the taints that KeepAway has set, whichever process did: it takes each away when
// its cause is gone, when Kubernetes' own taint has taken over, or when it has expired.
type KeepAwayReconciler struct {
	keepAway *KeepAway
	linstor  Linstor
	clock    clock.PassiveClock
	settings failover.Settings
	// begun tells whether this process has begun a fail-over for the attachment.
	begun func(volume, node string, attachment types.UID) bool
	// agents says why node agents of 1.x forbid to taint, who do that themselves; empty where they do not.
	agents func() string
}

func (r *KeepAwayReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	marked := predicate.NewPredicateFuncs(isMarked)
	marked.UpdateFunc = func(e event.UpdateEvent) bool { return concernsTaint(e.ObjectOld, e.ObjectNew) }
	return ctrl.NewControllerManagedBy(mgr).Named("keepaway").WithOptions(options).
		For(&corev1.Node{}, builder.WithPredicates(marked)).Complete(r)
}

func isMarked(o client.Object) bool {
	_, ok := o.GetAnnotations()[cluster.AnnotationKeepAway]
	return ok
}

// concernsTaint tells whether a change of a node concerns a taint that KeepAway has set. Kubernetes writes the status of a lost
// node for each volume that it detaches from there, and that is nothing to look at.
func concernsTaint(before, after client.Object) bool {
	return isMarked(after) && (before.GetAnnotations()[cluster.AnnotationKeepAway] != after.GetAnnotations()[cluster.AnnotationKeepAway] ||
		!equality.Semantic.DeepEqual(before.(*corev1.Node).Spec.Taints, after.(*corev1.Node).Spec.Taints))
}

// Reconcile looks at one tainted node.
func (r *KeepAwayReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.keepAway.live.Get(ctx, req.NamespacedName, &node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	mark, ours := markOf(&node)
	if !ours {
		return reconcile.Result{}, nil
	}
	before := node.DeepCopy()
	now := r.clock.Now()
	cause := r.cause(ctx, node.Name, mark)
	log := ctrl.LoggerFrom(ctx).WithValues("node", node.Name, "taint", cluster.TaintLostQuorum, "resources", mark.Resources)
	message, why := "Renewed taint of node", string(mark.Reason)
	switch tainted := cluster.HasTaint(&node, cluster.TaintLostQuorum, ""); {
	case cause == failover.TaintCauseGone, now.After(mark.Expires):
		clearTaint(&node)
		if err := r.keepAway.write(ctx, before, &node, nil); err != nil {
			r.keepAway.metrics.Failed(metrics.StepUntaint, err)
			return reconcile.Result{}, fmt.Errorf("letting pods return to node %s: %w", node.Name, err)
		}
		expired := cause != failover.TaintCauseGone
		log.Info("Untainted node", "reason", untaintedFor(expired))
		r.keepAway.recordUntaint(&node, mark.Resources, expired)
		return reconcile.Result{}, nil
	case r.agents() != "":
		return reconcile.Result{RequeueAfter: keepAwayInterval}, nil // who sets the same taint: it expires where its cause does not end
	case takenOver(&node) && tainted:
		clearTaint(&node)
		message, why = "Untainted node", takenOverWhy
	case !takenOver(&node) && !tainted && !r.keepAway.disabled:
		setTaint(&node, mark.Effect)
		message = "Tainted node"
	case cause != failover.TaintCauseLasts, mark.Expires.Sub(now) > keepAwayExpiry/2:
		return reconcile.Result{RequeueAfter: keepAwayInterval}, nil
	}
	if mark.Owner = r.keepAway.owner; cause == failover.TaintCauseLasts {
		mark.Expires = now.Add(keepAwayExpiry).UTC()
	}
	if err := r.keepAway.write(ctx, before, &node, &mark); err != nil {
		return reconcile.Result{}, fmt.Errorf("renewing the taint of node %s: %w", node.Name, err)
	}
	log.Info(message, "effect", mark.Effect, "reason", why)
	return reconcile.Result{RequeueAfter: keepAwayInterval}, nil
}

// takenOverWhy is why a taint was taken off a node to which Kubernetes itself lets no pods.
const takenOverWhy = "Kubernetes itself keeps pods away by now"

// untaintedFor is why a taint was taken off that has expired, or whose cause is gone.
func untaintedFor(expired bool) string {
	if expired {
		return "nobody has confirmed the cause for too long"
	}
	return "the node has its storage back"
}

// halfOf returns a context that ends when half of the time that is left to a reconciliation has passed. What follows is written in the other half.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// cause asks LINSTOR whether the cause lasts. Where LINSTOR cannot be asked, or does not know, the cause counts as lasting; where LINSTOR answers, and does not list
// the node, the cause is unknown for good. Each answer counts when it comes: the answers about many causes take longer than the first one may be old.
func (r *KeepAwayReconciler) cause(ctx context.Context, node string, mark keepAwayMark) failover.TaintCause {
	if r.leaving(ctx, node, mark) {
		return failover.TaintCauseLasts
	}
	ctx, cancel := halfOf(ctx)
	defer cancel()
	answers, listed := false, false
	is := func(resource *failover.Resource) (cause failover.TaintCause) {
		known := r.keepAway.inputs.Node(node)
		satellite, ok := r.linstor.Node(known.Satellite)
		listed = ok
		return failover.TaintCauseOf(r.clock.Now(), known, r.settings, satellite.Word(), resource)
	}
	all := failover.TaintCauseGone
	for _, name := range mark.Resources {
		var resource *failover.Resource
		fresh, err := r.linstor.Refresh(ctx, name, 0)
		answers = answers || err == nil || errors.Is(err, linstor.ErrNotFound)
		if err == nil {
			resource = &fresh
		} else if known, ok := r.linstor.Resource(name); ok { // else LINSTOR no longer lists it
			resource = &known
		}
		switch is(resource) {
		case failover.TaintCauseLasts:
			return failover.TaintCauseLasts
		case failover.TaintCauseUnknown:
			all = failover.TaintCauseUnknown
		case failover.TaintCauseGone:
		}
	}
	if len(mark.Resources) == 0 {
		all = is(nil)
	}
	if all == failover.TaintCauseUnknown && (listed || !answers) {
		return failover.TaintCauseLasts // LINSTOR will tell again
	}
	return all
}

// leaving tells whether a volume is still being moved off the node. Until that is done no pod must return there, even
// where the node itself could use the volume again: the attachment would be taken from under it.
func (r *KeepAwayReconciler) leaving(ctx context.Context, node string, mark keepAwayMark) bool {
	attachments, err := r.keepAway.attachments.On(ctx, node)
	return err != nil || slices.ContainsFunc(attachments, func(va storagev1.VolumeAttachment) bool {
		return r.begun(*va.Spec.Source.PersistentVolumeName, node, va.UID) || r.isBeingMoved(ctx, &va, mark)
	})
}

// isBeingMoved tells whether an attachment goes with its volume's fail-over, for all that its marks tell. One that hangs in its deletion for
// other reasons, or whose volume is gone, must not hold the taint for ever.
func (r *KeepAwayReconciler) isBeingMoved(ctx context.Context, va *storagev1.VolumeAttachment, mark keepAwayMark) bool {
	marked := va.Annotations[cluster.AnnotationFailOver] != ""
	if !marked && va.DeletionTimestamp == nil {
		return false
	}
	pv, err := r.keepAway.volumes.Get(ctx, *va.Spec.Source.PersistentVolumeName)
	switch {
	case err != nil:
		return true
	case pv == nil:
		return false
	case marked, len(mark.Resources) == keepAwayResources: // there may have been more causes
		return true
	}
	return slices.Contains(mark.Resources, r.keepAway.volumes.Resource(pv))
}
