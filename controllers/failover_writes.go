package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// do makes the writes of a plan, kind after kind, each only while what it rests on is fresh. Volumes that are detached do not wait for
// those whose pods are removed. It tells whether another round can do more at once: pods should be gone, or a write came too late.
func (r *FailoverReconciler) do(ctx context.Context, node string, volumes []*volume, plan failover.Plan) (again bool) {
	var remove, detach []*volume
	for i, v := range volumes {
		switch plan.Volumes[i].Step {
		case failover.StepRemove:
			remove = append(remove, v)
		case failover.StepDetach:
			detach = append(detach, v)
		}
	}
	var detaches sync.WaitGroup
	detaches.Go(func() {
		if err := safely(func() error { r.detachAll(ctx, node, detach); return nil }); err != nil {
			for _, v := range detach {
				v.fail(err)
			}
		}
	})
	r.keepPodsAway(ctx, node, remove)
	for _, v := range remove {
		r.reporter.report(ctx, v.pv, v.in, v.d)
	}
	r.markAll(ctx, remove)
	again = r.removeAll(ctx, volumes, plan.Removals)
	detaches.Wait()
	return again || slices.ContainsFunc(volumes, func(v *volume) bool { return v.late })
}

// fail notes that a step could not be taken. That a request is under way, or came too late to be sent, is no failure.
func (v *volume) fail(err error) {
	switch {
	case errors.Is(err, sendby.ErrLate):
		v.late = true
	case errors.Is(err, errUnanswered):
		v.waits = true
	default:
		v.err = errors.Join(v.err, err)
	}
}

// errOutdated is why a step of a fail-over was not sent. It passes, and only where a loss has waited for long pods are told of it.
var errOutdated = fmt.Errorf("what was read was older than %s, or had changed, before the next step could be sent; "+
	"see how long the Kubernetes API takes to answer", failover.MaxAge)

// failure is what is said of a step that was not taken; nil where none was due, or a request has not been answered yet.
func (v *volume) failure() error {
	if v.err == nil && v.late {
		return errOutdated
	}
	return v.err
}

// goesOn tells whether the fail-over of a volume can take the next step.
func (v *volume) goesOn() bool {
	return v.err == nil && !v.late && !v.waits && v.d.Verdict == failover.Lost
}

// namesOf are the names of volumes.
func namesOf(volumes []volume) []string {
	names := make([]string, len(volumes))
	for i, v := range volumes {
		names[i] = v.pv.Name
	}
	return names
}

// copies are volumes as they are now, for requests that may outlive the round.
func copies(volumes []*volume) []volume {
	all := make([]volume, len(volumes))
	for i, v := range volumes {
		all[i] = *v
	}
	return all
}

// copiesAt are copies of some of the volumes.
func copiesAt(volumes []*volume, at []int) []volume {
	some := make([]volume, len(at))
	for i, n := range at {
		some[i] = *volumes[n]
	}
	return some
}

// send makes a request for each of the objects at the same time, and counts those that fail; the requests end with the process's
// leadership.
func (r *FailoverReconciler) send(
	ctx context.Context, step metrics.Step, objects []string, request func(ctx context.Context, index int) error,
) []error {
	return r.requests.send(ctx, r.bell.lifetime(ctx), objects, func(ctx context.Context, index int) error {
		err := request(ctx, index)
		if err != nil && !errors.Is(err, sendby.ErrLate) {
			r.gather.metrics.Failed(step, err)
		}
		return err
	})
}

