package controllers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// answerTimeout is how long LINSTOR may take to answer a request that it answers from memory.
const answerTimeout = 3 * time.Second

// Recovery brings back LINSTOR itself if it was lost together with a node: no volume can be moved without the LINSTOR controller and the CSI
// controller, and Kubernetes takes minutes to start them elsewhere. It deletes their pods gracefully, and their ReplicaSets replace them. It keeps
// the replacements away from the lost node. It runs on the leader only.
type Recovery struct {
	shared

	spared func() map[string]bool // nodes, by their names in LINSTOR, that were taken out on purpose
	halt   *haltSwitch
	// selector selects the pods; nil means none.
	selector labels.Selector
	limit    failover.Limit
	timeout  time.Duration
	taints   *taints
	sight    *linstorSight

	// The following is of one goroutine only.

	patience  patience
	told      map[types.UID]failover.Reason // by pod
	replaced  map[types.UID]time.Time       // by owner
	tried     map[types.UID]time.Time       // by pod, when it was last to be deleted
	restarted map[types.UID]time.Time       // by owner: because LINSTOR was blind
	// begun is since when this process leads.
	begun time.Time
}

// look replaces the pods that are lost. While no kubelet is silent, it asks nobody.
func (r *Recovery) look(ctx context.Context) error {
	if r.begun.IsZero() {
		r.begun = r.clock.Now()
	}
	silent := r.kubelets.Silent(r.settings.KubeletSilence, math.MaxInt64)
	isSilent := func(node string) bool { return slices.Contains(silent, node) }
	if r.selector == nil || len(silent) == 0 || !slices.ContainsFunc(r.nodeNames(ctx), isSilent) {
		clear(r.told)
		clear(r.replaced)
		clear(r.tried)
		r.patience.limit = 0
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.replace(ctx)
}

// replace decides on each of the pods on silent nodes, after reading everything live.
func (r *Recovery) replace(ctx context.Context) error {
	blind, err := r.sight.proof(ctx)
	if err != nil {
		return err
	}
	if lost, err := r.lostWithNodes(ctx, blind); err != nil || len(lost) == 0 {
		return err
	}
	// A LINSTOR that is away does not answer in time. Everything else is read after that, and counts from when it was asked for.
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := r.linstor.Answers(asking) == nil
	now := r.clock.Now()
	lost, err := r.lostWithNodes(ctx, blind)
	if err != nil {
		return err
	}
	var names []string
	for i := range lost {
		names = append(names, lost[i].Spec.NodeName)
	}
	for _, name := range distinct(names) { // the cache may not have heard of a renewal yet
		if err := r.live.Lease(ctx, name); err != nil {
			return err
		}
	}
	var nodes corev1.NodeList
	if err := r.api.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	// After a deletion that takes long, what was read is too old for the other pods: the next time those come first.
	slices.SortStableFunc(lost, func(a, b corev1.Pod) int { return r.tried[a.UID].Compare(r.tried[b.UID]) })
	var errs []error // that of one pod keeps no other from being replaced
	for i := range lost {
		errs = append(errs, r.replaceOne(ctx, now, answers, blind, &lost[i], nodes.Items))
	}
	return errors.Join(errs...)
}

func (r *Recovery) replaceOne(ctx context.Context, now time.Time, answers bool, blind blindness, pod *corev1.Pod, nodes []corev1.Node) error {
	in, err := r.input(ctx, now, answers, pod, nodes)
	if err != nil {
		return err
	}
	in.Blind = blind.node
	d, until, cause := failover.Recover(in), now.Add(failover.ActAge), "a pod that every fail-over needs is lost with node"
	restart := in.Blind != "" && in.Pod.Controller
	switch {
	case restart: // its node is up: the replacement may come to it again
		cause = ""
		if blind.until.Before(until) {
			until = blind.until
		}
	case d.Verdict != failover.Lost:
	default:
		if err := r.taints.keepAwaySilent(ctx, pod.Spec.NodeName); err != nil {
			d.Verdict, d.Reason, d.Message = failover.Blocked, failover.KeepAwayFailed, err.Error()
			break
		}
		in = r.again(ctx, in, nodes, pod) // to taint the node may take long
		d = failover.Recover(in)
		if until = now.Add(2 * listAge); in.Now.Add(failover.ActAge).Before(until) { // what was read live is as old as the first request for it
			until = in.Now.Add(failover.ActAge)
		}
	}
	if d.Verdict != failover.Lost {
		r.tell(ctx, pod, d, actionRefuse, cause)
		return nil
	}
	deleted, err := r.remove(ctx, pod, d, until, cause)
	if owner := metav1.GetControllerOfNoCopy(pod); deleted && owner != nil {
		r.replaced[owner.UID] = now
		if restart {
			r.restarted[owner.UID] = now
		}
	}
	return err
}

// again returns the input of a decision with what is known now of the nodes, and what forbids all deletions now.
func (r *Recovery) again(ctx context.Context, in failover.Recovery, nodes []corev1.Node, pod *corev1.Pod) failover.Recovery {
	in.Halt = r.halt.now(ctx, haltAge)
	in.Now, in.Node = r.clock.Now(), r.inputs.Node(pod.Spec.NodeName)
	known, _ := r.linstor.Node(in.Node.Satellite)
	in.Online = known.Word()
	in.Nodes, in.OnlineNodes = r.online(in.Now)
	in.Silent, in.Kubelets = r.kubelets.Count(r.settings.KubeletSilence)
	in.ReadyNode = slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name != pod.Spec.NodeName && r.ready(ctx, &n, pod) })
	return in
}

