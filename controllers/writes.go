package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

const (
	// answersWithin is the timeout of requests that no step waits for: clean-up, and the question whether fail-over is paused.
	answersWithin = 10 * time.Second
	// requestsAtOnce is how many requests of one step are sent at the same time; the API server rejects too many.
	requestsAtOnce = 100
	// listAge is how old the live list of pods may be on which a release or a detach depends; older if the API is slow.
	listAge = 5 * time.Second
)

// errTooLate reports that a request was not sent: the facts on which it depends are too old, because the process stood still or the API was slow. The
// next reconcile decides again.
var errTooLate = errors.New("too much time has passed since the decision")

// inTime returns an error if too much time has passed since a volume was decided. No precondition can replace that: those of a pod's deletion do not
// cover LINSTOR's state, and those of a release or a detach do not cover pods that have come to the node.
func (r *NodeReconciler) inTime(v *volume) error {
	if r.clock.Now().Sub(v.in.Now) > failover.ActAge {
		return errTooLate
	}
	return nil
}

// unused returns an error if the live list that shows the volume unused is too old. It may be older if the API is slow.
func (r *NodeReconciler) unused(state *nodeState, v *volume) error {
	if r.clock.Now().Sub(v.listed) > max(listAge, 2*state.wait()) {
		return errTooLate
	}
	return r.inTime(v)
}

// write detaches the lost volumes that no pod on the node uses any more, and removes the pods that use the others. No volume is detached in the reconcile
// that removes its pods: everything is read again in between. Before each kind of request all volumes are decided again, and those that are no longer
// lost are left alone.
func (r *NodeReconciler) write(ctx context.Context, state *nodeState, lost []*volume, reads liveReads) {
	r.detach(ctx, state, lost, reads.node)
	if used := r.keepPodsAway(ctx, state, lost, reads.node); len(used) > 0 {
		r.annotate(ctx, state, used)
		r.deletePods(ctx, state, removal{lost, used, reads.claims})
	}
}

// removal is what the deletion of pods depends on: all lost volumes; those of them whose pods may be deleted, because no replacement can come; and the
// pods whose claims are confirmed.
type removal struct {
	lost, used []*volume
	confirmed  map[types.UID]bool
}

// send makes n requests at the same time, waits for their answers, and returns their errors.
func (r *NodeReconciler) send(
	ctx context.Context, state *nodeState, step metrics.Step, n int, request func(ctx context.Context, i int) error,
) []error {
	ctx, done := state.within(ctx, r.timeout)
	defer done()
	errs := make([]error, n)
	limited(n, func(i int) {
		if errs[i] = safely.Do(func() error { return request(ctx, i) }); errs[i] != nil && !errors.Is(errs[i], errTooLate) {
			r.metrics.Failed(step, errs[i])
		}
	})
	return errs
}

// limited does something n times, at most requestsAtOnce of them at the same time.
func limited(n int, do func(i int)) {
	var all errgroup.Group
	all.SetLimit(requestsAtOnce)
	for i := range n {
		all.Go(func() error { do(i); return nil })
	}
	_ = all.Wait()
}

// keepPodsAway taints the node before the first of its pods is deleted, and returns the volumes whose pods may be deleted then. If it fails, the
// replacements might be placed there again, and nothing is deleted.
func (r *NodeReconciler) keepPodsAway(ctx context.Context, state *nodeState, lost []*volume, node *corev1.Node) (used []*volume) {
	open, plan := r.decideAgain(ctx, state, lost)
	if used = due(open, plan, failover.StepRemove); len(used) == 0 {
		return nil
	}
	for _, v := range used {
		r.reporter.report(ctx, v)
	}
	ctx, done := state.within(ctx, r.timeout)
	defer done()
	err := r.inTime(used[0]) // all were decided together
	if err == nil {
		if err = r.taints.keepAway(ctx, node, used); err == nil {
			return used
		}
		r.metrics.Failed(metrics.StepTaint, err)
	}
	for _, v := range used {
		v.failed(&keepAwayError{err})
	}
	return nil
}

// keepAwayError reports why the node of lost volumes could not be tainted.
type keepAwayError struct{ error }

func (e *keepAwayError) Unwrap() error { return e.error }

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch

