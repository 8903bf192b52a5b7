package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

const (
	// retryAct is how soon an act that is under way is looked at again when nothing else calls for it.
	retryAct = time.Second
	// maxTurns bounds how often one call goes round; what is not done by then is done by the next.
	maxTurns = 4
	// glance is for how long a look at the pods counts as one that was taken just now.
	glance = 100 * time.Millisecond
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch;delete

// act moves the workload of the volume off the node, in one order: confirm, see that the grace has passed, keep new pods away, mark
// the attachment, remove the pods, see that they are gone, release and delete the attachment. Each step is idempotent, and each
// deletion follows a confirmation of its own; whoever leads next begins at the top.
//
// The decision returned is the newest one; its After says when to come back.
func (r *FailoverReconciler) act(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (failover.Decision, error) {
	detaches, rest := r.rest(pv.Name, in)
	if rest > 0 {
		d := failover.Decide(in)
		d.After = rest
		return d, nil
	}
	if in.Halt = r.halt.now(ctx); in.Halt.Guard != "" || in.Halt.Paused != "" {
		// Nothing will follow, so nobody need be asked.
		d := failover.Decide(in)
		r.report(ctx, pv, in, d)
		return d, nil
	}
	if detaches {
		return r.takeTurns(ctx, pv, in, &progress{})
	}
	removal := r.crowd.remove(in)
	defer removal.end()
	r.crowd.gather(ctx, in)
	return r.takeTurns(ctx, pv, in, removal)
}

// rest tells whether no pod is left to remove, and for how long there is nothing to do then: after the end of the last pod, until the
// cache shows it, and after the deletion of an attachment, when what follows is Kubernetes', each of whose steps calls for a look. A
// detach can wait for the removals of a crowd.
func (r *FailoverReconciler) rest(volume string, in failover.Input) (detaches bool, rest time.Duration) {
	ends, rest := r.reports.ends(volume, in)
	if len(in.Pods) > 0 && !ends {
		return false, 0
	}
	rest = max(rest, r.reports.restAfterDetach(volume, in))
	return true, max(rest, r.crowd.afterRemovals(in.Now, r.reports.removedAt(volume, in.Node.Name)))
}

// takeTurns confirms and takes one step, until nothing is left to do at the moment. It tells the crowd how far the removal is.
func (r *FailoverReconciler) takeTurns(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, removal *progress,
) (failover.Decision, error) {
	var d failover.Decision
	var emptied bool
	for range maxTurns {
		var err error
		if in, err = r.confirmOnce(ctx, pv, in, emptied); err != nil {
			return d, err
		}
		left := min(crowdAhead, failover.Decide(in).GraceLeft)
		removal.goOn(ctx, tainting, in, min(left+crowdGatherMax, crowdWait-r.age(in)))
		in.Halt = r.halt.now(ctx)
		in, d = r.waitForGrace(ctx, in, failover.Decide(in))
		d = r.keepPodsAway(ctx, in, d)
		if len(in.Pods) == 0 && in.Attachment == nil {
			return d, nil // Kubernetes has finished it meanwhile
		}
		r.report(ctx, pv, in, d)
		if d.Verdict != failover.Lost {
			return d, nil
		}
		d.After = untilDue(in)
		var over bool
		if len(in.Pods) == 0 {
			emptied = false
			removal.end()
			over, err = r.detach(ctx, pv, in, d)
			if rest := r.reports.restAfterDetach(pv.Name, in); rest > 0 {
				d.After = rest
			}
		} else {
			removal.goOn(ctx, beforeMark, in, min(crowdGatherMax, crowdWait-r.age(in)))
			emptied, over, err = r.removeOne(ctx, pv, &in, d, removal)
		}
		if err != nil || over {
			return d, err
		}
	}
	return d, nil
}

// removeOne removes a pod, and marks the attachment before where that is wanted. It tells whether it was the last one, and
// whether nothing can follow at the moment. Where neither is true another confirmation is wanted.
func (r *FailoverReconciler) removeOne(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, d failover.Decision, removal *progress,
) (emptied, over bool, err error) {
	if r.crowd.many() && endAtOnce(*in) {
		return r.removeInCrowd(ctx, pv, in, removal)
	}
	removal.to(removing) // or will be at once: it waits for nobody
	if r.isOld(*in) {
		return false, false, nil // the taint has taken so long that the reading is old
	}
	if in.Attachment, err = r.mark(ctx, *in, d); err != nil {
		return false, true, err
	}
	if r.isOld(*in) || in.Attachment != nil && !in.Attachment.Noted {
		return false, false, nil // the mark has, or the attachment is gone
	}
	removed, err := r.removeNext(ctx, pv, *in, d)
	return len(in.Pods) == 1, !removed, err
}

// confirmOnce confirms before anything is removed; where the last pod was just removed by in, that is what counts if it can.
func (r *FailoverReconciler) confirmOnce(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, emptied bool,
) (failover.Input, error) {
	if emptied {
		if again, ok, err := r.confirmEmptied(ctx, pv, in); ok || err != nil {
			return again, err
		}
	}
	return r.confirm(ctx, pv, in.Node.Name)
}

// untilDue is how soon an act is looked at again when nothing else calls for it: soon, and when the time is up that a pod
// was given to stop.
func untilDue(in failover.Input) time.Duration {
	after := retryAct
	for _, pod := range in.Pods {
		if left := pod.DeleteBy.Sub(in.Now); left > 0 {
			after = min(after, left)
		}
	}
	return after
}

// keepPodsAway keeps new pods away from the node before the first of its pods is removed. Where that fails, the
// replacement might be placed there again, and the decision is to wait.
func (r *FailoverReconciler) keepPodsAway(ctx context.Context, in failover.Input, d failover.Decision) failover.Decision {
	if d.Verdict != failover.Lost || len(in.Pods) == 0 {
		return d
	}
	if err := r.keepAway.Ensure(ctx, in, d); err != nil {
		d.Verdict, d.Reason, d.Message, d.After = failover.Blocked, failover.KeepAwayFailed, err.Error(), retryAct
	}
	return d
}

// removeNext removes the first pod for which there is something to do, and tells whether there was one. Only
// one, because the next deletion wants a confirmation of its own.
func (r *FailoverReconciler) removeNext(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision,
) (bool, error) {
	for _, pod := range in.Pods {
		switch removal := failover.RemovalOf(in, pod); removal {
		case failover.RemoveForce, failover.RemoveGracefully:
			return true, r.remove(ctx, pv, in, d, pod, removal)
		case failover.RemovalStuck:
			r.reportStuck(ctx, pv, in, pod)
		case failover.RemovalRunning:
			r.reportHeld(ctx, pv, in, pod)
		}
	}
	return false, nil
}

// remove sets the pod's condition and deletes it. The condition is a courtesy to the pod's owner; the removal does not depend
// on it, nor wait until what was read is old. Where it is, the next turn confirms again.
func (r *FailoverReconciler) remove(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision, facts failover.Pod, removal failover.Removal,
) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Name: facts.Name, UID: facts.UID}}
	markCtx, cancel := context.WithTimeout(ctx, (failover.MaxAge-r.age(in))/2)
	defer cancel()
	err := r.markDisrupted(markCtx, pod, d, removal == failover.RemoveForce)
	if client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot set the pod's DisruptionTarget condition", "pod", key(facts.Namespace, facts.Name))
	}
	_, err = r.deletePod(ctx, pv, in, d, facts, removal, err == nil && removal == failover.RemoveForce)
	return err
}

