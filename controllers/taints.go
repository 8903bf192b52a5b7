package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// taintExpiry is how long a taint stays that nobody renews.
	taintExpiry = 10 * time.Minute
	// taintInterval is how often the cause of a taint is checked: a node that is well again may wait that long for pods.
	taintInterval = 5 * time.Second
	// taintResources is how many causes are remembered; the taint of a node with more ends with those.
	taintResources = 20
)

// taintNote is the value of AnnotationKeepAway. The taint lost-quorum is ours only while it is there.
type taintNote struct {
	Owner     string             `json:"owner"`
	Reason    failover.Reason    `json:"reason"`
	Effect    corev1.TaintEffect `json:"effect"`
	Resources []string           `json:"resources"`
	Since     time.Time          `json:"since"`
	Expires   time.Time          `json:"expires"`
}

// taints owns the taints of ours: lost-quorum on nodes that lost their storage, and node-silent on nodes whose silent kubelet ran a pod of
// LINSTOR. They keep the scheduler from placing the replacement there again, since Kubernetes takes a dead node for ready for up to 50 seconds.
// Each is set on its cause, renewed while that lasts, and removed when it is gone, when Kubernetes' own taint has taken over, or when nobody
// has confirmed it for taintExpiry.
type taints struct {
	client      client.Client
	cache, live client.Reader
	linstor     Linstor
	clock       clock.PassiveClock
	settings    failover.Settings
	kubelets    *cluster.Kubelets
	volumes     cluster.Volumes
	attachments cluster.Attachments
	inputs      cluster.Inputs
	recorder    events.EventRecorder
	metrics     *metrics.Metrics
	owner       string
	disabled    bool
	// agents returns why node agents of 1.x forbid to taint, which do that themselves; empty if they do not.
	agents func() string
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=patch

// keepAway taints a node for the volumes that it lost, unless that is switched off or the node takes no pods anyway.
func (t *taints) keepAway(ctx context.Context, name string, lost []*volume) error {
	if t.disabled {
		return nil
	}
	effect, err := t.effect(ctx, lost)
	if err != nil {
		return err
	}
	first := lost[0]
	note := taintNote{
		Owner: t.owner, Reason: first.d.Reason, Effect: effect, Since: first.in.Now.UTC(), Expires: first.in.Now.Add(taintExpiry).UTC(),
	}
	var volumes []string
	for _, v := range lost {
		note.Resources, volumes = append(note.Resources, v.in.Resource.Name), append(volumes, v.pv.Name)
	}
	node, written, err := t.set(ctx, name, note)
	if err != nil {
		return fmt.Errorf("keeping pods away from node %s: %w", name, err)
	}
	if written.any {
		message := "Tainted node"
		if !written.taint {
			message = "Added the cause of a taint" // it is there already, or that of Kubernetes is
		}
		ctrl.LoggerFrom(ctx).Info(message, "node", name, "taint", cluster.TaintLostQuorum, "effect", written.effect, "volumes", volumes,
			"reason", first.d.Reason, "message", first.d.Message)
	}
	if written.first {
		t.metrics.Taint("set")
		t.recorder.Eventf(nodeRef(node), nil, corev1.EventTypeWarning, EventNodeLost, actionTaint, "%s",
			truncated(fmt.Sprintf("new pods are kept away from node %s, which lost %s: %s", name, named("volume", volumes), because(first.d))))
	}
	return nil
}

// effect returns the hardest effect that one of the losses calls for.
func (t *taints) effect(ctx context.Context, lost []*volume) (corev1.TaintEffect, error) {
	for _, v := range lost {
		others, err := t.otherStates(ctx, v.in)
		if err != nil {
			return "", err
		}
		state := v.d.State
		if state == failover.Unreachable && v.in.Node.LeaseFresh(failover.ForceSilence) {
			state = failover.Unknown // its kubelet is up: the other volumes there decide
		}
		if failover.KeepAwayEffect(state, others) == corev1.TaintEffectNoSchedule {
			return corev1.TaintEffectNoSchedule, nil
		}
	}
	return corev1.TaintEffectPreferNoSchedule, nil
}

// otherStates returns the states of the other volumes attached to the node.
func (t *taints) otherStates(ctx context.Context, in failover.Input) ([]failover.State, error) {
	attachments, err := t.attachments.On(ctx, in.Node.Name)
	if err != nil {
		return nil, err
	}
	var states []failover.State
	for _, va := range attachments {
		name := *va.Spec.Source.PersistentVolumeName
		if name == in.Volume.Name {
			continue
		}
		pv, err := t.volumes.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if pv != nil {
			states = append(states, failover.StateOf(failover.Input{
				Now: in.Now, Settings: in.Settings, Node: in.Node, Resource: t.inputs.Resource(t.volumes.Resource(pv)),
			}))
		}
	}
	return states, nil
}

// taintWrite is what was written of a taint and its annotation.
type taintWrite struct {
	// any is set if anything was written, taint if the taint was, and first if the node was not tainted before.
	any, taint, first bool
	effect            corev1.TaintEffect
}

// set taints the node. That it cannot is no error if no pod comes there anyway. node is the node as it was read, nil if there is none.
func (t *taints) set(ctx context.Context, name string, note taintNote) (node *corev1.Node, written taintWrite, err error) {
	noted := false
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		node, noted, written = nil, false, taintWrite{}
		var read corev1.Node
		if err := t.live.Get(ctx, client.ObjectKey{Name: name}, &read); err != nil {
			return client.IgnoreNotFound(err)
		}
		node = read.DeepCopy()
		_, ours := noteOf(node)
		noted = ours && (takenOver(node) || cluster.HasTaint(node, cluster.TaintLostQuorum, note.Effect))
		written, err = t.add(ctx, &read, note)
		return err
	})
	// If the taint is there, only a further cause of it was to be added, which can wait for another volume.
	if err == nil || noted && apierrors.IsConflict(err) {
		return node, written, nil
	}
	// A conflict passes, and with the annotation our taint follows if that of Kubernetes leaves first.
	if node != nil && (node.Spec.Unschedulable || takenOver(node) && !apierrors.IsConflict(err)) {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot taint a node, to which no pods come anyway", "node", name)
		return node, written, nil
	}
	return node, written, err
}

