package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumesInUse takes volumes out of nodes' status.volumesInUse, with which a kubelet delays a detach.
type volumesInUse struct {
	client   client.Client
	live     client.Reader
	deniedBy sync.Once
}

// errDenied is why nothing was released: the permission is missing.
var errDenied = errors.New("the permission to patch nodes/status is missing")

// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch

// release removes volumes from the list of a node as it was read, nil if there is none, and returns the handles of those that were there. The
// caller knows that no pod on the node uses them, as long as inTime returns no error. If the list has changed since, the node is read again. A missing
// permission is reported once; the error matches errDenied then, and Kubernetes detaches in its own time.
//
// The patch tests the list that was read, not the node's version, because Kubernetes writes the rest of the status many times a second while it
// detaches. The test does not notice pods that have come to the node: their kubelet adds no volume that is still in the list.
func (v *volumesInUse) release(
	ctx context.Context, read *corev1.Node, driver string, handles []string, inTime func() error,
) (released []string, err error) {
	if read == nil {
		return nil, nil
	}
	node, overtaken := read.DeepCopy(), false
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsInvalid, func() error {
		if released = nil; overtaken {
			if err := v.live.Get(ctx, client.ObjectKeyFromObject(read), node); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		overtaken = true
		left := make([]corev1.UniqueVolumeName, 0, len(node.Status.VolumesInUse))
		for _, inUse := range node.Status.VolumesInUse {
			if handle, ours := strings.CutPrefix(string(inUse), "kubernetes.io/csi/"+driver+"^"); ours && slices.Contains(handles, handle) {
				released = append(released, handle)
			} else {
				left = append(left, inUse)
			}
		}
		if len(released) == 0 {
			return nil
		}
		if err := inTime(); err != nil {
			return err
		}
		return v.client.Status().Patch(ctx, node, replacePatch(node.UID, "/status/volumesInUse", node.Status.VolumesInUse, left))
	})
	if apierrors.IsForbidden(err) {
		v.deniedBy.Do(func() {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot release volumes from dead nodes, so that Kubernetes takes up to a minute "+
				"longer to attach them elsewhere; grant patch on nodes/status or set --fast-detach=false")
		})
		return nil, errDenied
	}
	if err != nil {
		return nil, fmt.Errorf("releasing volumes from node %s: %w", read.Name, err)
	}
	return released, nil
}
