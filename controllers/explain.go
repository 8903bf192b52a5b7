package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// waitList remembers the losses that nobody has acted on, by volume and node. It is the leader's: who leads next begins anew.
type waitList struct {
	mu    sync.Mutex
	nodes byVolume[*failover.Wait]
}

func newWaits() *waitList { return &waitList{nodes: make(byVolume[*failover.Wait])} }

// prune forgets every node of the volume that is not among the inputs.
func (w *waitList) prune(volume string, inputs []failover.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes.prune(volume, inputs)
}

// forget forgets one.
func (w *waitList) forget(volume, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes.remove(volume, node)
}

// observe tells what is to be said of a volume on a node. A pod that was told the same of another volume there, be it one of its own or
// another PersistentVolume of the same resource, is told no more.
func (w *waitList) observe(volume string, in failover.Input, d failover.Decision, failure string, pods []failover.Pod) failover.Word {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.nodes[volume][in.Node.Name]
	if known == nil {
		known = &failover.Wait{}
	}
	word := known.Observe(in, d, failure, pods)
	if len(word.Pods) > 0 {
		word.Pods = w.untold(volume, in.Node.Name, word)
	}
	if known.Over() {
		w.nodes.remove(volume, in.Node.Name)
		return word
	}
	w.nodes.put(volume, in.Node.Name, known)
	return word
}

// untold returns the pods of a word that were not told its reason of another volume on the node; the caller holds the lock.
func (w *waitList) untold(volume, node string, word failover.Word) []failover.Pod {
	pods := word.Pods
	for other, nodes := range w.nodes {
		if others := nodes[node]; other != volume && others != nil {
			pods = slices.DeleteFunc(pods, func(pod failover.Pod) bool { return others.Told(pod.UID, word.Reason) })
		}
	}
	return pods
}

// blocks returns why nothing is done about the loss of a volume on a node; empty where nobody was told so.
func (w *waitList) blocks(volume, node string) failover.Reason {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.nodes[volume][node]; wait != nil {
		return wait.Blocks()
	}
	return ""
}

// remembered lists them, as "volume v on node n".
func (w *waitList) remembered() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for volume, nodes := range w.nodes {
		for node := range nodes {
			all = append(all, fmt.Sprintf("volume %s on node %s", volume, node))
		}
	}
	slices.Sort(all)
	return all
}

// reporter says what was decided and done, to the log and in Events.
type reporter struct {
	linstor  Linstor
	inputs   cluster.Inputs
	recorder events.EventRecorder
	reports  *reports
	waits    *waitList
	verdicts *verdicts
}

// prune forgets every node of the volume that is not among the inputs.
func (r *reporter) prune(volume string, inputs []failover.Input) {
	r.reports.prune(volume, inputs)
	r.waits.prune(volume, inputs)
	r.verdicts.prune(volume, inputs)
}

// forget forgets a volume on a node.
func (r *reporter) forget(volume, node string) {
	r.reports.forget(volume, node)
	r.waits.forget(volume, node)
	r.verdicts.forget(volume, node)
}

// say says what was decided, when it is news, and why nothing is done about a loss; and when to look again for that.
func (r *reporter) say(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision, failed error,
) (after time.Duration) {
	r.report(ctx, pv, in, d)
	return r.explain(ctx, pv, in, d, failed)
}

// explain tells pods why nothing is done about the loss of their volume, once that is news, and when to look again. failed is why a step
// of the fail-over could not be taken; nil where none failed.
func (r *reporter) explain(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision, failed error,
) (after time.Duration) {
	pods, err := r.concerned(ctx, pv, in)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot look up whom the loss of a volume concerns", "volume", pv.Name)
		return retryLimit
	}
	failure := ""
	if failed != nil {
		failure = failed.Error()
	}
	word := r.waits.observe(pv.Name, in, d, failure, pods)
	if word.After > 0 && d.After == 0 {
		// Nobody has LINSTOR asked for what nothing can follow from, and its silence would pass for calm.
		r.linstor.Poll(in.Resource.Name)
	}
	if len(word.Pods) == 0 {
		return word.After
	}
	if d.Verdict != failover.Blocked || failed != nil { // of a gate, the decision has told the log
		ctrl.LoggerFrom(ctx).Info("Nothing is done about a loss", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
			"reason", word.Reason, "message", word.Message)
	}
	if d.Verdict == failover.NotLost || d.Verdict == failover.Undecided || failed != nil {
		r.reports.metrics.Blocked(word.Reason)
	}
	what := fmt.Sprintf("the pod stays on node %s with volume %s: ", in.Node.Name, pv.Name)
	switch {
	case len(in.Pods) == 0:
		what = fmt.Sprintf("the pod waits for volume %s on node %s: ", pv.Name, in.Node.Name)
	case len(selectedOf(in.Pods)) == 0:
		holder := in.Pods[0]
		what = fmt.Sprintf("the pod waits for volume %s, which pod %s/%s on node %s uses: ", pv.Name, holder.Namespace, holder.Name, in.Node.Name)
	}
	for _, pod := range word.Pods {
		r.event(podRef(pod), pvRef(pv), string(word.Reason), actionRefuse, what+word.Message)
	}
	return word.After
}

// concerned returns the selected pods on the node that use the volume or, where none of them is selected, those that wait for it on other nodes.
func (r *reporter) concerned(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) ([]failover.Pod, error) {
	if selected := selectedOf(in.Pods); len(selected) > 0 {
		return selected, nil
	}
	return r.inputs.Waiting(ctx, pv, in.Node.Name)
}

func selectedOf(pods []failover.Pod) (selected []failover.Pod) {
	for _, pod := range pods {
		if pod.Selected {
			selected = append(selected, pod)
		}
	}
	return selected
}
