package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// keepAwayExpiry is for how long a taint holds that nobody renews.
	keepAwayExpiry = 10 * time.Minute
	// keepAwayResources is how many causes are remembered; the taint of a node with more ends with those.
	keepAwayResources = 20
)

// keepAwayMark is the value of AnnotationKeepAway. The taint is ours only while it is there.
type keepAwayMark struct {
	Owner     string             `json:"owner"`
	Reason    failover.Reason    `json:"reason"`
	Effect    corev1.TaintEffect `json:"effect"`
	Resources []string           `json:"resources"`
	Since     time.Time          `json:"since"`
	Expires   time.Time          `json:"expires"`
}

// KeepAway taints nodes that have lost their storage, so that the scheduler does not place the replacement there
// again: Kubernetes itself takes a dead node for ready for up to 50 seconds.
type KeepAway struct {
	client      client.Client
	live        client.Reader
	volumes     cluster.Volumes
	attachments cluster.Attachments
	inputs      cluster.Inputs
	recorder    events.EventRecorder
	metrics     *metrics.Metrics
	owner       string
	disabled    bool
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=patch

// loss is a lost volume as it is a cause of a taint.
type loss struct {
	in failover.Input
	d  failover.Decision
}

// Ensure taints a node for the volumes that were lost there, unless that is switched off or the node takes no pods anyway.
func (k *KeepAway) Ensure(ctx context.Context, name string, losses []loss) error {
	if k.disabled {
		return nil
	}
	effect, err := k.effect(ctx, losses)
	if err != nil {
		return err
	}
	mark := k.mark(losses[0], effect)
	for _, l := range losses[1:] {
		mark = mark.with(k.mark(l, effect))
	}
	node, written, err := k.setTaint(ctx, name, mark)
	if err != nil {
		return fmt.Errorf("keeping pods away from node %s: %w", name, err)
	}
	volumes := make([]string, len(losses))
	for i, l := range losses {
		volumes[i] = l.in.Volume.Name
	}
	if written.any {
		logTaint(ctx, name, written, volumes, losses[0].d)
	}
	if written.first {
		k.recordTaint(node, volumes, losses[0].d)
	}
	return nil
}

// logTaint says what was written of a node's taint, and for which volumes.
func logTaint(ctx context.Context, node string, written taintWrite, volumes []string, d failover.Decision) {
	message := "Tainted node"
	if !written.taint {
		message = "Noted the cause of a taint" // it is there already, or that of Kubernetes is
	}
	ctrl.LoggerFrom(ctx).Info(message, "node", node, "taint", cluster.TaintLostQuorum, "effect", written.effect, "volumes", volumes,
		"reason", d.Reason, "message", d.Message)
}

// effect is the hardest that one of the losses calls for.
func (k *KeepAway) effect(ctx context.Context, losses []loss) (corev1.TaintEffect, error) {
	for _, l := range losses {
		others, err := k.otherStates(ctx, l.in)
		if err != nil {
			return "", err
		}
		state := l.d.State
		if state == failover.Unreachable && l.in.Node.LeaseFresh(failover.ForceSilence) {
			state = failover.Unknown // its kubelet lives: what the other volumes there say decides
		}
		if failover.KeepAwayEffect(state, others) == corev1.TaintEffectNoSchedule {
			return corev1.TaintEffectNoSchedule, nil
		}
	}
	return corev1.TaintEffectPreferNoSchedule, nil
}

func (k *KeepAway) mark(l loss, effect corev1.TaintEffect) keepAwayMark {
	return keepAwayMark{
		Owner: k.owner, Reason: l.d.Reason, Effect: effect, Resources: []string{l.in.Resource.Name},
		Since: l.in.Now.UTC(), Expires: l.in.Now.Add(keepAwayExpiry).UTC(),
	}
}

// taintWrite is what was written of a taint and its mark.
type taintWrite struct {
	// any is set where anything was, taint where the taint was, and first where the node was not tainted before.
	any, taint, first bool
	// effect is that of the taint.
	effect corev1.TaintEffect
}

// setTaint taints the node, and tells what it has written. That it cannot is no error where no pod comes there anyway. node is the node as
// it was read, nil where there is none.
func (k *KeepAway) setTaint(ctx context.Context, name string, mark keepAwayMark) (node *corev1.Node, written taintWrite, err error) {
	noted := false
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		node, noted, written = nil, false, taintWrite{}
		var read corev1.Node
		if err := k.live.Get(ctx, client.ObjectKey{Name: name}, &read); err != nil {
			return client.IgnoreNotFound(err)
		}
		node = read.DeepCopy()
		_, ours := markOf(node)
		noted = ours && (takenOver(node) || cluster.HasTaint(node, cluster.TaintLostQuorum, mark.Effect))
		written, err = k.taint(ctx, &read, mark)
		return err
	})
	// Where the taint is there, only a further cause of it was to be noted. While Kubernetes writes the node again and again
	// that can wait for another volume.
	if err == nil || noted && apierrors.IsConflict(err) {
		return node, written, nil
	}
	// A conflict passes, and with the mark our taint follows where that of Kubernetes leaves first.
	if node != nil && (node.Spec.Unschedulable || takenOver(node) && !apierrors.IsConflict(err)) {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot taint a node, to which no pods come anyway", "node", name)
		return node, written, nil
	}
	return node, written, err
}