// deletePod deletes a pod, unless what was read is old by now; failed tells whether its phase was changed to that before. It tells
// whether the deletion was asked for; if not, another confirmation is wanted.
func (r *FailoverReconciler) deletePod(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision, facts failover.Pod,
	removal failover.Removal, failed bool,
) (asked bool, err error) {
	if r.isOld(in) {
		return false, nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Name: facts.Name, UID: facts.UID}}
	grace := int64(r.settings.DeletionGrace / time.Second)
	if removal == failover.RemoveForce {
		grace = 0
	}
	ctrl.LoggerFrom(ctx).Info("Deleting pod", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"pod", key(facts.Namespace, facts.Name), "reason", d.Reason, "gracePeriodSeconds", grace, "message", d.Message)
	r.reports.begins(pv.Name, in) // or the API may have done it, and the answer gets lost
	err = r.client.Delete(r.whileFresh(ctx, in), pod, client.GracePeriodSeconds(grace), client.Preconditions{UID: &facts.UID})
	switch gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err); {
	case errors.Is(err, sendby.ErrLate):
		return false, nil
	case gone && failed:
		// A StatefulSet deletes a pod whose phase is Failed at once, and may be quicker: the removal is ours all the same.
	case gone:
		return true, nil // or another pod of that name: the next confirmation shows it
	case err != nil:
		return true, fmt.Errorf("deleting pod %s: %w", key(facts.Namespace, facts.Name), err)
	}
	r.reports.podRemoved(pv.Name, in, d, removal)
	r.recordRemoval(pv, pod, d)
	return true, nil
}

