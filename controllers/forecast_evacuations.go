package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

// evacuations reads what is known of nodes that are evacuated. Where all volumes are is asked only if there is such a node: LINSTOR asks its
// satellites for that.
func (f *Forecaster) evacuations(ctx context.Context, facts *forecast.Facts, everyone *census) error {
	found := &facts.Evacuations
	var nodes corev1.NodeList
	if err := f.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	tainted, concerned := make(map[string]bool), make(map[string]bool)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		satellite := f.kubelets.Satellite(node.Name)
		concerned[satellite] = cluster.IsEvacuated(node)
		tainted[satellite] = cluster.HasTaint(node, evacuation.TaintKey, "")
	}
	for _, node := range f.linstor.Nodes() {
		if node.Evacuating && !tainted[node.Name] {
			found.Flagged = append(found.Flagged, node.Name)
		}
	}
	slices.Sort(found.Flagged)
	var volumes []evacuation.Volume
	if facts.LinstorError == "" { // else it would not answer this either
		moves, _ := f.feed.Moves(ctx)
		for _, move := range moves {
			if !tainted[move.Node] {
				found.Moves = append(found.Moves, move.Resource+": "+move.Node)
			}
		}
		marks, _ := f.feed.Marks(ctx)
		if id, err := f.evacuation.Cluster(ctx); err == nil { // else nobody knows whose marks are whose
			found.Marked = leftMarksOf(marks, id, concerned)
		}
		if slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool { return tainted[f.kubelets.Satellite(node.Name)] }) {
			volumes, _, _ = f.feed.Placed(ctx)
		}
	}
	slices.Sort(found.Moves)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !tainted[f.kubelets.Satellite(node.Name)] {
			continue
		}
		row, err := f.evacuated(ctx, node, slices.Clone(volumes))
		if err != nil {
			return err
		}
		found.Nodes = append(found.Nodes, row)
		found.Untolerated = append(found.Untolerated, everyone.untolerated(ctx, node)...)
	}
	return nil
}

// leftMarksOf returns the marks for nodes that no evacuation concerns, as "resource: node".
func leftMarksOf(marks []evacuation.Mark, id string, concerned map[string]bool) []string {
	var left []string
	for _, mark := range marks {
		for _, entry := range mark.Nodes {
			node, ours := strings.CutSuffix(entry, evacuation.Entry("", id))
			if ours && !concerned[node] {
				left = append(left, mark.Resource+": "+node)
			}
		}
	}
	slices.Sort(left)
	return left
}

// evacuated is a node with the taint, and those of its volumes that are not safe elsewhere.
func (f *Forecaster) evacuated(ctx context.Context, node *corev1.Node, volumes []evacuation.Volume) (forecast.EvacuatedNode, error) {
	row := forecast.EvacuatedNode{Node: node.Name}
	for _, t := range node.Spec.Taints {
		if t.Key == evacuation.TaintKey {
			row.Mode = t.Value
		}
	}
	conditions := cluster.EvacuationConditions(node)
	row.Safe, row.Evacuated = forecast.InWords(conditions.Safe), forecast.InWords(conditions.Evacuated)
	attached, _, err := f.evacuation.Attached(ctx, node.Name)
	if err != nil {
		return row, err
	}
	in := evacuation.Input{Node: node.Name}
	if in.Nodes, err = f.evacuation.Nodes(ctx, node, f.linstor.Nodes()); err != nil {
		return row, err
	}
	if in.Volumes, err = f.evacuation.Claims(ctx, node, in.Nodes, volumes, attached); err != nil {
		return row, err
	}
	for _, v := range in.VolumeStates() {
		if v.Reason != evacuation.CopiedElsewhere {
			row.Unsafe = append(row.Unsafe, fmt.Sprintf("%s: %s: %s", v.Resource, v.Reason, v.Message))
		}
	}
	return row, nil
}

// untolerated returns the pods of Piraeus on a node that do not tolerate its taint: restarted there, they do not come back.
func (c *census) untolerated(ctx context.Context, node *corev1.Node) (found []string) {
	only := &corev1.Node{}
	for _, t := range node.Spec.Taints {
		if t.Key == evacuation.TaintKey {
			only.Spec.Taints = append(only.Spec.Taints, t)
		}
	}
	for i := range c.storage {
		pod := &c.storage[i]
		if pod.Spec.NodeName == node.Name && cluster.Untolerated(ctx, only, pod) != "" {
			found = append(found, cluster.Key(pod.Namespace, pod.Name)+" on "+node.Name)
		}
	}
	slices.Sort(found)
	return found
}