// otherStates returns the states of the other volumes attached to the node.
func (k *KeepAway) otherStates(ctx context.Context, in failover.Input) ([]failover.State, error) {
	attachments, err := k.attachments.On(ctx, in.Node.Name)
	if err != nil {
		return nil, err
	}
	var states []failover.State
	for _, va := range attachments {
		name := *va.Spec.Source.PersistentVolumeName
		if name == in.Volume.Name {
			continue
		}
		pv, err := k.volumes.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if pv == nil {
			continue
		}
		states = append(states, failover.StateOf(failover.Input{
			Now: in.Now, Settings: in.Settings, Node: in.Node, Resource: k.inputs.Resource(k.volumes.Resource(pv)),
		}))
	}
	return states, nil
}

// taint sets the taint and its mark where they are not there yet, and tells what it has written.
func (k *KeepAway) taint(ctx context.Context, node *corev1.Node, mark keepAwayMark) (taintWrite, error) {
	before := node.DeepCopy()
	written := taintWrite{any: true}
	old, ours := markOf(node)
	if ours {
		mark = old.with(mark)
	} else if cluster.HasTaint(node, cluster.TaintLostQuorum, "") {
		return taintWrite{}, nil // set by somebody else, who will take it away
	}
	if !takenOver(node) && !cluster.HasTaint(node, cluster.TaintLostQuorum, mark.Effect) {
		written.taint, written.first = true, !cluster.HasTaint(node, cluster.TaintLostQuorum, "")
		setTaint(node, mark.Effect)
	} else if ours && mark.equal(old) {
		return taintWrite{}, nil
	}
	written.effect = mark.Effect
	if err := k.write(ctx, before, node, &mark); err != nil {
		return taintWrite{}, err
	}
	return written, nil
}

// with returns the mark with a further cause. A hard taint stays hard; an expiry is put off only when half of it is
// over, so that a node with many lost volumes is not written for each.
func (m keepAwayMark) with(cause keepAwayMark) keepAwayMark {
	resources := slices.Clone(m.Resources)
	for _, resource := range cause.Resources {
		if !slices.Contains(resources, resource) && len(resources) < keepAwayResources {
			resources = append(resources, resource)
		}
	}
	m.Resources = resources
	if m.Effect != corev1.TaintEffectNoSchedule {
		m.Effect = cause.Effect
	}
	if cause.Expires.Sub(m.Expires) > keepAwayExpiry/2 {
		m.Owner, m.Expires = cause.Owner, cause.Expires
	}
	return m
}

func (m keepAwayMark) equal(other keepAwayMark) bool {
	return m.Effect == other.Effect && m.Expires.Equal(other.Expires) && slices.Equal(m.Resources, other.Resources)
}

// write patches the node's taints and mark; a nil mark takes it away.
func (k *KeepAway) write(ctx context.Context, before, node *corev1.Node, mark *keepAwayMark) error {
	if mark == nil {
		delete(node.Annotations, cluster.AnnotationKeepAway)
	} else {
		text, err := json.Marshal(mark)
		if err != nil {
			return err
		}
		if node.Annotations == nil {
			node.Annotations = make(map[string]string)
		}
		node.Annotations[cluster.AnnotationKeepAway] = string(text)
	}
	// The list of taints is replaced as a whole: the patch holds only against the version that was read.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return k.client.Patch(ctx, node, patch)
}

func markOf(node *corev1.Node) (keepAwayMark, bool) {
	var mark keepAwayMark
	text, ok := node.Annotations[cluster.AnnotationKeepAway]
	if !ok {
		return mark, false
	}
	if err := json.Unmarshal([]byte(text), &mark); err != nil {
		return keepAwayMark{}, true // ours, and unreadable: it has expired
	}
	// Whoever may annotate nodes must not have us ask LINSTOR a thousand questions.
	mark.Resources = mark.Resources[:min(len(mark.Resources), keepAwayResources)]
	return mark, true
}

// takenOver tells whether Kubernetes itself keeps new pods away from the node by now. With the effect NoExecute alone its taint does not: most pods
// tolerate that for five minutes.
func takenOver(node *corev1.Node) bool {
	return cluster.HasTaint(node, corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
}

func setTaint(node *corev1.Node, effect corev1.TaintEffect) {
	clearTaint(node)
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: effect})
}

func clearTaint(node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintLostQuorum })
}
