package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

const (
	// evacuationWorkers is how many evacuated nodes are worked on at a time: LINSTOR may take its time for one of them.
	evacuationWorkers = 4
	// evacuationTimeout bounds one look and what follows from it. LINSTOR answers a call once its satellites have.
	evacuationTimeout = 3 * time.Minute
)

// EvacuationReconciler lets nodes leave that have the taint piraeus.io/evacuate, and takes that back when the taint goes. What to do is for
// internal/evacuation to say: one step at a time, from a fresh look.
type EvacuationReconciler struct {
	shared

	places LinstorPlaces
	marker *marker
	left   *leftMarks
	reader cluster.Evacuations
	halt   *haltSwitch
	// failsOver reports whether a volume of a node is lost by now, for whatever reason.
	failsOver func(node string) bool
	limits    evacuation.Settings
	// installation tells this controller from others in the cluster.
	installation string
	// timeout bounds one look.
	timeout time.Duration

	memory  evacuees
	placing placing
}

func (r *EvacuationReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	options.MaxConcurrentReconciles = min(options.MaxConcurrentReconciles, evacuationWorkers)
	options.ReconciliationTimeout = evacuationTimeout
	concerned := predicate.NewPredicateFuncs(isEvacuated)
	concerned.UpdateFunc = func(e event.UpdateEvent) bool { return concernsEvacuation(e.ObjectOld, e.ObjectNew) }
	concerned.DeleteFunc = func(event.DeleteEvent) bool { return true }
	return ctrl.NewControllerManagedBy(mgr).Named("evacuation").WithOptions(options).
		For(&corev1.Node{}, builder.WithPredicates(concerned)).Complete(r)
}

func isEvacuated(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && cluster.IsEvacuated(node)
}

// concernsEvacuation tells whether a change of a node concerns its evacuation: what comes every ten seconds anyway does not.
func concernsEvacuation(before, after client.Object) bool {
	old, ok := before.(*corev1.Node)
	node, isNode := after.(*corev1.Node)
	if !ok || !isNode || !cluster.IsEvacuated(node) {
		return false
	}
	conditions := cluster.EvacuationConditions(node)
	was := cluster.EvacuationConditions(old)
	return !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) || old.Spec.Unschedulable != node.Spec.Unschedulable ||
		was.Safe != nil && conditions.Safe == nil || was.Evacuated != nil && conditions.Evacuated == nil
}

// Reconcile looks at one node that is evacuated, or was.
func (r *EvacuationReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.api.Get(ctx, req.NamespacedName, &node); client.IgnoreNotFound(err) != nil {
		err = fmt.Errorf("reading node %s: %w", req.Name, err)
		if r.cache.Get(ctx, req.NamespacedName, &node) != nil || !cluster.IsEvacuated(&node) {
			return reconcile.Result{}, err
		}
		_, unread := r.unread(ctx, &node, r.memory.of(&node, r.clock.Now()), oneLine(err))
		return reconcile.Result{}, errors.Join(err, unread)
	}
	if !cluster.IsEvacuated(&node) { // nor is one that there is no more
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	mind := r.memory.of(&node, r.clock.Now())
	if progress, _ := cluster.EvacuationProgress(&node); progress.By != "" && progress.By != r.installation {
		r.standBack(&node, mind, progress.By)
		return reconcile.Result{RequeueAfter: evacuation.Interval}, nil
	}
	in, plan, err := r.look(ctx, &node, mind)
	switch {
	case err != nil:
		_, unread := r.unread(ctx, &node, mind, oneLine(err))
		return reconcile.Result{}, errors.Join(err, unread)
	case plan.Needs.Any(): // what was asked for has gone in between, or LINSTOR does not tell it
		again, err := r.unread(ctx, &node, mind, "LINSTOR does not tell all that must be known: "+plan.Needs.String())
		return reconcile.Result{RequeueAfter: again}, err
	}
	mind.unreadSince = time.Time{}
	if err := r.tell(ctx, &node, mind, in, plan); err != nil {
		return reconcile.Result{}, err
	}
	if plan.State == evacuation.Returned {
		r.forget(node.Name)
	}
	if sent := r.do(ctx, &node, mind, in, plan); !sent && plan.Step.Call != evacuation.Nothing {
		plan.Again = evacuation.Interval
	}
	return reconcile.Result{RequeueAfter: plan.Again}, nil
}

// unread says that it cannot be read what is so of a node, once that has been so for as long as anything may rest on an old look: what is unknown is
// neither safe nor gone. It returns when to look again.
func (r *EvacuationReconciler) unread(ctx context.Context, node *corev1.Node, mind *evacuee, why string) (again time.Duration, err error) {
	now := r.clock.Now()
	if mind.unreadSince.IsZero() {
		mind.unreadSince = now
	}
	if now.Sub(mind.unreadSince) < evacuation.MaxAge {
		return evacuation.MaxAge, nil
	}
	in := r.known(node, mind)
	plan := evacuation.Unread(in.Conditions, in.Progress, why)
	return plan.Again, r.tell(ctx, node, mind, in, plan)
}

// standBack leaves a node to another installation of the controller, and says so once.
func (r *EvacuationReconciler) standBack(node *corev1.Node, mind *evacuee, other string) {
	if mind.standsBack {
		return
	}
	mind.standsBack = true
	r.event(nodeRef(node), corev1.EventTypeWarning, EventAnotherInstallation, fmt.Sprintf("installation %s of the controller evacuates the node, so %s does not: "+
		"run one of them; if %s is gone for good, kubectl annotate node %s %s-", other, r.installation, other, node.Name, cluster.AnnotationEvacuation))
}

// forget forgets a node that is not evacuated any more, or that there is no more.
func (r *EvacuationReconciler) forget(node string) {
	if known := r.memory.forget(node); known {
		r.left.ask()
	}
	r.metrics.Evacuating(node, nil)
}
