package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// watchVolumes has a controller look at a PersistentVolume when it, a selected pod, an attachment or LINSTOR's word on its resource
// changes. What changes of pods and attachments within lookAfterPods, and of LINSTOR's word within lookAfter, is looked at together.
func watchVolumes(b *ctrl.Builder, g *gatherer) *ctrl.Builder {
	return b.
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.Pod{}, g.later(handler.EnqueueRequestsFromMapFunc(g.volumesOfPod))).
		Watches(&storagev1.VolumeAttachment{}, g.later(handler.EnqueueRequestsFromMapFunc(g.volumesOfAttachment))).
		WatchesRawSource(g.doorbell())
}

// queue is that of a controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// later has what a handler asks for looked at after lookAfterPods.
func (g *gatherer) later(h handler.EventHandler) handler.EventHandler {
	return delayed(g.lookAfterPods, h)
}

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

// doorbell rings for the volumes of a resource when LINSTOR's word on it changes. The change itself is not carried:
// who answers reads the store.
func (g *gatherer) doorbell() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		unsubscribe := g.linstor.Subscribe(func(resource string) {
			for _, request := range g.volumesOfResource(ctx, resource) {
				q.AddAfter(request, g.lookAfter)
			}
		})
		context.AfterFunc(ctx, unsubscribe)
		return nil
	})
}

func (g *gatherer) volumesOfResource(ctx context.Context, resource string) []reconcile.Request {
	return g.requests(ctx, client.MatchingFields{indexVolumeResource: strings.ToLower(resource)})
}

func (g *gatherer) volumesOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, claim := range claimsOf(pod) {
		bound, err := g.volumesOfClaim(ctx, claim)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a claim in the cache", "claim", claim)
		}
		for _, pv := range bound {
			if g.isOurs(pv) {
				requests = append(requests, g.requests(ctx, client.MatchingFields{indexVolumeHandle: handleOf(pv)})...)
			}
		}
	}
	return requests
}

func (g *gatherer) volumesOfAttachment(_ context.Context, o client.Object) []reconcile.Request {
	va, ok := o.(*storagev1.VolumeAttachment)
	if !ok || va.Spec.Attacher != g.driver || va.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: *va.Spec.Source.PersistentVolumeName}}}
}

func (g *gatherer) requests(ctx context.Context, fields client.MatchingFields) []reconcile.Request {
	var volumes corev1.PersistentVolumeList
	if err := g.cache.List(ctx, &volumes, fields, shared); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot look volumes up in the cache", "fields", fields)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(volumes.Items))
	for i := range volumes.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&volumes.Items[i])})
	}
	return requests
}

// changesApart is for how long changes on a node are looked at together: each of a hundred pods and attachments changes several times.
const changesApart = 100 * time.Millisecond

// changes calls to the nodes that changes of objects concern.
func (r *FailoverReconciler) changes() handler.EventHandler {
	return delayed(changesApart, handler.EnqueueRequestsFromMapFunc(r.nodeOf))
}

// nodeOf returns the node that a change of an object concerns, where a round waits for that: for the end of a pod that was deleted, and for
// what Kubernetes does with an attachment. What comes anew is seen by the next look.
func (r *FailoverReconciler) nodeOf(ctx context.Context, o client.Object) []reconcile.Request {
	var volumes []reconcile.Request
	node := ""
	switch o := o.(type) {
	case *corev1.Pod:
		if o.DeletionTimestamp == nil && !ended(o) {
			return nil
		}
		node, volumes = o.Spec.NodeName, r.volumesOfPod(ctx, o)
	case *storagev1.VolumeAttachment:
		node, volumes = o.Spec.NodeName, r.volumesOfAttachment(ctx, o)
	}
	if slices.ContainsFunc(volumes, func(v reconcile.Request) bool { return r.bell.holds(v.Name, node) }) {
		return []reconcile.Request{requestOf(node)}
	}
	return nil
}
