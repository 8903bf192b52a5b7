package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// FailoverReconciler moves the workloads of one node away from the volumes that are lost there. It works in rounds: one look at
// everything about the node and its lost volumes, one plan, and all writes of the plan. It runs on the leader only. It never creates
// pods: that is for their owners.
type FailoverReconciler struct {
	client   client.Client
	linstor  Linstor
	clock    clock.PassiveClock
	settings failover.Settings
	driver   string
	kubelets *cluster.Kubelets
	pods     cluster.Pods
	live     cluster.Live
	gather   gather
	keepAway *KeepAway
	inUse    *volumesInUse
	reporter *reporter
	halt     *haltSwitch
	bell     *bell
	requests *requests
	// backoff tells when a node is looked at again where something failed.
	backoff workqueue.TypedRateLimiter[string]
	// late are the nodes whose last look had not all of LINSTOR's word in time.
	late sync.Map

	fastDetach bool
}

const (
	// retryAct is how soon a node is looked at again when nothing else calls for it, while something is under way there:
	// a reading of LINSTOR comes as often.
	retryAct = time.Second
	// maxRounds bounds how many rounds follow each other at once; what is not done by then is done soon after.
	maxRounds = 4
)

func (r *FailoverReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("failover").WithOptions(options).
		Watches(&corev1.Pod{}, r.changes()).
		Watches(&storagev1.VolumeAttachment{}, r.changes()).
		WatchesRawSource(r.bell.source()).Complete(r)
}

// Reconcile goes round until nothing is left to do now on the node, whose name need not be that of an object: a node may be gone, and its
// volumes still attached there.
func (r *FailoverReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	for range maxRounds {
		result, err := r.round(ctx, req.Name)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("moving workloads away from node %s: %w", req.Name, err)
		}
		if !result.again {
			return reconcile.Result{RequeueAfter: time.Duration(result.next)}, nil
		}
	}
	return reconcile.Result{RequeueAfter: retryAct}, nil
}

// roundResult is what follows from a round.
type roundResult struct {
	// again is set where another round can do more at once: pods should be gone, or what was read has become old.
	again bool
	// next is when to look again although nothing may have happened.
	next soonest
}

// volume is one volume of the node as a round sees it.
type volume struct {
	pv *corev1.PersistentVolume
	// in is what is known of it, and d what was decided on that.
	in failover.Input
	d  failover.Decision
	// resources are all that the decision rests on in LINSTOR, its own one first.
	resources []string
	// lookAfter is when there may be something to do about it again, where its attachment has been deleted.
	lookAfter time.Duration
	// err is why a step could not be taken, late is set where what was read became old before, and waits where a request has not been
	// answered yet.
	err         error
	late, waits bool
}

// round looks, plans and does once.
func (r *FailoverReconciler) round(ctx context.Context, node string) (result roundResult, err error) {
	more := r.bell.listen(node)
	lost, detaching, err := r.lostOn(ctx, node)
	if err != nil {
		return result, err
	}
	r.hold(node, detaching, lost)
	for _, v := range detaching {
		result.next.add(v.lookAfter)
	}
	if len(lost) == 0 {
		r.backoff.Forget(node) // what has failed is over
		r.late.Delete(node)
		return result, nil
	}
	if halt := r.halt.now(ctx); halt.Guard != "" || halt.Paused != "" || halt.Agents != "" {
		// Nothing will follow, so nobody need be asked.
		for _, v := range lost {
			v.in.Halt = halt
			v.d = failover.Decide(v.in)
		}
		return r.conclude(ctx, node, lost, detaching, result), nil
	}
	if result.next > 0 { // those that need another look by then do not wait for LINSTOR's word on these
		defer r.bell.ringIn(time.Duration(result.next), node)()
	}
	r.look(ctx, node, more, lost)
	r.noteLate(node, lost)
	halt := r.halt.now(ctx)
	seen := slices.DeleteFunc(slices.Clone(lost), func(v *volume) bool { return v.err != nil })
	look := make([]failover.Input, len(seen))
	for i, v := range seen {
		v.in.Halt = halt
		look[i] = v.in
	}
	plan := failover.PlanFor(look)
	for i, v := range seen {
		if v.d = plan.Volumes[i].Decision; plan.Volumes[i].Step == failover.StepDetach {
			r.reporter.report(ctx, v.pv, v.in, v.d)
		}
	}
	result.again = r.do(ctx, node, seen, plan)
	return r.conclude(ctx, node, lost, detaching, result), nil
}

// hold notes which volumes are in hand on a node: another look at them is certain.
func (r *FailoverReconciler) hold(node string, volumes ...[]*volume) {
	var names []string
	for _, v := range slices.Concat(volumes...) {
		names = append(names, v.pv.Name)
	}
	r.bell.hold(node, names)
}

// conclude says what was decided and done, and when to look again.
func (r *FailoverReconciler) conclude(ctx context.Context, node string, lost, detaching []*volume, result roundResult) roundResult {
	failed := make(map[string][]string) // volumes, by error
	for _, v := range lost {
		if v.err == nil && len(v.in.Pods) == 0 && v.in.Attachment == nil {
			continue // Kubernetes has finished it meanwhile
		}
		result.next.add(r.reporter.say(ctx, v.pv, v.in, v.d, v.failure()))
		result.next.add(r.after(v))
		if v.err != nil {
			failed[v.err.Error()] = append(failed[v.err.Error()], v.pv.Name)
		}
	}
	for _, v := range lost {
		r.forgetGone(ctx, v.pv.Name, node)
	}
	for text, volumes := range failed {
		ctrl.LoggerFrom(ctx).Info("Cannot move volumes away", "node", node, "volumes", volumes, "error", text)
	}
	if len(failed) > 0 {
		result.next.add(r.backoff.When(node))
	} else {
		r.backoff.Forget(node)
	}
	// What is lost no more by what was read may be again by what is heard later: that rings by itself.
	held := slices.DeleteFunc(slices.Clone(lost), func(v *volume) bool {
		return v.err == nil && (v.d.Verdict == failover.NotLost || v.d.Verdict == failover.Undecided || v.d.Verdict == failover.Pending)
	})
	if r.hold(node, detaching, held); len(held) > 0 && result.next == 0 {
		result.next = soonest(retryAct)
	}
	return result
}

// forgetGone forgets what was said of a volume that has been deleted, or has nothing left on its node, since this round read it: the
// VolumeReconciler may have forgotten it before that was said. A request that outlives its round says something after it.
func (r *FailoverReconciler) forgetGone(ctx context.Context, name, node string) {
	pv, err := r.gather.watch.volumes.Get(ctx, name)
	there := false
	if err == nil {
		there, _, err = r.gather.isRemade(ctx, name, pv)
	}
	if err == nil && !there && pv != nil {
		there, err = r.gather.inputs.Concerns(ctx, pv, node)
	}
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Cannot tell whether a volume is still on its node", "node", node, "volume", name)
	case !there:
		r.reporter.forget(name, node)
	}
}

// after is how soon a volume is looked at again, as far as nothing has failed.
func (r *FailoverReconciler) after(v *volume) time.Duration {
	if v.err != nil {
		return 0
	}
	if v.waits {
		return retryAct
	}
	if wait := r.reporter.reports.waitAfterDetach(v.pv.Name, v.in); wait > 0 {
		return wait
	}
	return v.d.After
}