// add sets the taint and its annotation if they are not there yet.
func (t *taints) add(ctx context.Context, node *corev1.Node, note taintNote) (taintWrite, error) {
	before := node.DeepCopy()
	written := taintWrite{any: true}
	old, ours := noteOf(node)
	switch {
	case ours:
		note = old.with(note)
	case cluster.HasTaint(node, cluster.TaintLostQuorum, ""):
		return taintWrite{}, nil // set by somebody else, who will take it away
	default:
		note = taintNote{Owner: note.Owner, Reason: note.Reason, Effect: note.Effect, Since: note.Since, Expires: note.Expires}.with(note)
	}
	if !takenOver(node) && !cluster.HasTaint(node, cluster.TaintLostQuorum, note.Effect) {
		written.taint, written.first = true, !cluster.HasTaint(node, cluster.TaintLostQuorum, "")
		setTaint(node, note.Effect)
	} else if ours && note.equal(old) {
		return taintWrite{}, nil
	}
	written.effect = note.Effect
	return written, t.write(ctx, before, node, &note)
}

// with returns the note with further causes. A hard taint stays hard; an expiry is put off only when half of it is over, so that a node with
// many lost volumes is not written for each.
func (n taintNote) with(cause taintNote) taintNote {
	n.Resources = slices.Clone(n.Resources)
	for _, resource := range cause.Resources {
		if !slices.Contains(n.Resources, resource) && len(n.Resources) < taintResources {
			n.Resources = append(n.Resources, resource)
		}
	}
	if n.Effect != corev1.TaintEffectNoSchedule {
		n.Effect = cause.Effect
	}
	if cause.Expires.Sub(n.Expires) > taintExpiry/2 {
		n.Owner, n.Expires = cause.Owner, cause.Expires
	}
	return n
}

