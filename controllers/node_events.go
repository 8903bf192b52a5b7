package controllers

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// changesApart is how long changes of pods and attachments are collected: a hundred pods that fail over change a dozen times each.
	changesApart = 100 * time.Millisecond
	// silenceInterval is how often kubelets are checked for silence.
	silenceInterval = time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list;watch

func (r *NodeReconciler) setup(mgr ctrl.Manager, options controller.Options) error {
	options.NeedLeaderElection = new(false)
	options.ReconciliationTimeout = 0 // each request has its own
	return ctrl.NewControllerManagedBy(mgr).Named("node").WithOptions(options).
		Watches(&corev1.Node{}, r.enqueues(0, func(_ context.Context, o client.Object) []string { return []string{o.GetName()} }),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: concernsNode})).
		Watches(&corev1.PersistentVolume{}, r.enqueues(changesApart, func(ctx context.Context, o client.Object) []string {
			return r.nodesOf(ctx, o.GetName())
		})).
		Watches(&corev1.Pod{}, r.enqueues(changesApart, r.nodesOfPod)).
		Watches(&storagev1.VolumeAttachment{}, r.enqueues(changesApart, r.nodesOfAttachment)).
		WatchesRawSource(r.storeChanges()).
		WatchesRawSource(r.silences()).
		WatchesRawSource(source.Func(r.leader.enqueues)).
		Complete(r)
}

// concernsNode reports whether a change of a Node concerns a decision. Kubernetes writes the status of a lost node for each volume that it
// detaches.
func concernsNode(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.Annotations[cluster.AnnotationKeepAway] != after.Annotations[cluster.AnnotationKeepAway] ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// enqueues returns a handler that enqueues the nodes that an object concerns after a while.
func (r *NodeReconciler) enqueues(after time.Duration, nodes func(context.Context, client.Object) []string) handler.EventHandler {
	add := func(ctx context.Context, q queue, o client.Object) {
		for _, node := range nodes(ctx, o) {
			r.changed.addAll(node)
			q.AddAfter(requestFor(node), after)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: node}}
}

// nodesOfPod returns the nodes that a change of a pod concerns: its own, and those to which its volumes are attached.
func (r *NodeReconciler) nodesOfPod(ctx context.Context, o client.Object) []string {
	pod := o.(*corev1.Pod)
	volumes, err := r.volumes.OfPod(ctx, pod)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a pod in the cache", "pod", cluster.Key(pod.Namespace, pod.Name))
	}
	if len(volumes) == 0 {
		return nil
	}
	nodes := []string{pod.Spec.NodeName}
	for _, volume := range volumes {
		nodes = append(nodes, r.attachedTo(ctx, volume)...)
	}
	return distinct(nodes)
}

// nodesOfAttachment returns the nodes that a change of an attachment concerns: its own, and the others to which the volume is attached.
func (r *NodeReconciler) nodesOfAttachment(ctx context.Context, o client.Object) []string {
	va := o.(*storagev1.VolumeAttachment)
	if !r.attachments.Ours(va) {
		return nil
	}
	return distinct(append(r.attachedTo(ctx, *va.Spec.Source.PersistentVolumeName), va.Spec.NodeName))
}

// nodesOf returns the nodes with an attachment or a pod of a volume, and those from which a fail-over of it is in progress.
func (r *NodeReconciler) nodesOf(ctx context.Context, volume string) []string {
	nodes := r.attachedTo(ctx, volume)
	if pv, err := r.volumes.Get(ctx, volume); err == nil && pv != nil {
		pods, err := r.pods.Of(ctx, pv)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the pods of a volume in the cache", "volume", volume)
		}
		for i := range pods {
			nodes = append(nodes, pods[i].Spec.NodeName)
		}
	}
	return distinct(nodes)
}

// attachedTo returns the nodes to which a volume is attached, and those from which a fail-over of it is in progress.
func (r *NodeReconciler) attachedTo(ctx context.Context, volume string) []string {
	nodes := r.reports.movingFrom(volume)
	attachments, err := r.attachments.Of(ctx, volume)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the attachments of a volume in the cache", "volume", volume)
	}
	for i := range attachments {
		nodes = append(nodes, attachments[i].Spec.NodeName)
	}
	return nodes
}

// distinct returns each name once, without the empty one.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// storeChanges enqueues the nodes that a change in the store concerns, with the volumes. The change itself is not carried.
func (r *NodeReconciler) storeChanges() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		unsubscribe := r.linstor.Subscribe(func(resource string) {
			volumes, err := r.volumes.OfResource(ctx, resource)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a resource in the cache", "resource", resource)
			}
			for _, volume := range volumes {
				for _, node := range r.nodesOf(ctx, volume) {
					r.changed.add(node, volume)
					q.Add(requestFor(node))
				}
			}
		})
		context.AfterFunc(ctx, unsubscribe)
		return nil
	})
}

// silences enqueues the nodes whose kubelet has fallen silent, which no event reports.
func (r *NodeReconciler) silences() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		check := periodic{name: "silence", every: silenceInterval, do: func(context.Context) error {
			for _, span := range []time.Duration{failover.ForceSilence, r.settings.KubeletSilence} {
				for _, node := range r.kubelets.Silent(span, span+2*silenceInterval) {
					r.changed.addAll(node)
					q.Add(requestFor(node))
				}
			}
			return nil
		}}
		go func() { _ = check.Start(ctx) }()
		return nil
	})
}

// leadership knows whether this process leads. It is a runnable of the leader.
type leadership struct {
	nodes   func(ctx context.Context) []string // to reconcile when this process begins to lead
	changed *changedVolumes
	queue   atomic.Pointer[queue]
	ctx     atomic.Pointer[context.Context] // of the leadership; nil before it
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*leadership) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (l *leadership) Start(ctx context.Context) error {
	l.ctx.Store(&ctx)
	if q := l.queue.Load(); q != nil {
		for _, node := range l.nodes(ctx) {
			l.changed.addAll(node)
			(*q).Add(requestFor(node))
		}
	}
	<-ctx.Done()
	return nil
}

func (l *leadership) enqueues(_ context.Context, q queue) error {
	l.queue.Store(&q)
	return nil
}

// while returns a context that ends when this process ceases to lead; false if it does not lead.
func (l *leadership) while(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	ctx, cancel := context.WithCancel(ctx)
	leads := l.ctx.Load()
	if leads == nil || (*leads).Err() != nil {
		return ctx, cancel, false
	}
	stop := context.AfterFunc(*leads, cancel)
	return ctx, func() { stop(); cancel() }, true
}
