package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// silenceTaints keeps replacements of LINSTOR's pods away from silent nodes, which Kubernetes takes for ready for up to 50
// seconds. It is of one goroutine only.
type silenceTaints struct {
	client   client.Client
	live     client.Reader
	kubelets *cluster.Kubelets
	clock    clock.PassiveClock
	silence  time.Duration
	disabled bool
	// confirmed is when the cause of each taint was last seen, by node.
	confirmed map[string]time.Time
}

// keepAway sees that no new pod comes to the node.
func (s *silenceTaints) keepAway(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var node corev1.Node
		if err := s.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		if node.Spec.Unschedulable || takenOver(&node) || cluster.HasTaint(&node, cluster.TaintNodeSilent, "") {
			return nil
		}
		if s.disabled {
			return errors.New("--disable-node-taints forbids to keep the replacement away: waiting until Kubernetes calls the node unreachable")
		}
		before := node.DeepCopy()
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
		if err := s.patch(ctx, before, &node); err != nil {
			return fmt.Errorf("keeping pods away from node %s: %w", name, err)
		}
		s.log(ctx, "Tainted node", name, "its kubelet is silent")
		s.confirmed[name] = s.clock.Now()
		return nil
	})
}

// tidy takes the taint off every node whose kubelet is heard of again, that Kubernetes itself keeps pods away from by
// now, or of which nobody has known anything for so long that the taint has expired. The nodes may be the cache's own.
func (s *silenceTaints) tidy(ctx context.Context, nodes []corev1.Node) error {
	now := s.clock.Now()
	var errs []error
	for i := range nodes {
		node := &nodes[i]
		if !cluster.HasTaint(node, cluster.TaintNodeSilent, "") {
			delete(s.confirmed, node.Name)
			continue
		}
		known := s.kubelets.Node(node.Name)
		heard := known.LeaseFresh(failover.ForceSilence)
		if _, seen := s.confirmed[node.Name]; !seen || known.LeaseSilent(s.silence) {
			s.confirmed[node.Name] = now
		}
		if !heard && !takenOver(node) && now.Sub(s.confirmed[node.Name]) < keepAwayExpiry {
			continue
		}
		before := node
		node = node.DeepCopy() // it is the cache's own
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintNodeSilent })
		switch err := s.patch(ctx, before, node); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("letting pods return to node %s: %w", node.Name, err))
			continue
		}
		why := untaintedFor(true)
		if heard {
			why = "its kubelet is heard of again"
		} else if takenOver(node) {
			why = takenOverWhy
		}
		s.log(ctx, "Untainted node", node.Name, why)
	}
	return errors.Join(errs...)
}

// patch writes the taints. The list is replaced as a whole: the patch holds only against the version that was read.
func (s *silenceTaints) patch(ctx context.Context, before, node *corev1.Node) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return s.client.Patch(ctx, node, patch)
}

// log says what was written of a node's taint, and why.
func (*silenceTaints) log(ctx context.Context, message, node, why string) {
	ctrl.LoggerFrom(ctx).Info(message, "node", node, "taint", cluster.TaintNodeSilent, "effect", corev1.TaintEffectNoSchedule, "reason", why)
}