func (n taintNote) equal(other taintNote) bool {
	return n.Effect == other.Effect && n.Expires.Equal(other.Expires) && slices.Equal(n.Resources, other.Resources)
}

// keepAwaySilent keeps new pods away from a node whose kubelet is silent.
func (t *taints) keepAwaySilent(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var node corev1.Node
		if err := t.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return client.IgnoreNotFound(err)
		}
		if node.Spec.Unschedulable || takenOver(&node) || cluster.HasTaint(&node, cluster.TaintNodeSilent, "") {
			return nil
		}
		if t.disabled {
			return errors.New("--disable-node-taints forbids to keep the replacement away: waiting until Kubernetes calls the node unreachable")
		}
		before := node.DeepCopy()
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
		if err := t.patch(ctx, before, &node); err != nil {
			return fmt.Errorf("keeping pods away from node %s: %w", name, err)
		}
		logTaint(ctx, "Tainted node", name, cluster.TaintNodeSilent, "its kubelet is silent")
		return nil
	})
}

// tidy renews the taints of a node and removes them with their cause, and returns when to check that again.
func (t *taints) tidy(ctx context.Context, name string, state *nodeState) (next time.Duration) {
	var node corev1.Node
	if err := t.cache.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return 0 // a node that is gone has no taints
	}
	_, ours := noteOf(&node)
	silent := cluster.HasTaint(&node, cluster.TaintNodeSilent, "")
	if !silent {
		state.silenceSeen = time.Time{}
	}
	if !ours && !silent {
		return 0
	}
	if left := taintInterval - t.clock.Now().Sub(state.taintChecked); left > 0 {
		return left
	}
	state.taintChecked = t.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var errs []error
	if ours {
		errs = append(errs, t.tidyLostQuorum(ctx, name, state))
	}
	if silent {
		errs = append(errs, t.tidySilent(ctx, name, state))
	}
	if err := errors.Join(errs...); err != nil {
		t.metrics.Failed(metrics.StepUntaint, err)
		ctrl.LoggerFrom(ctx).Error(err, "Cannot tidy the taints of a node", "node", name)
	}
	return taintInterval
}

// tidyLostQuorum renews or removes the taint lost-quorum.
func (t *taints) tidyLostQuorum(ctx context.Context, name string, state *nodeState) error {
	var node corev1.Node
	if err := t.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	note, ours := noteOf(&node)
	if !ours {
		return nil
	}
	cause := t.cause(ctx, name, note, state)
	before, now := node.DeepCopy(), t.clock.Now()
	message, why := "Renewed taint of node", string(note.Reason)
	switch tainted := cluster.HasTaint(&node, cluster.TaintLostQuorum, ""); {
	case cause == failover.TaintCauseGone, now.After(note.Expires):
		clearTaint(&node, cluster.TaintLostQuorum)
		if err := t.write(ctx, before, &node, nil); err != nil {
			return fmt.Errorf("letting pods return to node %s: %w", name, err)
		}
		t.untainted(ctx, &node, note.Resources, cause != failover.TaintCauseGone)
		return nil
	case t.agents() != "":
		return nil // which set the same taint: it expires if its cause does not end
	case takenOver(&node) && tainted:
		clearTaint(&node, cluster.TaintLostQuorum)
		message, why = "Untainted node", takenOverWhy
	case !takenOver(&node) && !tainted && !t.disabled:
		setTaint(&node, note.Effect)
		message = "Tainted node"
	case cause != failover.TaintCauseLasts, note.Expires.Sub(now) > taintExpiry/2:
		return nil
	}
	if note.Owner = t.owner; cause == failover.TaintCauseLasts {
		note.Expires = now.Add(taintExpiry).UTC()
	}
	if err := t.write(ctx, before, &node, &note); err != nil {
		return fmt.Errorf("renewing the taint of node %s: %w", name, err)
	}
	logTaint(ctx, message, name, cluster.TaintLostQuorum, why, "resources", note.Resources, "effect", note.Effect)
	return nil
}