// annotate writes on the attachments that their fail-over has begun, why, and of which pods, so that any later leader finishes it even after the pods
// are gone.
func (r *NodeReconciler) annotate(ctx context.Context, state *nodeState, used []*volume) {
	open, plan := r.decideAgain(ctx, state, used)
	missing := slices.DeleteFunc(due(open, plan, failover.StepRemove), func(v *volume) bool {
		return v.in.Attachment == nil || v.in.Attachment.Noted && v.in.HasBegun()
	})
	errs := r.send(ctx, state, metrics.StepMark, len(missing), func(ctx context.Context, i int) error { return r.annotateOne(ctx, missing[i]) })
	for i, v := range missing {
		if errs[i] != nil && v.in.Attachment.Noted { // of an earlier fail-over, which serves a successor, too
			ctrl.LoggerFrom(ctx).Error(errs[i], "Cannot renew the fail-over annotation", "volume", v.pv.Name)
			continue
		}
		if v.failed(errs[i]); errs[i] == nil {
			noted := *v.in.Attachment
			noted.Marked, noted.Noted, noted.Reason, noted.Pods = true, true, v.d.Reason, podUIDs(v.in.Pods)
			v.in.Attachment, v.state.healthy = &noted, ""
			v.in.Pods = slices.Clone(v.in.Pods)
			for p := range v.in.Pods {
				if pod := &v.in.Pods[p]; pod.Terminating && pod.Begun.IsZero() {
					pod.Begun = r.clock.Now() // since then it has the deletion grace
				}
			}
		}
	}
}

func (r *NodeReconciler) annotateOne(ctx context.Context, v *volume) error {
	note := cluster.FailOverNote{Pods: podUIDs(v.in.Pods), Reason: v.d.Reason, Time: v.in.Now.UTC()}
	var pods []string
	for _, pod := range v.in.Pods {
		pods = append(pods, cluster.Key(pod.Namespace, pod.Name))
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := r.inTime(v); err != nil {
		return err
	}
	r.aged(metrics.WriteMark, v)
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.in.Attachment.Name}}
	if err := r.client.Patch(ctx, va, failOverPatch(v.in.Attachment.UID, string(text))); err != nil {
		return fmt.Errorf("annotating VolumeAttachment %s: %w", va.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Annotated attachment", "node", v.in.Node.Name, "volume", v.pv.Name, "volumeAttachment", va.Name, "pods", pods,
		"reason", v.d.Reason)
	return nil
}

func podUIDs(pods []failover.Pod) (uids []types.UID) {
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	return uids
}

// failOverPatch sets the fail-over annotation of an attachment, or removes it if the value is nil.
func failOverPatch(attachment types.UID, value any) client.Patch {
	return mergePatch(attachment, "", map[string]any{cluster.AnnotationFailOver: value}, nil)
}

// deletion is a pod that is deleted, and the volumes of the reconcile that it uses.
type deletion struct {
	failover.PodRemoval
	by    *volume
	users []*volume
	// pod is a copy of the pod of the live list. If this reconcile has set our condition on the pod, the copy has the version after that.
	pod          *corev1.Pod
	conditionSet bool
	// grace is the grace period of the deletion in seconds.
	grace int64
}

// outlives reports whether the object of the pod stays for a while after its deletion, because of a grace period or finalizers.
func (d deletion) outlives() bool { return d.How != failover.RemoveForce || d.Pod.Finalizers }