// isOld tells whether so much time has passed since a confirmation that nothing may be deleted by it any more.
func (r *FailoverReconciler) isOld(in failover.Input) bool { return r.age(in) > failover.MaxAge }

// whileFresh returns a context in which a write is sent, by client-go also repeatedly, only until what was read is old.
func (r *FailoverReconciler) whileFresh(ctx context.Context, in failover.Input) context.Context {
	return sendby.With(ctx, r.freshUntil(in))
}

// freshUntil is when what was read becomes old, by the machine's clock.
func (r *FailoverReconciler) freshUntil(in failover.Input) time.Time {
	return time.Now().Add(failover.MaxAge - r.age(in))
}

// age is how much time has passed since LINSTOR was asked for a confirmation, at the beginning of which that is.
func (r *FailoverReconciler) age(in failover.Input) time.Duration { return r.clock.Now().Sub(in.Asked) }

// markDisrupted tells the pod's owner why the pod goes, as Kubernetes' own pod garbage collection does. With force the
// phase changes in the same patch: no kubelet is left to end the pod, and the finalizer of a Job's pod waits for it.
func (r *FailoverReconciler) markDisrupted(ctx context.Context, pod *corev1.Pod, d failover.Decision, force bool) error {
	status := map[string]any{"conditions": []corev1.PodCondition{{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             string(d.Reason),
		Message:            "PiraeusHAController: " + d.Message,
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

// failOverMark is the value of AnnotationFailOver.
type failOverMark struct {
	Pods   []types.UID     `json:"pods"`
	Reason failover.Reason `json:"reason"`
	Time   time.Time       `json:"time"`
}

// mark notes on the attachment that its fail-over has begun, so that any later leader finishes it although the pods
// that were the cause are gone. It returns the attachment with its mark, or without where it is gone by now or what was read is old;
// then another confirmation is wanted.
func (r *FailoverReconciler) mark(ctx context.Context, in failover.Input, d failover.Decision) (*failover.Attachment, error) {
	if in.Attachment == nil || in.Attachment.Noted {
		return in.Attachment, nil
	}
	value := failOverMark{Reason: d.Reason, Time: in.Now.UTC()}
	for _, pod := range in.Pods {
		value.Pods = append(value.Pods, pod.UID)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": in.Attachment.UID, "annotations": map[string]string{AnnotationFailOver: string(text)},
	}})
	if err != nil {
		return nil, err
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: in.Attachment.Name}}
	err = r.client.Patch(r.whileFresh(ctx, in), va, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || errors.Is(err, sendby.ErrLate) {
		return in.Attachment, nil
	}
	if err != nil {
		return nil, fmt.Errorf("marking VolumeAttachment %s: %w", in.Attachment.Name, err)
	}
	marked := *in.Attachment
	marked.Marked, marked.Noted = true, true
	return &marked, nil
}

// unmark takes the mark off an attachment whose fail-over was overtaken: nothing is lost there any more, and none of the
// pods that use the volume there is on its way out.
func (r *FailoverReconciler) unmark(ctx context.Context, in failover.Input, d failover.Decision) error {
	if in.Attachment == nil || !in.Attachment.Noted || d.Verdict != failover.NotLost || r.halt.dryRun {
		return nil
	}
	leaving := func(pod failover.Pod) bool { return !pod.DeleteBy.IsZero() }
	if len(in.Pods) == 0 || slices.ContainsFunc(in.Pods, leaving) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": in.Attachment.UID, "annotations": map[string]any{AnnotationFailOver: nil},
	}})
	if err != nil {
		return err
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: in.Attachment.Name}}
	err = r.client.Patch(ctx, va, client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("taking the mark off VolumeAttachment %s: %w", in.Attachment.Name, err)
	}
	return nil
}

