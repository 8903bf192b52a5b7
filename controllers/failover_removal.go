package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// removeAll removes the pods for which there is something to do while the confirmation is fresh, and tells whether there was one. All
// go by one confirmation: where each waited for its own, a pod that comes back to the node at once would keep the others there.
func (r *FailoverReconciler) removeAll(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision,
) (removed bool, err error) {
	for _, pod := range in.Pods {
		switch removal := failover.RemovalOf(in, pod); removal {
		case failover.RemoveForce, failover.RemoveGracefully:
			if r.isOld(in) {
				return true, err
			}
			removed = true
			err = errors.Join(err, r.remove(ctx, pv, in, d, pod, removal))
		case failover.RemovalStuck:
			r.reportStuck(ctx, pv, in, pod)
		case failover.RemovalRunning:
			r.reportHeld(ctx, pv, in, pod)
		}
	}
	return removed, err
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
	_, _, err = r.deletePod(ctx, pv, in, d, facts, deletion{removal: removal, failed: err == nil && removal == failover.RemoveForce})
	return err
}

// deletion is how a pod is deleted.
type deletion struct {
	removal failover.Removal
	// failed tells whether the pod's phase was changed to that before.
	failed bool
	// asRead asks for the pod as it was read, without finalizers, so that the answer tells that its object is gone.
	asRead bool
}

// deletePod deletes a pod, unless what was read is old by now. It tells whether the deletion was asked for, and if not, another
// confirmation is wanted; and whether the object is known to be gone by the answer. A pod that has changed since it was read, by a
// finalizer for example, is deleted all the same, but whether it is gone then is to be looked for.
func (r *FailoverReconciler) deletePod(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision, facts failover.Pod, how deletion,
) (asked, ended bool, err error) {
	if r.isOld(in) {
		return false, false, nil
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Name: facts.Name, UID: facts.UID}}
	grace := int64(r.settings.DeletionGrace / time.Second)
	if how.removal == failover.RemoveForce {
		grace = 0
	}
	as := client.Preconditions{UID: &facts.UID}
	if ended = how.asRead; ended {
		as.ResourceVersion = &facts.ResourceVersion
	}
	ctrl.LoggerFrom(ctx).Info("Deleting pod", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"pod", key(facts.Namespace, facts.Name), "reason", d.Reason, "gracePeriodSeconds", grace, "message", d.Message)
	r.reports.begins(pv.Name, in) // or the API may have done it, and the answer gets lost
	err = r.client.Delete(r.whileFresh(ctx, in), pod, client.GracePeriodSeconds(grace), as)
	if ended && apierrors.IsConflict(err) {
		ended, as.ResourceVersion = false, nil
		err = r.client.Delete(r.whileFresh(ctx, in), pod, client.GracePeriodSeconds(grace), as)
	}
	switch gone := apierrors.IsNotFound(err) || apierrors.IsConflict(err); {
	case errors.Is(err, sendby.ErrLate):
		return false, false, nil
	case gone && how.failed:
		// A StatefulSet deletes a pod whose phase is Failed at once, and may be quicker: the removal is ours all the same.
	case gone:
		return true, false, nil // or another pod of that name: the next confirmation shows it
	case err != nil:
		return true, false, fmt.Errorf("deleting pod %s: %w", key(facts.Namespace, facts.Name), err)
	}
	r.reports.podRemoved(pv.Name, in, d, how.removal)
	r.recordRemoval(pv, pod, d)
	return true, ended, nil
}

// markDisrupted tells the pod's owner why the pod goes, as Kubernetes' own pod garbage collection does. With force the
// phase changes in the same patch: no kubelet is left to end the pod, and the finalizer of a Job's pod waits for it.
func (r *FailoverReconciler) markDisrupted(ctx context.Context, pod *corev1.Pod, d failover.Decision, force bool) error {
	status := map[string]any{"conditions": []corev1.PodCondition{{
		Type:               corev1.DisruptionTarget,
		Status:             corev1.ConditionTrue,
		Reason:             string(d.Reason),
		Message:            disruptedBy + d.Message,
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