// needsCondition reports whether the condition is set before the deletion. If only the phase Failed is left to be set, both are set in one request.
func (d deletion) needsCondition() bool {
	return d.outlives() && !d.Pod.Unended && !cluster.Disrupted(d.pod)
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// deletePods deletes the pods for which there is something to do, all of whose lost volumes are annotated. After a forced deletion the node is
// reconciled again at once, because the volumes can be detached.
func (r *NodeReconciler) deletePods(ctx context.Context, state *nodeState, by removal) {
	deletions := r.deletions(ctx, state, by)
	var condition []*corev1.Pod // to be taken back
	if slices.ContainsFunc(deletions, deletion.needsCondition) {
		deletions, condition = r.stillDue(ctx, state, by, r.setDisrupted(ctx, state, deletions))
	}
	for i, d := range deletions {
		if d.How == failover.RemoveGracefully {
			deletions[i].grace = int64(r.settings.DeletionGrace / time.Second)
		}
		for _, v := range d.users {
			if v.in.Attachment != nil { // the API may delete the pod, and the answer get lost
				v.state.progress.begun = v.in.Attachment.UID
			}
		}
	}
	deleted := make([]bool, len(deletions))
	errs := r.send(ctx, state, metrics.StepDelete, len(deletions), func(ctx context.Context, i int) (err error) {
		deleted[i], err = r.deletePod(ctx, deletions[i])
		return err
	})
	for i, d := range deletions {
		switch {
		case deleted[i]:
			if r.reporter.podDeleted(ctx, d); d.How == failover.RemoveForce {
				state.again(atOnce)
			}
		case d.conditionSet:
			condition = append(condition, d.pod)
		}
		for _, v := range d.users {
			v.failed(errs[i])
		}
	}
	r.takeBackDisrupted(ctx, condition)
}

// deletions returns the deletions that the lost volumes call for of pods with confirmed claims, and reports pods that are stuck or kept by finalizers.
func (r *NodeReconciler) deletions(ctx context.Context, state *nodeState, by removal) (due []deletion) {
	open, plan := r.decideAgain(ctx, state, by.used)
	for _, pod := range plan.Removals {
		d := deletion{PodRemoval: pod, by: open[pod.By]}
		ready := true
		for _, i := range pod.Volumes {
			d.users = append(d.users, open[i])
			ready = ready && (open[i].in.Attachment == nil || open[i].in.Attachment.Noted)
		}
		live := d.by.livePod(pod.Pod.UID)
		switch {
		case !ready || live == nil || isHeld(by.lost, pod.Pod.UID):
		case pod.How == failover.RemovalStuck:
			r.reporter.stuck(ctx, state, d.by, pod.Pod)
		case pod.How == failover.RemovalRunning:
			r.reporter.heldByFinalizer(ctx, state, d.by, pod.Pod)
		case by.confirmed[pod.Pod.UID]:
			d.pod = live.DeepCopy()
			due = append(due, d)
		}
	}
	return due
}

// stillDue returns the deletions that the volumes still call for after the condition was set, and the pods from which it must be taken back.
func (r *NodeReconciler) stillDue(
	ctx context.Context, state *nodeState, by removal, deletions []deletion,
) (due []deletion, condition []*corev1.Pod) {
	again := r.deletions(ctx, state, by)
	for _, d := range deletions {
		i := slices.IndexFunc(again, func(other deletion) bool { return other.pod.UID == d.pod.UID })
		if i >= 0 {
			again[i].pod, again[i].conditionSet = d.pod, d.conditionSet
			due = append(due, again[i])
		} else if d.conditionSet {
			condition = append(condition, d.pod)
		}
	}
	return due, condition
}

// isHeld reports whether a pod uses a lost volume for which a step has failed, or that is held.
func isHeld(lost []*volume, pod types.UID) bool {
	return slices.ContainsFunc(lost, func(v *volume) bool {
		return (v.err != nil || v.held) && (v.livePod(pod) != nil || slices.ContainsFunc(v.in.Pods, func(p failover.Pod) bool { return p.UID == pod }))
	})
}

// setDisrupted sets the condition on the pods whose objects outlive their deletion. It returns the pods to delete: those that have changed since the
// live list are left to the next reconcile. A pod is deleted even if its condition cannot be set.
func (r *NodeReconciler) setDisrupted(ctx context.Context, state *nodeState, deletions []deletion) (due []deletion) {
	errs := r.send(ctx, state, metrics.StepDelete, len(deletions), func(ctx context.Context, i int) error {
		d := &deletions[i]
		if !d.needsCondition() {
			return nil
		}
		if err := r.inTime(d.by); err != nil {
			return err
		}
		err := r.patchStatus(ctx, d.pod, d.pod.ResourceVersion, map[string]any{"conditions": r.disruption(d.by.d)})
		d.conditionSet = err == nil
		return err
	})
	for i, d := range deletions {
		switch err := errs[i]; {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err), errors.Is(err, errTooLate):
			continue
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "Cannot set the pod's DisruptionTarget condition", "pod", cluster.Key(d.pod.Namespace, d.pod.Name))
		}
		due = append(due, d)
	}
	return due
}

