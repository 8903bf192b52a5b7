package virtual

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectPeriod is how often the garbage collector of pods looks.
const collectPeriod = 20 * time.Second

// outOfService does what follows when a person has given a node Kubernetes' taint of that name: the taint eviction deletes its pods, by
// name, and the garbage collector of pods ends those that do not go, once the node is not ready. The attach/detach controller no longer
// waits for the node.
type outOfService struct {
	*Cluster
	client    client.Client
	collected time.Time
}

func newOutOfService(c *Cluster) *outOfService {
	return &outOfService{Cluster: c, client: c.API.Client(ActorEviction), collected: time.Now()}
}

func (o *outOfService) sync(ctx context.Context) time.Duration {
	var nodes corev1.NodeList
	_ = o.view.List(ctx, &nodes)
	collects := time.Since(o.collected) >= collectPeriod
	if collects {
		o.collected = time.Now()
	}
	next := idle
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !isOutOfService(node) {
			continue
		}
		next = again
		var pods corev1.PodList
		_ = o.view.List(ctx, &pods, client.MatchingFields{nodeField: node.Name})
		for j := range pods.Items {
			o.end(ctx, &pods.Items[j], evicts(node), collects && !isReady(node))
		}
	}
	return next
}

// end deletes a pod that does not tolerate the taint, and ends one that is being deleted where the node cannot.
func (o *outOfService) end(ctx context.Context, pod *corev1.Pod, evicts, collects bool) {
	switch {
	case pod.DeletionTimestamp != nil && collects:
		_ = o.client.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0))
	case evicts && pod.DeletionTimestamp == nil && len(pod.Spec.Tolerations) == 0: // who tolerates anything here tolerates all
		_ = o.client.Delete(ctx, pod.DeepCopy())
	}
}

// isOutOfService tells whether a person has said so of the node of that name.
func (c *Cluster) isOutOfService(ctx context.Context, name string) bool {
	var node corev1.Node
	return c.view.Get(ctx, client.ObjectKey{Name: name}, &node) == nil && isOutOfService(&node)
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// evicts tells whether the taint evicts pods: garbage collection and attach/detach controller do not ask for its effect, taint eviction does.
func evicts(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Effect == corev1.TaintEffectNoExecute
	})
}

// isReady tells whether Kubernetes takes the node for ready.
func isReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}
