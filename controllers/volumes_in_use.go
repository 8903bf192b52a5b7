package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumesInUse takes volumes out of nodes' status.volumesInUse, the field by which a kubelet holds back a detach. The
// list is replaced as a whole, so each node has one writer here, which takes along what has gathered meanwhile.
type volumesInUse struct {
	client client.Client
	live   client.Reader

	mu       sync.Mutex
	pending  map[string]*releaseBatch
	busy     map[string]bool
	deniedBy sync.Once
}

// releaseBatch is the volumes that one patch takes out.
type releaseBatch struct {
	names []corev1.UniqueVolumeName
	done  chan struct{}
	err   error // valid once done is closed
}

func newVolumesInUse(c client.Client, live client.Reader) *volumesInUse {
	return &volumesInUse{client: c, live: live, pending: make(map[string]*releaseBatch), busy: make(map[string]bool)}
}

// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch

// release removes the volume from the node's list. The caller has seen that no pod on the node uses it. A
// missing permission is no error: it is reported once, and Kubernetes detaches in its own time.
func (v *volumesInUse) release(ctx context.Context, node, driver, handle string) error {
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
	batch, writer := v.join(node, name)
	if writer {
		v.write(ctx, node)
	}
	select {
	case <-batch.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if apierrors.IsForbidden(batch.err) {
		v.deniedBy.Do(func() {
			ctrl.LoggerFrom(ctx).Error(batch.err, "Cannot release volumes from dead nodes, so that Kubernetes takes up to a minute "+
				"longer to attach them elsewhere; grant patch on nodes/status or set --fast-detach=false")
		})
		return nil
	}
	return batch.err
}

// join adds the volume to the node's next batch and tells whether the caller has to write.
func (v *volumesInUse) join(node string, name corev1.UniqueVolumeName) (*releaseBatch, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	batch := v.pending[node]
	if batch == nil {
		batch = &releaseBatch{done: make(chan struct{})}
		v.pending[node] = batch
	}
	batch.names = append(batch.names, name)
	if v.busy[node] {
		return batch, false
	}
	v.busy[node] = true
	return batch, true
}

// write empties the node's batches until none is left.
func (v *volumesInUse) write(ctx context.Context, node string) {
	for {
		v.mu.Lock()
		batch := v.pending[node]
		delete(v.pending, node)
		if batch == nil {
			delete(v.busy, node)
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		batch.err = v.patch(ctx, node, batch.names)
		close(batch.done)
	}
}

func (v *volumesInUse) patch(ctx context.Context, name string, release []corev1.UniqueVolumeName) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var node corev1.Node
		if err := v.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		kept := slices.DeleteFunc(slices.Clone(node.Status.VolumesInUse),
			func(n corev1.UniqueVolumeName) bool { return slices.Contains(release, n) })
		if len(kept) == len(node.Status.VolumesInUse) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
			"status":   map[string]any{"volumesInUse": kept},
		})
		if err != nil {
			return err
		}
		err = v.client.Status().Patch(ctx, &node, client.RawPatch(types.MergePatchType, patch))
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("releasing volumes from node %s: %w", name, err)
		}
		return err
	})
}