// deletePod deletes a pod if it is still as it was in the live list. If it has changed, it is left to the next reconcile.
func (r *NodeReconciler) deletePod(ctx context.Context, d deletion) (deleted bool, err error) {
	if err := r.inTime(d.by); err != nil {
		return false, err
	}
	if !d.Pod.Unended { // else our deletion was accepted before, and only the phase is missing
		r.aged(metrics.WriteRemove, d.by)
		version := d.pod.ResourceVersion
		err = r.client.Delete(ctx, d.pod, client.GracePeriodSeconds(d.grace), client.Preconditions{UID: &d.pod.UID, ResourceVersion: &version})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("deleting pod %s: %w", cluster.Key(d.pod.Namespace, d.pod.Name), err)
		}
	}
	if d.How == failover.RemoveForce && d.outlives() {
		// No kubelet is left to end the pod, and the finalizer of a Job's pod waits for that. A Failed pod with our condition still counts as a user.
		err = r.patchStatus(ctx, d.pod, "", map[string]any{"phase": corev1.PodFailed, "conditions": r.disruption(d.by.d)})
		if client.IgnoreNotFound(err) != nil {
			return !d.Pod.Unended, fmt.Errorf("setting the phase of pod %s: %w", cluster.Key(d.pod.Namespace, d.pod.Name), err)
		}
	}
	return !d.Pod.Unended, nil
}

// disruption is the condition that reports to the pod's owner why the pod goes, as Kubernetes' own eviction does.
func (r *NodeReconciler) disruption(d failover.Decision) []corev1.PodCondition {
	return []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: string(d.Reason), Message: cluster.DisruptedBy + d.Message,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}}
}

// takeBackDisrupted takes the condition back from pods, but not from those that have ended or been deleted meanwhile. Another leader may have done that:
// without the condition, a pod that has ended no longer counts as a user, and its volume would be detached under it.
func (r *NodeReconciler) takeBackDisrupted(ctx context.Context, pods []*corev1.Pod) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	errs := make([]error, len(pods))
	limited(len(pods), func(i int) {
		errs[i] = safely.Do(func() error { return r.takeBackCondition(ctx, pods[i]) })
	})
	for i, err := range errs {
		if err != nil {
			failed = true
			ctrl.LoggerFrom(ctx).Error(err, "Cannot take back the pod's DisruptionTarget condition", "pod",
				cluster.Key(pods[i].Namespace, pods[i].Name))
		}
	}
	return failed
}

func (r *NodeReconciler) takeBackCondition(ctx context.Context, pod *corev1.Pod) error {
	err := retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		err := r.patchStatus(ctx, pod, pod.ResourceVersion, map[string]any{
			"conditions": []map[string]any{{"$patch": "delete", "type": corev1.DisruptionTarget}},
		})
		if !apierrors.IsConflict(err) {
			return err
		}
		onNode, listErr := r.live.PodsOn(ctx, pod.Spec.NodeName)
		if listErr != nil {
			return listErr
		}
		at := slices.IndexFunc(onNode, func(p corev1.Pod) bool { return p.UID == pod.UID })
		if at < 0 || onNode[at].DeletionTimestamp != nil || cluster.Ended(&onNode[at]) {
			return nil
		}
		pod.ResourceVersion = onNode[at].ResourceVersion
		return err // with the new version
	})
	return client.IgnoreNotFound(err)
}

// patchStatus patches the status of a pod of that version, or of any if it is empty. The pod gets the version that this has made.
func (r *NodeReconciler) patchStatus(ctx context.Context, pod *corev1.Pod, version string, status map[string]any) error {
	return r.client.Status().Patch(ctx, pod, mergePatch(pod.UID, version, nil, map[string]any{"status": status}))
}

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=delete

