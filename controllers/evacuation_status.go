package controllers

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// noteProgress writes the annotation of a node where it says something else; nil takes it away.
func (r *EvacuationReconciler) noteProgress(ctx context.Context, node *corev1.Node, progress *evacuation.Progress) error {
	text, noted := node.Annotations[cluster.AnnotationEvacuation]
	var value any // null takes it away
	switch {
	case progress == nil && !noted, progress != nil && noted && text == progress.String():
		return nil
	case progress != nil:
		value = progress.String()
	}
	version := ""
	if !noted { // of two installations that begin at once, one fails
		version = node.ResourceVersion
	}
	patch := mergePatch(node.UID, version, map[string]any{cluster.AnnotationEvacuation: value}, nil)
	if err := r.client.Patch(ctx, target(node), patch); err != nil {
		return fmt.Errorf("noting the evacuation of node %s: %w", node.Name, err)
	}
	delete(node.Annotations, cluster.AnnotationEvacuation)
	if progress != nil {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, cluster.AnnotationEvacuation, progress.String())
	}
	return nil
}

// takeBack notes again what the node said before it was noted that LINSTOR was to be told, unless its annotation says something else by now: another
// process may lead that has told LINSTOR.
func (r *EvacuationReconciler) takeBack(ctx context.Context, node *corev1.Node, plan evacuation.Plan) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(cluster.AnnotationEvacuation, "/", "~1")
	err := r.client.Patch(ctx, target(node), replacePatch(node.UID, path, plan.Step.Asking.String(), plan.Progress.String()))
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// showConditions writes those conditions of a node that are others than it has. A strategic merge patch leaves those of others alone.
func (r *EvacuationReconciler) showConditions(ctx context.Context, node *corev1.Node, mind *evacuee, wanted evacuation.Conditions) error {
	has := cluster.EvacuationConditions(node)
	wanted = evacuation.Conditions{Safe: fit(wanted.Safe), Evacuated: fit(wanted.Evacuated)}
	now := r.clock.Now()
	var changes []any
	news := false
	for _, c := range []struct {
		kind        corev1.NodeConditionType
		has, wanted *evacuation.Condition
	}{{evacuation.StorageSafe, has.Safe, wanted.Safe}, {evacuation.StorageEvacuated, has.Evacuated, wanted.Evacuated}} {
		switch {
		case c.wanted == nil && c.has == nil, c.wanted != nil && c.has != nil && *c.wanted == *c.has:
		case c.wanted == nil:
			news = true
			changes = append(changes, map[string]any{"type": c.kind, "$patch": "delete"})
		default:
			news = news || c.has == nil || c.has.Status != c.wanted.Status || c.has.Reason != c.wanted.Reason
			changes = append(changes, written(node, c.kind, *c.wanted, metav1.NewTime(now)))
		}
	}
	// What only says how far it has got may wait for the next look.
	if len(changes) == 0 || !news && now.Sub(mind.written) < evacuation.Interval {
		return nil
	}
	patch := mergePatch(node.UID, "", nil, map[string]any{"status": map[string]any{"conditions": changes}})
	if err := r.client.Status().Patch(ctx, target(node), patch); err != nil {
		return fmt.Errorf("showing the evacuation of node %s in its conditions: %w", node.Name, err)
	}
	r.memory.note(mind, wanted, now)
	return nil
}

// fit is a condition with a message that is fit for a node.
func fit(c *evacuation.Condition) *evacuation.Condition {
	if c == nil {
		return nil
	}
	return &evacuation.Condition{Status: c.Status, Reason: c.Reason, Message: truncated(c.Message)}
}

// written is a condition as it is written: since when it has its status is what the node knows.
func written(node *corev1.Node, kind corev1.NodeConditionType, c evacuation.Condition, now metav1.Time) corev1.NodeCondition {
	since := now
	for _, old := range node.Status.Conditions {
		if old.Type == kind && string(old.Status) == string(c.Status) {
			since = old.LastTransitionTime
		}
	}
	return corev1.NodeCondition{
		Type: kind, Status: corev1.ConditionStatus(c.Status), Reason: string(c.Reason), Message: c.Message,
		LastHeartbeatTime: now, LastTransitionTime: since,
	}
}

// target is a node as a patch needs it: the answer must not overwrite what was read.
func target(node *corev1.Node) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID}}
}
