package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

const (
	// taintExpiry is how long a taint stays that nobody renews.
	taintExpiry = 10 * time.Minute
	// taintResources is how many causes are remembered; the taint of a node with more ends with those.
	taintResources = 20
)

// Log messages.
const (
	wasTainted   = "Tainted node"
	wasUntainted = "Untainted node"
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

// taints owns our taints: lost-quorum on nodes that lost their storage, and node-silent on nodes whose silent kubelet ran a pod of LINSTOR.
// They keep the scheduler from placing the replacement there again, because Kubernetes takes a dead node for ready for up to 50 seconds.
// Each has a cause, an effect and an expiry. It is set when its cause appears and renewed while that lasts. It is removed when the cause is gone,
// when Kubernetes' own taint has taken over, or when nobody has confirmed the cause for taintExpiry.
type taints struct {
	shared

	owner    string
	disabled bool
	// agents returns why node agents of 1.x forbid to taint, which do that themselves; empty if they do not.
	agents func() string
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=patch

// change changes the taints of a node and their annotation, and returns the node as it was before; nil if there is none. The list of taints is
// replaced as a whole: the patch holds only against the version that was read. read is the node if the caller has read it; on a conflict it is read
// again.
func (t *taints) change(
	ctx context.Context, name string, read *corev1.Node, edit func(*corev1.Node) (changed bool, err error),
) (before *corev1.Node, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if before = read; before == nil {
			if before, err = t.live.Node(ctx, name); err != nil || before == nil {
				return err
			}
		}
		read = nil
		node := before.DeepCopy()
		if changed, err := edit(node); err != nil || !changed {
			return err
		}
		return t.client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	return before, err
}

// keepAway taints a node, as it was read, for the volumes that it lost, unless that is switched off or there is no such node. That it cannot is no
// error if no pod comes there anyway.
func (t *taints) keepAway(ctx context.Context, read *corev1.Node, lost []*volume) error {
	if t.disabled || read == nil {
		return nil
	}
	name := read.Name
	effect, err := t.effect(ctx, name, lost)
	if err != nil {
		return err
	}
	first := lost[0]
	cause := taintNote{
		Owner: t.owner, Reason: first.d.Reason, Effect: effect, Since: first.in.Now.UTC(), Expires: first.in.Now.Add(taintExpiry).UTC(),
	}
	var volumes []string
	for _, v := range lost {
		cause.Resources, volumes = append(cause.Resources, v.in.Resource.Name), append(volumes, v.pv.Name)
	}
	var note taintNote
	var done string
	node, err := t.change(ctx, name, read, func(node *corev1.Node) (changed bool, err error) {
		note, done, err = cause.addTo(node)
		return done != "", err
	})
	switch {
	case err != nil && cause.dispensable(node, err):
		ctrl.LoggerFrom(ctx).Error(err, "Cannot taint a node, to which no pods come anyway", "node", name)
		return nil
	case err != nil:
		return fmt.Errorf("keeping pods away from node %s: %w", name, err)
	case done == "":
		return nil
	}
	ctrl.LoggerFrom(ctx).Info(done, "node", name, "taint", cluster.TaintLostQuorum, "effect", note.Effect, "volumes", volumes,
		"reason", first.d.Reason, "message", first.d.Message)
	if done == wasTainted && !cluster.HasTaint(node, cluster.TaintLostQuorum, "") {
		t.metrics.Taint("set")
		t.event(nodeRef(node), nil, EventNodeLost, actionTaint,
			fmt.Sprintf("new pods are kept away from node %s, which lost %s: %s", name, named("volume", volumes), because(first.d)))
	}
	return nil
}

// addTo adds a cause of the taint lost-quorum to a node, and returns its note and what was done; empty if nothing had to be.
func (n taintNote) addTo(node *corev1.Node) (note taintNote, done string, err error) {
	old, ours := noteOf(node)
	switch note = old.with(n); {
	case !ours && cluster.HasTaint(node, cluster.TaintLostQuorum, ""):
		return note, "", nil // set by somebody else, who will take it away
	case !takenOver(node) && !cluster.HasTaint(node, cluster.TaintLostQuorum, note.Effect):
		setTaint(node, cluster.TaintLostQuorum, note.Effect)
		done = wasTainted
	case !ours || !note.equal(old):
		done = "Added the cause of a taint" // it is there already, or that of Kubernetes is
	default:
		return note, "", nil
	}
	return note, done, note.writeTo(node)
}

// dispensable reports whether pods are kept away from the node although the cause could not be added. A conflict passes, and with the annotation
// our taint follows if that of Kubernetes leaves first.
func (n taintNote) dispensable(node *corev1.Node, err error) bool {
	if node == nil {
		return false
	}
	kept := takenOver(node)
	if apierrors.IsConflict(err) {
		_, ours := noteOf(node)
		kept = ours && (kept || cluster.HasTaint(node, cluster.TaintLostQuorum, n.Effect))
	}
	return kept || node.Spec.Unschedulable
}

// effect returns the hardest effect that one of the losses calls for.
func (t *taints) effect(ctx context.Context, node string, lost []*volume) (corev1.TaintEffect, error) {
	attachments, err := t.attachments.On(ctx, node)
	if err != nil {
		return "", err
	}
	states, in := make(map[string]failover.State), lost[0].in // of all volumes that are attached there
	for _, va := range attachments {
		pv, err := t.volumes.Get(ctx, *va.Spec.Source.PersistentVolumeName)
		if err != nil {
			return "", err
		}
		if pv != nil {
			resource := t.inputs.Resource(t.volumes.Resource(pv))
			states[pv.Name] = failover.StateOf(failover.Input{Now: in.Now, Settings: in.Settings, Node: in.Node, Resource: resource})
		}
	}
	for _, v := range lost {
		state, others := v.d.State, maps.Clone(states)
		if state == failover.Unreachable && v.in.Node.LeaseFresh(failover.ForceSilence) {
			state = failover.Unknown // its kubelet is up: the other volumes there decide
		}
		delete(others, v.pv.Name)
		if failover.KeepAwayEffect(state, slices.Collect(maps.Values(others))) == corev1.TaintEffectNoSchedule {
			return corev1.TaintEffectNoSchedule, nil
		}
	}
	return corev1.TaintEffectPreferNoSchedule, nil
}

// keepAwaySilent taints a node whose kubelet is silent, unless no pod comes there anyway.
func (t *taints) keepAwaySilent(ctx context.Context, name string) error {
	takesPods := false
	_, err := t.change(ctx, name, nil, func(node *corev1.Node) (changed bool, err error) {
		takesPods = !node.Spec.Unschedulable && !takenOver(node) && !cluster.HasTaint(node, cluster.TaintNodeSilent, "")
		if takesPods && !t.disabled {
			setTaint(node, cluster.TaintNodeSilent, corev1.TaintEffectNoSchedule)
		}
		return takesPods && !t.disabled, nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("keeping pods away from node %s: %w", name, err)
	case takesPods && t.disabled:
		return errors.New("--disable-node-taints forbids to keep the replacement away: waiting until Kubernetes calls the node unreachable")
	case takesPods:
		logTaint(ctx, wasTainted, name, cluster.TaintNodeSilent, "its kubelet is silent")
	}
	return nil
}

// tidy renews the taints of a node and removes them with their cause, and returns when to check that again.
func (t *taints) tidy(ctx context.Context, name string, state *nodeState) (next time.Duration) {
	var node corev1.Node
	if err := t.cache.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		state.silenceSeen = time.Time{}
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
	if left := checkInterval - t.clock.Now().Sub(state.taintChecked); left > 0 {
		return left
	}
	state.taintChecked = t.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var reports []func()
	_, err := t.change(ctx, name, nil, func(node *corev1.Node) (changed bool, err error) {
		reports = nil
		for _, taint := range t.on(ctx, node, state) {
			report, err := t.tend(ctx, node, taint)
			if err != nil {
				return false, err
			}
			if report != nil {
				reports = append(reports, report)
			}
		}
		return len(reports) > 0, nil
	})
	if err != nil {
		t.metrics.Failed(metrics.StepUntaint, err)
		ctrl.LoggerFrom(ctx).Error(err, "Cannot tidy the taints of a node", "node", name)
		if isRefused(err) {
			state.taintChecked = t.clock.Now().Add(retryLimit - checkInterval)
		}
		return checkInterval
	}
	for _, report := range reports {
		report()
	}
	return checkInterval
}

// taint is one of our taints on a node.
type taint struct {
	key   string
	note  taintNote // of node-silent only what this process remembers
	cause failover.TaintCause
}

// on returns our taints on a node.
func (t *taints) on(ctx context.Context, node *corev1.Node, state *nodeState) (all []taint) {
	if note, ours := noteOf(node); ours {
		all = append(all, taint{cluster.TaintLostQuorum, note, t.causeOfLoss(ctx, node.Name, note, state)})
	}
	if cluster.HasTaint(node, cluster.TaintNodeSilent, "") {
		cause := t.causeOfSilence(node.Name, state)
		all = append(all, taint{cluster.TaintNodeSilent, taintNote{Expires: state.silenceSeen.Add(taintExpiry)}, cause})
	}
	return all
}

// tend renews or removes a taint. It returns how to report that; nil if nothing changes.
func (t *taints) tend(ctx context.Context, node *corev1.Node, taint taint) (report func(), err error) {
	note, now, tainted := taint.note, t.clock.Now(), cluster.HasTaint(node, taint.key, "")
	lasts := taint.cause == failover.TaintCauseLasts
	message, why := "Renewed taint of node", string(note.Reason)
	switch {
	case taint.cause == failover.TaintCauseGone, !lasts && !now.Before(note.Expires): // another clock may have written that
		return t.remove(ctx, node, taint), nil
	case taint.key == cluster.TaintLostQuorum && t.agents() != "":
		return nil, nil // they set the same taint, and it is not renewed
	case takenOver(node) && tainted:
		clearTaint(node, taint.key)
		message, why = wasUntainted, "Kubernetes itself keeps pods away by now"
	case !takenOver(node) && !tainted && !t.disabled:
		setTaint(node, taint.key, note.Effect)
		message = wasTainted
	case !lasts, note.Expires.Sub(now) > taintExpiry/2:
		return nil, nil
	}
	if taint.key == cluster.TaintNodeSilent {
		return func() { logTaint(ctx, message, node.Name, taint.key, why) }, nil
	}
	if note.Owner = t.owner; lasts {
		note.Expires = now.Add(taintExpiry).UTC()
	}
	return func() {
		logTaint(ctx, message, node.Name, taint.key, why, "resources", note.Resources, "effect", note.Effect)
	}, note.writeTo(node)
}

// remove removes a taint whose cause is gone, or that has expired, and returns how to report that.
func (t *taints) remove(ctx context.Context, node *corev1.Node, taint taint) (report func()) {
	clearTaint(node, taint.key)
	change, why, gone := "expired", "nobody has confirmed the cause for too long", taint.cause == failover.TaintCauseGone
	if taint.key == cluster.TaintNodeSilent {
		if gone {
			why = "its kubelet is heard of again"
		}
		return func() { logTaint(ctx, wasUntainted, node.Name, taint.key, why) }
	}
	if gone {
		change, why = "removed", "the node has its storage back"
	}
	delete(node.Annotations, cluster.AnnotationKeepAway)
	return func() {
		logTaint(ctx, wasUntainted, node.Name, taint.key, why, "resources", taint.note.Resources)
		t.metrics.Taint(change)
		t.recorder.Eventf(nodeRef(node), nil, corev1.EventTypeNormal, EventNodeRegained, actionUntaint, "%s", truncated(fmt.Sprintf(
			"new pods are no longer kept away from node %s, which had lost %s: %s", node.Name, named("resource", taint.note.Resources), why)))
	}
}

// causeOfSilence returns whether a node's kubelet is silent. If nobody knows, the taint expires.
func (t *taints) causeOfSilence(node string, state *nodeState) failover.TaintCause {
	known := t.kubelets.Node(node)
	if state.silenceSeen.IsZero() || known.LeaseSilent(t.settings.KubeletSilence) {
		state.silenceSeen = t.clock.Now()
	}
	if known.LeaseFresh(failover.ForceSilence) {
		return failover.TaintCauseGone
	}
	return failover.TaintCauseUnknown
}

// causeOfLoss returns whether the cause of the taint lost-quorum lasts. If LINSTOR cannot be asked, or does not know, it counts as lasting. If
// LINSTOR answers and does not list the node, it will never be known.
func (t *taints) causeOfLoss(ctx context.Context, node string, note taintNote, state *nodeState) failover.TaintCause {
	if t.leaving(ctx, node, note, state) || t.causeBy(node, nil) == failover.TaintCauseLasts {
		return failover.TaintCauseLasts // whatever LINSTOR shows of the resources
	}
	ctx, cancel := context.WithTimeout(ctx, failover.ActAge)
	defer cancel()
	causes, answered := make([]failover.TaintCause, len(note.Resources)), make([]bool, len(note.Resources))
	var reads sync.WaitGroup
	for i, name := range note.Resources {
		reads.Go(func() {
			err := safely.Do(func() error { _, err := t.linstor.Refresh(ctx, name, 0); return err })
			if answered[i] = err == nil || errors.Is(err, linstor.ErrNotFound); !answered[i] {
				ctrl.LoggerFrom(ctx).Info("Cannot ask LINSTOR about the cause of a taint", "node", node, "resource", name, "error", err.Error())
			}
			if known, ok := t.linstor.Resource(name); ok {
				causes[i] = t.causeBy(node, &known)
			} else { // LINSTOR no longer lists it
				causes[i] = t.causeBy(node, nil)
			}
		})
	}
	reads.Wait()
	if len(note.Resources) == 0 {
		causes = []failover.TaintCause{t.causeBy(node, nil)}
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
	return err != nil || slices.ContainsFunc(attachments, func(va storagev1.VolumeAttachment) bool {
		name, annotated := *va.Spec.Source.PersistentVolumeName, va.Annotations[cluster.AnnotationFailOver] != ""
		if v := state.volumes[name]; v != nil && v.progress.begun == va.UID {
			return true
		}
		if !annotated && va.DeletionTimestamp == nil {
			return false
		}
		pv, err := t.volumes.Get(ctx, name)
		return err != nil || pv != nil && (annotated || len(note.Resources) == taintResources ||
			slices.Contains(note.Resources, t.volumes.Resource(pv)))
	})
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
	if n.Since.IsZero() {
		n.Reason, n.Since = cause.Reason, cause.Since
	}
	if cause.Expires.Sub(n.Expires) > taintExpiry/2 {
		n.Owner, n.Expires = cause.Owner, cause.Expires
	}
	return n
}

func (n taintNote) equal(other taintNote) bool {
	return n.Effect == other.Effect && n.Expires.Equal(other.Expires) && slices.Equal(n.Resources, other.Resources)
}

func (n taintNote) writeTo(node *corev1.Node) error {
	text, err := json.Marshal(n)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, cluster.AnnotationKeepAway, string(text))
	return err
}

// noteOf returns the note of a node; false if the taint lost-quorum is not ours.
func noteOf(node *corev1.Node) (note taintNote, ours bool) {
	text, ours := node.Annotations[cluster.AnnotationKeepAway]
	if json.Unmarshal([]byte(text), &note) != nil {
		return taintNote{}, ours // unreadable: it has expired
	}
	// Anybody who may annotate nodes must not have us ask LINSTOR a thousand questions.
	note.Resources = note.Resources[:min(len(note.Resources), taintResources)]
	return note, ours
}

func logTaint(ctx context.Context, message, node, taint, why string, more ...any) {
	ctrl.LoggerFrom(ctx).Info(message, slices.Concat([]any{"node", node, "taint", taint}, more, []any{"reason", why})...)
}

// takenOver reports whether Kubernetes itself keeps new pods away from the node. With the effect NoExecute alone its taint does not: most pods
// tolerate that for five minutes.
func takenOver(node *corev1.Node) bool {
	return cluster.HasTaint(node, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
}

func setTaint(node *corev1.Node, key string, effect corev1.TaintEffect) {
	if effect != corev1.TaintEffectNoSchedule {
		effect = corev1.TaintEffectPreferNoSchedule // whatever an annotation says
	}
	clearTaint(node, key)
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
}

func clearTaint(node *corev1.Node, key string) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