// detach takes volumes off the node once no pod there uses them: it releases them from the Node's volumes in use, and deletes their attachments. The
// node may return with a pod at any time, so another list precedes the deletion of attachments.
func (r *NodeReconciler) detach(ctx context.Context, state *nodeState, lost []*volume, node *corev1.Node) {
	open, plan := r.decideAgain(ctx, state, lost)
	detach := due(open, plan, failover.StepDetach)
	if len(detach) == 0 {
		return
	}
	now := r.clock.Now()
	for _, v := range detach {
		r.reporter.report(ctx, v)
		v.state.podsGone(r.metrics, now)
	}
	if r.fastDetach && !now.Before(state.releaseAt) {
		// Kubernetes waits until the kubelet reports that a volume is unmounted, which a dead one never does.
		r.release(ctx, state, detach, node)
	}
	var attached []*volume
	for _, v := range detach {
		switch {
		case v.err != nil || v.held:
		case v.in.Attachment.Deleting:
			v.state.leaveToKubernetes(v.in.Attachment.UID, now)
		default:
			attached = append(attached, v)
		}
	}
	r.deleteAttachments(ctx, state, attached)
}

// release removes volumes from the Node's volumes in use.
func (r *NodeReconciler) release(ctx context.Context, state *nodeState, volumes []*volume, node *corev1.Node) {
	handles := make([]string, len(volumes))
	for i, v := range volumes {
		handles[i] = v.pv.Spec.CSI.VolumeHandle
		r.aged(metrics.WriteRelease, v)
	}
	timed, done := state.within(ctx, r.timeout)
	defer done()
	inTime := func() error { return r.unused(state, volumes[0]) } // all were listed and decided together
	released, err := r.inUse.release(timed, node, r.driver, handles, inTime)
	if errors.Is(err, errDenied) { // the attachments are deleted all the same
		state.releaseAt = r.clock.Now().Add(retryLimit)
		return
	}
	if err != nil && !errors.Is(err, errTooLate) {
		r.metrics.Failed(metrics.StepRelease, err)
	}
	var names, reasons []string
	for _, v := range volumes {
		if v.failed(err); err != nil {
			continue
		}
		v.state.wasReleased(r.metrics, r.clock.Now())
		if slices.Contains(released, v.pv.Spec.CSI.VolumeHandle) {
			names, reasons = append(names, v.pv.Name), append(reasons, string(v.d.Reason))
		}
	}
	if len(names) > 0 {
		slices.Sort(reasons)
		ctrl.LoggerFrom(ctx).Info("Released volumes", "node", state.node, "volumes", names, "reason", strings.Join(slices.Compact(reasons), ", "))
	}
}

// deleteAttachments deletes the attachments of volumes that a fresh list shows unused.
func (r *NodeReconciler) deleteAttachments(ctx context.Context, state *nodeState, volumes []*volume) {
	if len(volumes) == 0 {
		return
	}
	timed, done := state.within(ctx, r.timeout)
	defer done()
	listed := r.clock.Now()
	pods, err := r.live.PodsOn(timed, state.node)
	r.each(volumes, func(v *volume) error {
		if err != nil {
			return err
		}
		users, err := r.live.UsersOf(timed, v.pv, pods)
		v.held, v.listed = len(users) > 0, listed // the next reconcile deals with those pods
		return err
	})
	open, plan := r.decideAgain(ctx, state, volumes)
	unused := due(open, plan, failover.StepDetach)
	deleted := make([]string, len(unused))
	errs := r.send(ctx, state, metrics.StepDetach, len(unused), func(ctx context.Context, i int) (err error) {
		deleted[i], err = r.deleteAttachment(ctx, state, unused[i])
		return err
	})
	for i, v := range unused {
		if v.failed(errs[i]); deleted[i] != "" {
			r.reporter.detached(ctx, v, deleted[i])
		}
	}
}

// deleteAttachment deletes the attachment of a volume, and returns what was done; empty if there was nothing to do.
func (r *NodeReconciler) deleteAttachment(ctx context.Context, state *nodeState, v *volume) (done string, err error) {
	attachment := v.in.Attachment
	if err := r.unused(state, v); err != nil {
		return "", err
	}
	r.aged(metrics.WriteDetach, v)
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachment.Name, UID: attachment.UID}}
	err = r.client.Delete(ctx, va, client.Preconditions{UID: &attachment.UID})
	switch {
	case apierrors.IsNotFound(err) && r.fastDetach:
		// Kubernetes deletes the attachment of a released volume, and may be quicker: the detach is ours all the same.
		return "Kubernetes has deleted the attachment", nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("deleting VolumeAttachment %s: %w", va.Name, err)
	}
	return "Deleted attachment", nil
}