// tidySilent removes the taint node-silent once the kubelet is heard of again, Kubernetes keeps pods away itself, or nobody has known anything
// of the kubelet for too long.
func (t *taints) tidySilent(ctx context.Context, name string, state *nodeState) error {
	known, now := t.kubelets.Node(name), t.clock.Now()
	if state.silenceSeen.IsZero() || known.LeaseSilent(t.settings.KubeletSilence) {
		state.silenceSeen = now
	}
	var node corev1.Node
	if err := t.live.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	why := ""
	switch {
	case known.LeaseFresh(failover.ForceSilence):
		why = "its kubelet is heard of again"
	case takenOver(&node):
		why = takenOverWhy
	case now.Sub(state.silenceSeen) >= taintExpiry:
		why = untaintedFor(true)
	default:
		return nil
	}
	before := node.DeepCopy()
	clearTaint(&node, cluster.TaintNodeSilent)
	if err := t.patch(ctx, before, &node); err != nil {
		return fmt.Errorf("letting pods return to node %s: %w", name, err)
	}
	logTaint(ctx, "Untainted node", name, cluster.TaintNodeSilent, why)
	return nil
}

// cause returns whether the cause of the taint lasts. If LINSTOR cannot be asked, or does not know, it counts as lasting; if LINSTOR answers and
// does not list the node, it is unknown for good.
func (t *taints) cause(ctx context.Context, node string, note taintNote, state *nodeState) failover.TaintCause {
	if t.leaving(ctx, node, note, state) {
		return failover.TaintCauseLasts
	}
	ctx, cancel := context.WithTimeout(ctx, linstorTimeout)
	defer cancel()
	causes, answered := make([]failover.TaintCause, len(note.Resources)), make([]bool, len(note.Resources))
	var reads sync.WaitGroup
	for i, name := range note.Resources {
		reads.Go(func() {
			var fresh failover.Resource
			err := safely(func() (err error) { fresh, err = t.linstor.Refresh(ctx, name, 0); return err })
			if answered[i] = err == nil || errors.Is(err, linstor.ErrNotFound); !answered[i] {
				ctrl.LoggerFrom(ctx).Info("Cannot ask LINSTOR about the cause of a taint", "node", node, "resource", name, "error", err.Error())
			}
			if err == nil {
				causes[i] = t.causeBy(node, &fresh)
			} else if known, ok := t.linstor.Resource(name); ok {
				causes[i] = t.causeBy(node, &known)
			} else { // LINSTOR no longer lists it
				causes[i] = t.causeBy(node, nil)
			}
		})
	}
	reads.Wait()
	if len(note.Resources) == 0 {
		causes = append(causes, t.causeBy(node, nil))
	}
	_, listed := t.linstor.Node(t.kubelets.Satellite(node))
	switch {
	case slices.Contains(causes, failover.TaintCauseLasts):
		return failover.TaintCauseLasts
	case !slices.Contains(causes, failover.TaintCauseUnknown):
		return failover.TaintCauseGone
	case listed || !slices.Contains(answered, true):
		return failover.TaintCauseLasts // LINSTOR will report again
	}
	return failover.TaintCauseUnknown
}

func (t *taints) causeBy(node string, resource *failover.Resource) failover.TaintCause {
	known := t.inputs.Node(node)
	satellite, _ := t.linstor.Node(known.Satellite)
	return failover.TaintCauseOf(t.clock.Now(), known, t.settings, satellite.Word(), resource)
}

