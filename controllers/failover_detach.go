package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=delete

// detachAll takes volumes off the node after the last pods there that used them are gone, which the look has shown: they are released
// from the volumes in use there, and their attachments deleted. A pod may come back with its node at any time, so that the deletions
// follow another list.
func (r *FailoverReconciler) detachAll(ctx context.Context, node string, volumes []*volume) {
	if len(volumes) == 0 {
		return
	}
	for _, v := range volumes {
		r.reporter.reports.podsGone(v.pv.Name, v.in)
	}
	if r.fastDetach {
		// Kubernetes waits for the kubelet's word that a volume is unmounted, which a dead one never gives.
		r.releaseAll(ctx, node, volumes)
	}
	var attached []*volume
	for _, v := range volumes {
		switch {
		case !v.goesOn():
		case v.in.Attachment.Deleting:
			r.reporter.reports.detached(v.pv.Name, v.in)
		default:
			attached = append(attached, v)
		}
	}
	r.deleteAttachments(ctx, node, attached)
}

// releaseAll takes volumes out of what the node calls in use.
func (r *FailoverReconciler) releaseAll(ctx context.Context, node string, volumes []*volume) {
	var current []*volume
	var handles []string
	var until time.Time
	for _, v := range volumes {
		fresh := r.freshUntil(v.in)
		if r.isOld(v.in) {
			v.fail(sendby.ErrLate)
			continue
		}
		if until.IsZero() || fresh.Before(until) {
			until = fresh
		}
		current, handles = append(current, v), append(handles, v.pv.Spec.CSI.VolumeHandle)
	}
	if len(current) == 0 {
		return
	}
	known := copies(current)
	err := r.send(ctx, metrics.StepRelease, []string{"the volumes in use of node " + node}, func(ctx context.Context, _ int) error {
		r.reporter.reports.metrics.WriteSent(metrics.WriteRelease, failover.MaxAge-time.Until(until))
		released, err := r.inUse.release(ctx, node, r.driver, handles, until)
		logRelease(ctx, node, known, released)
		return err
	})[0]
	for _, v := range current {
		if err != nil {
			v.fail(err)
			continue
		}
		r.reporter.reports.released(v.pv.Name, v.in)
	}
}

// logRelease says which of the volumes were taken out of what the node calls in use, by their handles.
func logRelease(ctx context.Context, node string, volumes []volume, released []string) {
	if len(released) == 0 {
		return
	}
	var names, reasons []string
	for _, v := range volumes {
		if slices.Contains(released, v.pv.Spec.CSI.VolumeHandle) {
			names, reasons = append(names, v.pv.Name), append(reasons, string(v.d.Reason))
		}
	}
	slices.Sort(reasons)
	ctrl.LoggerFrom(ctx).Info("Released volumes", "node", node, "volumes", names, "reason", strings.Join(slices.Compact(reasons), ", "))
}

// deleteAttachments deletes those of volumes that no pod uses by a list of now.
func (r *FailoverReconciler) deleteAttachments(ctx context.Context, node string, volumes []*volume) {
	if len(volumes) == 0 {
		return
	}
	pods, err := r.live.PodsOn(ctx, node)
	var unused []*volume
	var attachments []string
	for _, v := range volumes {
		users, usersErr := []corev1.Pod(nil), err
		if err == nil {
			users, usersErr = r.live.UsersOf(ctx, v.pv, pods)
		}
		switch {
		case usersErr != nil:
			v.fail(usersErr)
		case len(users) == 0:
			unused, attachments = append(unused, v), append(attachments, string(v.in.Attachment.UID))
		}
	}
	known := copies(unused)
	errs := r.send(ctx, metrics.StepDetach, attachments, func(ctx context.Context, i int) error {
		defer r.forgetGone(context.WithoutCancel(ctx), known[i].pv.Name, node)
		return r.deleteAttachment(ctx, known[i])
	})
	for i, v := range unused {
		if errs[i] != nil {
			v.fail(errs[i])
		}
	}
}

func (r *FailoverReconciler) deleteAttachment(ctx context.Context, v volume) error {
	if r.isOld(v.in) {
		return sendby.ErrLate
	}
	attachment := v.in.Attachment
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachment.Name, UID: attachment.UID}}
	err := r.client.Delete(r.whileFresh(ctx, v.in, metrics.WriteDetach), va, client.Preconditions{UID: &attachment.UID})
	done := "Deleted attachment"
	switch {
	case apierrors.IsNotFound(err) && r.fastDetach:
		// It deletes the attachment of a released volume, and may be quicker: the detach is ours all the same.
		done = "Kubernetes has deleted the attachment"
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting VolumeAttachment %s: %w", va.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info(done, "node", v.in.Node.Name, "volume", v.pv.Name, "volumeAttachment", va.Name,
		"reason", v.d.Reason, "message", v.d.Message)
	r.reporter.reports.left(v.pv.Name, v.in, v.d)
	r.reporter.reports.detached(v.pv.Name, v.in)
	r.reporter.recordDetach(v, va)
	return nil
}
