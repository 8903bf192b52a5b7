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

// glance is for how long a look at the pods counts as one that was taken just now.
const glance = 100 * time.Millisecond

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=patch;delete

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
	// A pod may come back with its node at any time: each write follows a look of its own, or the known end of the pod.
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