// leaving reports whether a volume is still being moved off the node. Until that is done no pod must return there, even if the node itself could
// use the volume again: the attachment would be taken from under it. An attachment that hangs in its deletion for other reasons, or whose volume
// is gone, must not hold the taint for ever.
func (t *taints) leaving(ctx context.Context, node string, note taintNote, state *nodeState) bool {
	attachments, err := t.attachments.On(ctx, node)
	if err != nil {
		return true
	}
	for _, va := range attachments {
		name := *va.Spec.Source.PersistentVolumeName
		if v := state.volumes[name]; v != nil && v.begunBy() == va.UID {
			return true
		}
		annotated := va.Annotations[cluster.AnnotationFailOver] != ""
		if !annotated && va.DeletionTimestamp == nil {
			continue
		}
		pv, err := t.volumes.Get(ctx, name)
		if err != nil || pv != nil && (annotated || len(note.Resources) == taintResources ||
			slices.Contains(note.Resources, t.volumes.Resource(pv))) {
			return true
		}
	}
	return false
}

// write patches the node's taints and the annotation; a nil note takes that away.
func (t *taints) write(ctx context.Context, before, node *corev1.Node, note *taintNote) error {
	if note == nil {
		delete(node.Annotations, cluster.AnnotationKeepAway)
		return t.patch(ctx, before, node)
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if node.Annotations == nil {
		node.Annotations = make(map[string]string)
	}
	node.Annotations[cluster.AnnotationKeepAway] = string(text)
	return t.patch(ctx, before, node)
}

// patch writes a node. The list of taints is replaced as a whole: the patch holds only against the version that was read.
func (t *taints) patch(ctx context.Context, before, node *corev1.Node) error {
	return t.client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// untainted reports that the taint lost-quorum was taken off, for which those resources were the cause.
func (t *taints) untainted(ctx context.Context, node *corev1.Node, resources []string, expired bool) {
	change, why := "removed", untaintedFor(expired)
	if expired {
		change = "expired"
	}
	logTaint(ctx, "Untainted node", node.Name, cluster.TaintLostQuorum, why, "resources", resources)
	t.metrics.Taint(change)
	t.recorder.Eventf(nodeRef(node), nil, corev1.EventTypeNormal, EventNodeRegained, actionUntaint, "%s",
		truncated(fmt.Sprintf("new pods are no longer kept away from node %s, which had lost %s: %s", node.Name, named("resource", resources), why)))
}

func logTaint(ctx context.Context, message, node, taint, why string, more ...any) {
	ctrl.LoggerFrom(ctx).Info(message, slices.Concat([]any{"node", node, "taint", taint}, more, []any{"reason", why})...)
}

// takenOverWhy is the log text for a node that Kubernetes itself keeps pods away from.
const takenOverWhy = "Kubernetes itself keeps pods away by now"

// untaintedFor returns the log text for a taint that has expired, or whose cause is gone.
func untaintedFor(expired bool) string {
	if expired {
		return "nobody has confirmed the cause for too long"
	}
	return "the node has its storage back"
}

func noteOf(node *corev1.Node) (taintNote, bool) {
	var note taintNote
	text, ok := node.Annotations[cluster.AnnotationKeepAway]
	if !ok {
		return note, false
	}
	if err := json.Unmarshal([]byte(text), &note); err != nil {
		return taintNote{}, true // ours, and unreadable: it has expired
	}
	// Whoever may annotate nodes must not have us ask LINSTOR a thousand questions.
	note.Resources = note.Resources[:min(len(note.Resources), taintResources)]
	return note, true
}

// takenOver reports whether Kubernetes itself keeps new pods away from the node. With the effect NoExecute alone its taint does not: most pods
// tolerate that for five minutes.
func takenOver(node *corev1.Node) bool {
	return cluster.HasTaint(node, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
}

func setTaint(node *corev1.Node, effect corev1.TaintEffect) {
	if effect != corev1.TaintEffectNoSchedule {
		effect = corev1.TaintEffectPreferNoSchedule // whatever an annotation says
	}
	clearTaint(node, cluster.TaintLostQuorum)
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: effect})
}

func clearTaint(node *corev1.Node, key string) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
