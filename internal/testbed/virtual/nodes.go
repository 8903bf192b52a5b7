package virtual

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// monitorGrace is --node-monitor-grace-period of the controller manager.
const monitorGrace = 50 * time.Second

// nodeLifecycle taints nodes whose kubelets are silent.
type nodeLifecycle struct {
	*Cluster
	client client.Client
	seen   map[string]renewal
}

// renewal is a Lease's renewal and when it was first seen.
type renewal struct{ renewed, at time.Time }

func newNodeLifecycle(c *Cluster) *nodeLifecycle {
	return &nodeLifecycle{c, c.API.Client(ActorNodes), make(map[string]renewal)}
}

func (n *nodeLifecycle) sync(ctx context.Context) time.Duration {
	next := idle
	var leases coordinationv1.LeaseList
	_ = n.view.List(ctx, &leases, client.InNamespace(LeaseNamespace))
	for _, lease := range leases.Items {
		last := n.seen[lease.Name]
		if !last.renewed.Equal(lease.Spec.RenewTime.Time) {
			last = renewal{lease.Spec.RenewTime.Time, time.Now()}
			n.seen[lease.Name] = last
		}
		silence := time.Since(last.at)
		if silence < monitorGrace {
			next = min(next, monitorGrace-silence)
		}
		if !n.taint(ctx, lease.Name, silence >= monitorGrace) {
			next = min(next, again)
		}
	}
	return next
}

// taint sets or removes Kubernetes' own taints and tells whether that is done.
func (n *nodeLifecycle) taint(ctx context.Context, name string, unreachable bool) bool {
	var node corev1.Node
	if n.view.Get(ctx, client.ObjectKey{Name: name}, &node) != nil {
		return false
	}
	if !unreachable && isUnknown(&node) {
		return false // the kubelet has not said so yet
	}
	own := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }
	if slices.ContainsFunc(node.Spec.Taints, own) == unreachable {
		return true
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, own)
	if unreachable {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect})
		}
	}
	if n.client.Update(ctx, &node) != nil {
		return false
	}
	if !unreachable {
		return true
	}
	setReady(&node, corev1.ConditionUnknown)
	return n.client.Status().Update(ctx, &node) == nil
}

// isUnknown reports whether the node lifecycle controller has set the condition Ready, and the kubelet has not set it since.
func isUnknown(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// setReady sets the condition Ready of a node.
func setReady(node *corev1.Node, status corev1.ConditionStatus) {
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: status})
}
