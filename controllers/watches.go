package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// volumeWatch has a controller look at a PersistentVolume when it, a selected pod, an attachment or LINSTOR's word on its resource
// changes.
type volumeWatch struct {
	volumes     cluster.Volumes
	attachments cluster.Attachments
	linstor     Linstor
	// after is how long after LINSTOR's word has changed a volume is looked at, and afterPods how long after a pod or an attachment has:
	// what changes in that time is looked at together.
	after, afterPods time.Duration
}

func (w volumeWatch) of(b *ctrl.Builder) *ctrl.Builder {
	return b.
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.Pod{}, delayed(w.afterPods, handler.EnqueueRequestsFromMapFunc(w.requests))).
		Watches(&storagev1.VolumeAttachment{}, delayed(w.afterPods, handler.EnqueueRequestsFromMapFunc(w.requests))).
		WatchesRawSource(w.doorbell())
}

// doorbell rings for the volumes of a resource when LINSTOR's word on it changes. The change itself is not carried:
// who answers reads the store.
func (w volumeWatch) doorbell() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		unsubscribe := w.linstor.Subscribe(func(resource string) {
			volumes, err := w.volumes.OfResource(ctx, resource)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a resource in the cache", "resource", resource)
			}
			for _, volume := range volumes {
				q.AddAfter(requestOf(volume), w.after)
			}
		})
		context.AfterFunc(ctx, unsubscribe)
		return nil
	})
}

// requests calls for the volumes that an object concerns.
func (w volumeWatch) requests(ctx context.Context, o client.Object) []reconcile.Request {
	volumes := w.volumesOf(ctx, o)
	requests := make([]reconcile.Request, 0, len(volumes))
	for _, volume := range volumes {
		requests = append(requests, requestOf(volume))
	}
	return requests
}

// volumesOf returns the volumes that a pod or an attachment concerns.
func (w volumeWatch) volumesOf(ctx context.Context, o client.Object) []string {
	switch o := o.(type) {
	case *corev1.Pod:
		volumes, err := w.volumes.OfPod(ctx, o)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a pod in the cache", "pod", cluster.Key(o.Namespace, o.Name))
		}
		return volumes
	case *storagev1.VolumeAttachment:
		if w.attachments.Ours(o) {
			return []string{*o.Spec.Source.PersistentVolumeName}
		}
	}
	return nil
}

// queue is that of a controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// delayed has what a handler asks for looked at after a while, together with what changes until then.
func delayed(delay time.Duration, h handler.EventHandler) handler.EventHandler {
	if delay == 0 {
		return h
	}
	late := func(q queue) queue { return laterQueue{q, delay} }
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { h.Create(ctx, e, late(q)) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { h.Update(ctx, e, late(q)) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { h.Delete(ctx, e, late(q)) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { h.Generic(ctx, e, late(q)) },
	}
}

// laterQueue is a queue to which what changes is added after a while.
type laterQueue struct {
	queue
	after time.Duration
}

func (q laterQueue) Add(request reconcile.Request) { q.AddAfter(request, q.after) }

// changesApart is for how long changes on a node are looked at together: each of a hundred pods and attachments changes several times.
const changesApart = 100 * time.Millisecond

// changes calls to the nodes that changes of objects concern.
func (r *FailoverReconciler) changes() handler.EventHandler {
	return delayed(changesApart, handler.EnqueueRequestsFromMapFunc(r.nodeOf))
}

// nodeOf returns the node that a change of an object concerns, where a round waits for that: for the end of a pod that was deleted, and for
// what Kubernetes does with an attachment. What comes anew is seen by the next look.
func (r *FailoverReconciler) nodeOf(ctx context.Context, o client.Object) []reconcile.Request {
	node := ""
	switch o := o.(type) {
	case *corev1.Pod:
		if o.DeletionTimestamp == nil && !cluster.Ended(o) {
			return nil
		}
		node = o.Spec.NodeName
	case *storagev1.VolumeAttachment:
		node = o.Spec.NodeName
	}
	if slices.ContainsFunc(r.gather.watch.volumesOf(ctx, o), func(volume string) bool { return r.bell.holds(volume, node) }) {
		return []reconcile.Request{requestOf(node)}
	}
	return nil
}
