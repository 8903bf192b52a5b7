package controllers

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// evacuationReads is how many times more may be read for one plan: each asks for what the one before has shown to be needed.
const evacuationReads = 6

// look reads what is so of a node, as much of it as the plan needs, and plans. It takes no longer than anything may rest on it: what the node says
// meanwhile is older.
func (r *EvacuationReconciler) look(ctx context.Context, node *corev1.Node, mind *evacuee) (evacuation.Input, evacuation.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, min(r.timeout, evacuation.Autoplace.MaxAge()))
	defer cancel()
	in, err := r.begin(ctx, node, mind)
	if err != nil {
		return in, evacuation.Plan{}, err
	}
	plan := evacuation.PlanFor(in)
	for range evacuationReads {
		if !plan.Needs.Any() {
			break
		}
		if err := r.read(ctx, node, mind, &in, plan.Needs); err != nil {
			return in, plan, err
		}
		in.Now = r.clock.Now()
		plan = evacuation.PlanFor(in)
	}
	return in, plan, nil
}

// known is what the node itself says.
func (r *EvacuationReconciler) known(node *corev1.Node, mind *evacuee) evacuation.Input {
	in := evacuation.Input{Now: r.clock.Now(), Settings: r.limits, Installation: r.installation, Node: node.Name, Conditions: cluster.EvacuationConditions(node)}
	if progress, ok := cluster.EvacuationProgress(node); ok {
		in.Progress = &progress
		mind.asked(progress, in.Now)
	}
	in.Memory = mind.memory
	return in
}

// begin is what is known without asking LINSTOR.
func (r *EvacuationReconciler) begin(ctx context.Context, node *corev1.Node, mind *evacuee) (evacuation.Input, error) {
	in := r.known(node, mind)
	attached, failingOver, err := r.reader.Attached(ctx, node.Name)
	if err != nil {
		return in, err
	}
	in.Attachments = evacuation.Attachments{Volumes: attached}
	switch {
	case r.failsOver(node.Name):
		in.FailOver = "the node has lost its storage"
	case failingOver != "":
		in.FailOver = "volume " + failingOver + " is being failed over from there"
	case node.Annotations[cluster.AnnotationKeepAway] != "":
		in.FailOver = "the node has lost storage, and new pods are kept away from it"
	}
	in.Halt = r.halt.now(ctx, haltAge)
	if in.Cluster, err = r.reader.Cluster(ctx); err != nil {
		return in, err
	}
	in.Nodes, err = r.nodes(ctx, node)
	return in, err
}

func (r *EvacuationReconciler) nodes(ctx context.Context, node *corev1.Node) ([]evacuation.Node, error) {
	nodes, err := r.reader.Nodes(ctx, node, r.linstor.Nodes())
	if err != nil {
		return nil, err
	}
	r.memory.overlay(nodes)
	return nodes, nil
}

// read reads what a plan needs. That LINSTOR does not answer is no error but what is so.
func (r *EvacuationReconciler) read(
	ctx context.Context, node *corev1.Node, mind *evacuee, in *evacuation.Input, needs evacuation.Needs,
) error {
	if needs.Placed {
		if err := r.place(ctx, node, in); err != nil {
			return err
		}
	}
	if needs.Attachments {
		asked := r.clock.Now()
		volumes, err := r.reader.AttachmentsOn(ctx, node.Name)
		if err != nil {
			return err
		}
		in.Attachments = evacuation.Attachments{Read: asked, Volumes: volumes}
	}
	if err := r.readMore(ctx, in, needs); err != nil {
		in.Linstor.Problem = oneLine(err)
	}
	if in.Linstor.Problem == "" { // else what was not read would look like a change
		mind.observe(in.Fingerprint(), in.Snapshots, r.clock.Now())
		in.Memory = mind.memory
	}
	return nil
}

// place asks LINSTOR where everything is, and adds what Kubernetes says of that.
func (r *EvacuationReconciler) place(ctx context.Context, node *corev1.Node, in *evacuation.Input) error {
	volumes, asked, err := r.places.Placed(ctx)
	if err != nil {
		in.Linstor.Problem = oneLine(err)
		return nil
	}
	in.Linstor.Asked = asked
	if in.Nodes, err = r.nodes(ctx, node); err != nil {
		return err
	}
	unlisted, err := r.reader.Unlisted(ctx, node.Name, volumes, in.Attachments.Volumes)
	if err != nil {
		return err
	}
	in.Linstor.Missing = strings.Join(firstOf(unlisted), ", ")
	if in.Volumes, err = r.reader.Claims(ctx, node, in.Nodes, volumes, in.Attachments.Volumes); err != nil {
		return err
	}
	if len(in.Attachments.Volumes) == 0 {
		return nil
	}
	return r.reader.Holders(ctx, node.Name, in.Volumes)
}

// readMore asks LINSTOR for everything else that is needed.
func (r *EvacuationReconciler) readMore(ctx context.Context, in *evacuation.Input, needs evacuation.Needs) error {
	var err error
	if needs.Snapshots {
		in.Snapshots.N, err = r.places.SnapshotsOn(ctx, in.Satellite())
		if in.Snapshots.Known = err == nil; err != nil {
			return err
		}
	}
	if needs.Marked {
		in.Marked.All, err = r.places.Marks(ctx)
		if in.Marked.Known = err == nil; err != nil {
			return err
		}
	}
	if needs.Version {
		in.Version.Spares, err = r.places.CanSpareNodes(ctx)
		if in.Version.Known = err == nil; err != nil {
			return err
		}
	}
	if len(needs.Definitions) == 0 {
		return nil
	}
	definitions, err := r.places.CopyDefinitions(ctx, needs.Definitions)
	if err != nil {
		return err
	}
	for i := range in.Volumes {
		if d, ok := definitions[strings.ToLower(in.Volumes[i].Resource)]; ok {
			in.Volumes[i].Definition = &d
		}
	}
	return nil
}

// oneLine is what an error says, fit for a condition.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// inTime tells whether a call may still be sent that rests on what LINSTOR said after that time.
func (r *EvacuationReconciler) inTime(call evacuation.Call, asked time.Time) bool {
	return r.clock.Now().Sub(asked) <= call.MaxAge()
}