// detach takes the volume off the node after the last pod there that used it is gone. in is the confirmation of that. It tells
// whether that was recent enough until the end; if not, another one is wanted.
func (r *FailoverReconciler) detach(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision,
) (current bool, err error) {
	r.reports.podsGone(pv.Name, in)
	// A pod may come back with its node at any time: each write follows a look of its own.
	if r.clock.Now().Sub(in.Now) > glance {
		if pods, err := r.confirmPods(ctx, pv, in.Node.Name); err != nil || len(pods) > 0 {
			return true, err
		}
	}
	if r.isOld(in) {
		return false, nil
	}
	if r.fastDetach {
		// Kubernetes waits for the kubelet's word that the volume is unmounted, which a dead one never gives.
		if current, err := r.release(ctx, pv, in); !current || err != nil {
			return current, err
		}
	}
	if in.Attachment == nil {
		return true, nil
	}
	if in.Attachment.Deleting {
		r.reports.detached(pv.Name, in, r.crowd.many())
		return true, nil
	}
	if pods, err := r.confirmPods(ctx, pv, in.Node.Name); err != nil || len(pods) > 0 {
		return true, err
	}
	if r.isOld(in) {
		return false, nil
	}
	err = r.deleteAttachment(ctx, pv, in, d)
	if errors.Is(err, sendby.ErrLate) {
		return false, nil
	}
	return true, err
}

// release takes the volume out of what the node calls in use. It tells whether what was read counts until then.
func (r *FailoverReconciler) release(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (current bool, err error) {
	err = r.inUse.release(ctx, in.Node.Name, r.driver, pv.Spec.CSI.VolumeHandle, r.freshUntil(in))
	if errors.Is(err, sendby.ErrLate) || err == nil && r.isOld(in) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	r.reports.released(pv.Name, in)
	return true, nil
}

func (r *FailoverReconciler) deleteAttachment(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision,
) error {
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: in.Attachment.Name, UID: in.Attachment.UID}}
	ctrl.LoggerFrom(ctx).Info("Deleting attachment", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"volumeAttachment", va.Name, "reason", d.Reason, "message", d.Message)
	err := r.client.Delete(r.whileFresh(ctx, in), va, client.Preconditions{UID: &in.Attachment.UID})
	switch {
	case apierrors.IsNotFound(err) && r.fastDetach:
		// Kubernetes deletes the attachment of a released volume, and may be quicker: the detach is ours all the same.
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting VolumeAttachment %s: %w", va.Name, err)
	}
	r.reports.left(pv.Name, in)
	r.reports.detached(pv.Name, in, r.crowd.many())
	r.recordDetach(pv, va, d)
	return nil
}