// keepPodsAway keeps new pods away from the node before the first of its pods is removed. Where that fails, the replacements might be
// placed there again, and the decision is to wait.
func (r *FailoverReconciler) keepPodsAway(ctx context.Context, node string, volumes []*volume) {
	if len(volumes) == 0 {
		return
	}
	losses := make([]loss, len(volumes))
	for i, v := range volumes {
		losses[i] = loss{v.in, v.d}
	}
	err := r.send(ctx, metrics.StepTaint, []string{"the taint of node " + node}, func(ctx context.Context, _ int) error {
		return r.keepAway.Ensure(ctx, node, losses)
	})[0]
	for _, v := range volumes {
		switch {
		case err == nil:
		case errors.Is(err, errUnanswered):
			v.fail(err)
		default:
			v.d.Verdict, v.d.Reason, v.d.Message, v.d.After = failover.Blocked, failover.KeepAwayFailed, err.Error(), retryAct
		}
	}
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch

// failOverMark is the value of AnnotationFailOver.
type failOverMark struct {
	Pods   []types.UID     `json:"pods"`
	Reason failover.Reason `json:"reason"`
	Time   time.Time       `json:"time"`
}

// markAll notes on the attachments that their fail-over has begun, so that any later leader finishes it although the pods
// that were the cause are gone.
func (r *FailoverReconciler) markAll(ctx context.Context, volumes []*volume) {
	var unmarked []*volume
	var attachments []string
	for _, v := range volumes {
		if v.goesOn() && v.in.Attachment != nil && !v.in.Attachment.Noted {
			unmarked, attachments = append(unmarked, v), append(attachments, string(v.in.Attachment.UID))
		}
	}
	known := copies(unmarked)
	errs := r.send(ctx, metrics.StepMark, attachments, func(ctx context.Context, i int) error { return r.mark(ctx, known[i]) })
	for i, v := range unmarked {
		if errs[i] != nil {
			v.fail(errs[i])
			continue
		}
		marked := *v.in.Attachment
		marked.Marked, marked.Noted = true, true
		v.in.Attachment = &marked
	}
}

// errGone is why nothing follows from what was read of an object that is gone: another look is wanted.
var errGone = fmt.Errorf("the object is gone: %w", sendby.ErrLate)

func (r *FailoverReconciler) mark(ctx context.Context, v volume) error {
	in := v.in
	value := failOverMark{Reason: v.d.Reason, Time: in.Now.UTC()}
	var pods []string
	for _, pod := range in.Pods {
		value.Pods, pods = append(value.Pods, pod.UID), append(pods, cluster.Key(pod.Namespace, pod.Name))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	patch, err := markPatch(in.Attachment.UID, string(text))
	if err != nil {
		return err
	}
	if r.isOld(in) {
		return sendby.ErrLate
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: in.Attachment.Name}}
	err = r.client.Patch(r.whileFresh(ctx, in, metrics.WriteMark), va, patch)
	if apierrors.IsNotFound(err) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("marking VolumeAttachment %s: %w", in.Attachment.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Marked attachment", "node", in.Node.Name, "volume", v.pv.Name, "volumeAttachment", va.Name, "pods", pods,
		"reason", v.d.Reason)
	return nil
}

// markPatch sets the mark of the attachment of that UID, or takes it away where it is nil.
func markPatch(attachment types.UID, mark any) (client.Patch, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": attachment, "annotations": map[string]any{cluster.AnnotationFailOver: mark},
	}})
	return client.RawPatch(types.MergePatchType, patch), err
}

// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// removeAll removes the pods for which there is something to do, all of whose volumes that the look has shown to be lost are marked. It
// tells whether one was removed that should be gone by that.
func (r *FailoverReconciler) removeAll(ctx context.Context, volumes []*volume, removals []failover.PodRemoval) (gone bool) {
	var due []failover.PodRemoval
	var pods []string
	var by []volume
	var users [][]volume
	for _, removal := range removals {
		v := volumes[removal.By]
		if slices.ContainsFunc(removal.Volumes, func(i int) bool { return !volumes[i].goesOn() }) {
			continue
		}
		switch removal.How {
		case failover.RemoveForce, failover.RemoveGracefully:
			due, pods = append(due, removal), append(pods, string(removal.Pod.UID))
			// Of the pod's own volumes only: others are detached meanwhile.
			by, users = append(by, *v), append(users, copiesAt(volumes, removal.Volumes))
		case failover.RemovalStuck:
			r.reporter.reportStuck(ctx, v.pv, v.in, removal.Pod)
		case failover.RemovalRunning:
			r.reporter.reportHeld(ctx, v.pv, v.in, removal.Pod)
		}
	}
	errs := r.send(ctx, metrics.StepDelete, pods, func(ctx context.Context, i int) error {
		err := r.remove(ctx, by[i], users[i], due[i])
		for _, v := range users[i] {
			r.forgetGone(context.WithoutCancel(ctx), v.pv.Name, v.in.Node.Name)
		}
		return err
	})
	for i, removal := range due {
		if errs[i] != nil {
			volumes[removal.By].fail(errs[i])
			continue
		}
		gone = gone || removal.How == failover.RemoveForce
	}
	return gone
}

