package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// shutdownTaint says that a node was switched off.
const shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"

// By these taints a person, or a cloud, says of a node that it does not run.
var (
	switchedOffTaint  = corev1.Taint{Key: shutdownTaint, Effect: corev1.TaintEffectNoSchedule}
	outOfServiceTaint = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	outForNewTaint    = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule}
)

// vouching is a taint of a node that says that it does not run.
type vouching struct{ node, key string }

// taint sets a taint by which somebody says that a node does not run, or takes it off.
func (w *world) taint(name string, taint corev1.Taint, on bool) {
	w.mu.Lock()
	at := vouching{name, taint.Key}
	switch {
	case !on:
		w.untainted[name] = time.Now()
		delete(w.vouchedAt, at)
	case w.vouchedAt[at].IsZero():
		w.vouchedAt[at] = time.Now()
	}
	w.mu.Unlock()
	w.retaint(name, taint, on)
}

// retaint sets a taint, or takes it off, whatever that means.
func (w *world) retaint(name string, taint corev1.Taint, on bool) {
	w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var node corev1.Node
		if err := w.oracle.Get(w.ctx, client.ObjectKey{Name: w.kube(name)}, &node); err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == taint.Key })
		if on {
			kept = append(kept, taint)
		}
		if slices.Equal(kept, node.Spec.Taints) {
			return nil
		}
		node.Spec.Taints = kept
		return w.Client().Update(w.ctx, &node)
	}))
}

// switchedOff tells whether somebody has said that the node was switched off: then there is no grace.
func (w *world) switchedOff(name string) bool { return w.hasTaint(name, shutdownTaint) }

// isOutOfService tells whether Kubernetes itself moves the pods of the node.
func (w *world) isOutOfService(name string) bool {
	return w.hasTaint(name, corev1.TaintNodeOutOfService)
}

// leftToKubernetes tells whether Kubernetes itself moves the pod: its node is out of service, and Kubernetes has missed it, or has not deleted the
// pod yet, which it never does where the pod tolerates that. Until it misses the node it does nothing else.
func (w *world) leftToKubernetes(pod *corev1.Pod, node string) bool {
	switch {
	case !w.isOutOfService(node):
		return false
	case pod.DeletionTimestamp == nil:
		return w.evicts(node) && len(pod.Spec.Tolerations) == 0 // who tolerates anything here tolerates all
	default:
		return w.hasTaint(node, corev1.TaintNodeUnreachable)
	}
}

// evicts tells whether Kubernetes deletes the pods of the node because it is out of service.
func (w *world) evicts(name string) bool {
	return slices.ContainsFunc(w.taints(name), func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService && t.Effect == corev1.TaintEffectNoExecute
	})
}

func (w *world) hasTaint(name, key string) bool {
	return slices.ContainsFunc(w.taints(name), func(t corev1.Taint) bool { return t.Key == key })
}

func (w *world) taints(name string) []corev1.Taint {
	var node corev1.Node
	w.must(w.oracle.Get(w.ctx, client.ObjectKey{Name: w.kube(name)}, &node))
	return node.Spec.Taints
}

// vouched tells whether somebody has said that the node does not run since it was last heard of, or did so until a moment ago.
func (w *world) vouched(name string) bool {
	w.mu.Lock()
	heard, until := w.renewed[name], w.untainted[name]
	said := func(key string) bool { return w.vouchedAt[vouching{name, key}].After(heard) }
	vouched := said(shutdownTaint) || said(corev1.TaintNodeOutOfService)
	w.mu.Unlock()
	return vouched || time.Since(until) <= failover.ActAge || w.heldSince(until)
}