// lostWithNodes lists the pods on nodes with a silent kubelet; if LINSTOR is blind, its controller's pod as well.
func (r *Recovery) lostWithNodes(ctx context.Context, blind blindness) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.api.List(ctx, &pods, client.MatchingLabelsSelector{Selector: r.selector}); err != nil {
		return nil, fmt.Errorf("listing the pods %s: %w", r.selector, err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		restart := blind.node != "" && isLinstorController(&p)
		return cluster.Ended(&p) || p.Spec.NodeName == "" || !restart && !r.kubelets.Node(p.Spec.NodeName).LeaseSilent(r.settings.KubeletSilence)
	}), nil
}

// input collects what the decision on one pod rests on.
func (r *Recovery) input(
	ctx context.Context, now time.Time, answers bool, pod *corev1.Pod, nodes []corev1.Node,
) (failover.Recovery, error) {
	in := r.again(ctx, failover.Recovery{Silence: r.settings.KubeletSilence, Answers: answers, Limit: r.limit}, nodes, pod)
	in.Pod.Attaches = attaches(pod)
	in.Pod.Leaving, in.Pod.Controller, in.Pod.Restarted = pod.DeletionTimestamp != nil, isLinstorController(pod), r.wasRestarted(pod, now)
	if owner := metav1.GetControllerOf(pod); owner != nil {
		in.Pod.Replaced = owner.Kind == "ReplicaSet"
		at, ok := r.replaced[owner.UID]
		in.Pod.Leaving = in.Pod.Leaving || ok && at != now && now.Sub(at) < r.settings.KubeletSilence
	}
	for _, claim := range cluster.ClaimsOf(pod) {
		bound, err := r.volumes.OfClaim(ctx, claim)
		if err != nil {
			return in, fmt.Errorf("finding the volume of claim %s: %w", claim, err)
		}
		// A claim without a volume may get one of ours.
		ours := func(pv *corev1.PersistentVolume) bool { return r.volumes.Resource(pv) != "" }
		if in.Pod.Storage == "" && (len(bound) == 0 || slices.ContainsFunc(bound, ours)) {
			in.Pod.Storage = claim
		}
	}
	return in, nil
}

// online counts LINSTOR's nodes, and those that it has called ONLINE in an answer that is fresh. Nodes without a satellite, and those that
// are evicted or being removed, are listed and never ONLINE: they are not counted.
func (r *Recovery) online(now time.Time) (nodes, online int) {
	spared := r.spared()
	for _, n := range r.linstor.Nodes() {
		if !n.Satellite || n.Leaving {
			continue
		}
		fact := n.Online
		is := fact.Known && fact.Value && now.Sub(fact.Confirmed) <= failover.MaxAge
		if is {
			online++
		}
		if is || !spared[n.Name] { // one that was taken out on purpose is not missing
			nodes++
		}
	}
	return nodes, online
}