// remove deletes a pod that uses those volumes. Where its object outlives that, because it is given time or has finalizers, its condition
// is set before: a courtesy to its owner, on which the removal does not depend, and for which it does not wait until what was read is old.
func (r *FailoverReconciler) remove(ctx context.Context, v volume, users []volume, removal failover.PodRemoval) error {
	facts := removal.Pod
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Name: facts.Name, UID: facts.UID}}
	failed := false
	if force := removal.How == failover.RemoveForce; !force || facts.Finalizers {
		markCtx, cancel := context.WithTimeout(ctx, (failover.MaxAge-r.age(v.in))/2)
		defer cancel()
		err := r.markDisrupted(markCtx, pod, v.d, force)
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot set the pod's DisruptionTarget condition", "pod", cluster.Key(facts.Namespace, facts.Name))
		}
		failed = err == nil && force
	}
	if r.isOld(v.in) {
		return sendby.ErrLate
	}
	for _, user := range users {
		r.reporter.reports.begins(user.pv.Name, user.in) // or the API may have done it, and the answer gets lost
	}
	return r.delete(ctx, v, users, pod, removal.How, failed)
}

// delete deletes a pod that uses those volumes, unless what was read is old by now. failed tells whether its phase was changed to that
// before.
func (r *FailoverReconciler) delete(
	ctx context.Context, v volume, users []volume, pod *corev1.Pod, how failover.Removal, failed bool,
) error {
	grace := int64(r.settings.DeletionGrace / time.Second)
	if how == failover.RemoveForce {
		grace = 0
	}
	err := deletePod(r.whileFresh(ctx, v.in, metrics.WriteRemove), r.client, pod, client.GracePeriodSeconds(grace))
	switch gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err); {
	case gone && failed:
		// A StatefulSet deletes a pod whose phase is Failed at once, and may be quicker: the removal is ours all the same.
	case gone:
		return nil // or another pod of that name: the next look shows it
	case err != nil:
		return err
	}
	volumes := namesOf(users)
	ctrl.LoggerFrom(ctx).Info("Deleted pod", "node", v.in.Node.Name, "volumes", volumes, "pod", cluster.Key(pod.Namespace, pod.Name),
		"mode", how, "gracePeriodSeconds", grace, "reason", v.d.Reason, "message", v.d.Message)
	for _, user := range users {
		r.reporter.reports.podRemoved(user.pv.Name, user.in, user.d)
	}
	r.reporter.recordRemoval(v, volumes, pod, how)
	return nil
}

// markDisrupted tells the pod's owner why the pod goes, as Kubernetes' own pod garbage collection does. With force the
// phase changes in the same patch: no kubelet is left to end the pod, and the finalizer of a Job's pod waits for it.
func (r *FailoverReconciler) markDisrupted(ctx context.Context, pod *corev1.Pod, d failover.Decision, force bool) error {
	status := map[string]any{"conditions": []corev1.PodCondition{{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             string(d.Reason),
		Message:            cluster.DisruptedBy + d.Message,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}}}
	if force {
		status["phase"] = corev1.PodFailed
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	return r.client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
}

// isOld tells whether so much time has passed since a look that nothing may be deleted by it any more.
func (r *FailoverReconciler) isOld(in failover.Input) bool { return r.age(in) > failover.MaxAge }

// whileFresh returns a context in which a write is sent, by client-go also repeatedly, only until what was read is old.
func (r *FailoverReconciler) whileFresh(ctx context.Context, in failover.Input, write metrics.Write) context.Context {
	r.reporter.reports.metrics.WriteSent(write, r.age(in))
	return sendby.With(ctx, r.freshUntil(in))
}

// freshUntil is when what was read becomes old, by the machine's clock.
func (r *FailoverReconciler) freshUntil(in failover.Input) time.Time {
	return time.Now().Add(failover.MaxAge - r.age(in))
}

// age is how much time has passed since LINSTOR was asked for what a volume's fate rests on, or since the pods of the node were listed,
// where that is longer ago and a pod is to be removed: another one may have come since.
func (r *FailoverReconciler) age(in failover.Input) time.Duration {
	oldest := in.Asked
	if len(in.Pods) > 0 && !in.Listed.IsZero() && in.Listed.Before(oldest) {
		oldest = in.Listed
	}
	return r.clock.Now().Sub(oldest)
}