// aged records the age of LINSTOR's state on which a write depends.
func (r *NodeReconciler) aged(write metrics.Write, v *volume) {
	r.metrics.WriteSent(write, v.in.Now.Sub(v.in.Resource.Confirmed))
}

// takeBackAnnotations removes the annotation from the attachments of volumes that are no longer lost and whose pods stay. It reports whether that failed.
func (r *NodeReconciler) takeBackAnnotations(ctx context.Context, state *nodeState, volumes []*volume) (failed bool) {
	var noted []*volume
	for _, v := range volumes {
		if a := v.in.Attachment; a != nil && a.Noted && !a.Deleting && v.d.Verdict == failover.NotLost {
			noted = append(noted, v)
		}
	}
	errs := r.send(ctx, state, metrics.StepMark, len(noted), func(ctx context.Context, i int) error {
		v := noted[i]
		if stays, err := r.podsStayLive(ctx, v); err != nil || !stays {
			return err
		}
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.in.Attachment.Name}}
		err := r.client.Patch(ctx, va, failOverPatch(v.in.Attachment.UID, nil))
		if err == nil {
			ctrl.LoggerFrom(ctx).Info("Took annotation off attachment", "node", v.in.Node.Name, "volume", v.pv.Name,
				"volumeAttachment", va.Name, "reason", v.d.Reason)
		}
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
	for i, err := range errs {
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot take the fail-over annotation off", "volume", noted[i].pv.Name)
			failed = true
		}
	}
	return failed
}

// disrupted returns the pods with our condition on volumes that are not lost: the process that set it has ended before it deleted them, or the answer
// of the API came too late.
func (r *NodeReconciler) disrupted(ctx context.Context, volumes []*volume) (pods []*corev1.Pod) {
	for _, v := range volumes {
		for _, user := range v.in.Pods {
			if v.d.Verdict != failover.NotLost || user.Terminating {
				continue
			}
			var pod corev1.Pod
			err := r.cache.Get(ctx, client.ObjectKey{Namespace: user.Namespace, Name: user.Name}, &pod, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot look up a pod in the cache", "pod", cluster.Key(user.Namespace, user.Name))
			}
			if pod.UID == user.UID && cluster.Disrupted(&pod) && pod.DeletionTimestamp == nil && !cluster.Ended(&pod) {
				pods = append(pods, pod.DeepCopy())
			}
		}
	}
	return pods
}

// podsStayLive reports whether pods use the volume on the node, of which none is being deleted. If the cache has none and the volume is in use, they may
// not be selected any more, and the API is asked.
func (r *NodeReconciler) podsStayLive(ctx context.Context, v *volume) (bool, error) {
	if len(v.in.Pods) > 0 || v.d.Reason != failover.PrimaryHealthy {
		return podsStay(v.in), nil
	}
	pods, err := r.live.PodsOn(ctx, v.in.Node.Name)
	if err != nil {
		return false, err
	}
	users, err := r.live.UsersOf(ctx, v.pv, slices.DeleteFunc(pods, func(p corev1.Pod) bool { return cluster.Ended(&p) }))
	if err != nil {
		return false, err
	}
	ends := slices.ContainsFunc(users, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return len(users) > 0 && !ends, nil
}

// podsStay reports whether pods use the volume on a node, of which none is being deleted.
func podsStay(in failover.Input) bool {
	for _, pod := range in.Pods {
		if pod.Terminating {
			return false
		}
	}
	return len(in.Pods) > 0
}

// writeUnconfirmed writes on the node's attachments which nodes are not known to run the quorum of their resources.
func (r *NodeReconciler) writeUnconfirmed(ctx context.Context, state *nodeState, volumes []*volume) {
	after := make([]time.Duration, len(volumes))
	errs := r.send(ctx, state, metrics.StepMark, len(volumes), func(ctx context.Context, i int) (err error) {
		v := volumes[i]
		own := slices.DeleteFunc(slices.Clone(v.attachments), func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName != state.node })
		after[i], err = r.memory.write(ctx, r.client, v.resources[0], own, r.clock.Now())
		return err
	})
	for i, v := range volumes {
		if state.again(after[i]); errs[i] != nil {
			ctrl.LoggerFrom(ctx).Error(errs[i], "Cannot write which nodes are unconfirmed", "volume", v.pv.Name)
			state.again(retryLimit)
		}
	}
}