// ready reports whether a node could run the pod: its kubelet is up, and the pod's affinity and tolerations allow the node. Kubernetes taints nodes
// that are not ready. The scheduler knows whether there is room.
func (r *Recovery) ready(ctx context.Context, node *corev1.Node, pod *corev1.Pod) bool {
	if node.Spec.Unschedulable || !r.kubelets.Node(node.Name).LeaseFresh(failover.ForceSilence) {
		return false
	}
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !fits {
		return false
	}
	return cluster.Untolerated(ctx, node, pod) == ""
}

// remove deletes a pod gracefully as it was in the live list, unless the decision is too old. It reports whether it did.
func (r *Recovery) remove(
	ctx context.Context, pod *corev1.Pod, d failover.Decision, until time.Time, cause string,
) (deleted bool, err error) {
	if !r.clock.Now().Before(until) {
		return false, nil
	}
	r.tried[pod.UID] = r.clock.Now()
	timed, done := r.patience.within(ctx, r.timeout)
	err = r.client.Delete(timed, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	done()
	r.patience.learn(errors.Is(err, context.DeadlineExceeded), r.timeout)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting pod %s: %w", cluster.Key(pod.Namespace, pod.Name), err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted pod of LINSTOR", "pod", cluster.Key(pod.Namespace, pod.Name), "node", pod.Spec.NodeName,
		"mode", failover.RemoveGracefully, "reason", d.Reason, "message", d.Message)
	r.metrics.Recovered()
	delete(r.told, pod.UID) // why it was left alone before may have had the same reason
	r.tell(ctx, pod, d, actionDelete, cause)
	return true, nil
}

// tell records an Event of what was decided on a pod if that is news. That nothing is lost is no news.
func (r *Recovery) tell(ctx context.Context, pod *corev1.Pod, d failover.Decision, action, cause string) {
	if d.Verdict == failover.NotLost || r.told[pod.UID] == d.Reason {
		return
	}
	r.told[pod.UID] = d.Reason
	if d.Verdict == failover.Blocked {
		ctrl.LoggerFrom(ctx).Info("Decided", "pod", cluster.Key(pod.Namespace, pod.Name), "node", pod.Spec.NodeName,
			"verdict", d.Verdict, "reason", d.Reason, "message", d.Message)
	}
	note := d.Message
	if action == actionDelete {
		note = "deleted gracefully: " + note
	}
	if cause != "" {
		note = cause + " " + pod.Spec.NodeName + ": " + note
	}
	r.event(podRef(pod.Namespace, pod.Name, pod.UID), nil, string(d.Reason), action, note)
}

// isLinstorController reports whether a pod is one of what the Piraeus Operator calls the LINSTOR controller.
func isLinstorController(pod *corev1.Pod) bool {
	return pod.Labels[cluster.ComponentLabel] == linstorController
}

// wasRestarted reports whether a pod, or the one that it replaces, may have been deleted lately because LINSTOR was blind. Another leader may have
// done that: any pod that is older than this leadership may be a replacement.
func (r *Recovery) wasRestarted(pod *corev1.Pod, now time.Time) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	created := pod.CreationTimestamp.Time // by the API server's clock: if that is off, LINSTOR is restarted once more, or ten minutes later
	at := r.restarted[owner.UID]
	// Several pods of one owner are deleted at the same time.
	return at != now && now.Sub(at) < failover.BlindRetry || created.Before(r.begun) && now.Sub(created) < failover.BlindRetry
}

// attaches reports whether a pod of LINSTOR itself is one of its CSI controller: there the CSI attacher stands beside the driver.
func attaches(pod *corev1.Pod) bool {
	if pod.Labels[cluster.ComponentLabel] == cluster.AttacherComponent {
		return true
	}
	for _, c := range pod.Spec.Containers {
		name, _, _ := strings.Cut(c.Image, "@")
		if base, _, _ := strings.Cut(path.Base(name), ":"); base == "csi-attacher" {
			return true
		}
	}
	return false
}
