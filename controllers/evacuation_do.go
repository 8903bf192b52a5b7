package controllers

import (
	"context"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// do tells LINSTOR what is planned. What it does not do is not tried again here: the next look tells what is to be done then.
func (r *EvacuationReconciler) do(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan) {
	for _, resource := range plan.NoTarget {
		mind.memory.Refused[resource] = evacuation.Refusal{
			Until: in.Now.Add(evacuation.RefusalHolds), Words: evacuation.NoNodeFree, Nodes: in.Eligible(),
		}
	}
	if plan.Step.Call == evacuation.Nothing || !r.inTime(plan.Step.Call, in.Linstor.Asked) { // writing to the node has taken so long that all may be different
		return
	}
	switch plan.Step.Call {
	case evacuation.Autoplace:
		r.copy(ctx, mind, in, plan.Step.Copies)
	case evacuation.Evacuate:
		if !r.stillLeaves(ctx, node) {
			return
		}
		answer, err := r.linstor.Evacuate(ctx, plan.Step.Node, plan.Step.DoNotTarget)
		r.answered(ctx, evacuation.Evacuate, node.Name, answer, err)
		mind.memory.NotMoved = strings.Join(firstOf(answer.NotMoved()), "; ")
	case evacuation.Restore:
		answer, err := r.linstor.Restore(ctx, plan.Step.Node)
		r.answered(ctx, evacuation.Restore, node.Name, answer, err)
	case evacuation.Properties:
		for _, change := range plan.Step.Changes {
			answer, err := r.linstor.ChangeDefinition(ctx, change)
			r.answered(ctx, evacuation.Properties, change.Resource, answer, err)
		}
	case evacuation.Nothing:
	}
}

// stillLeaves tells whether the node has the taints that the look has seen and has lost nothing since: LINSTOR's moves outlive a restore.
func (r *EvacuationReconciler) stillLeaves(ctx context.Context, node *corev1.Node) bool {
	var now corev1.Node
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(node), &now); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read whether the node is still to leave, so that LINSTOR is not told")
		return false
	}
	return now.UID == node.UID && equality.Semantic.DeepEqual(now.Spec.Taints, node.Spec.Taints) && !r.lost()[node.Name]
}

// copy has LINSTOR make copies, all at the same time.
func (r *EvacuationReconciler) copy(ctx context.Context, mind *evacuee, in evacuation.Input, copies []evacuation.Copy) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, c := range copies {
		calls.Go(func() {
			result, refusal := r.copyOne(ctx, in, c)
			r.metrics.Copied(result)
			mu.Lock()
			defer mu.Unlock()
			if delete(mind.memory.Refused, c.Resource); refusal != nil {
				mind.memory.Refused[c.Resource] = *refusal
			}
		})
	}
	calls.Wait()
}

// copyOne has LINSTOR make one copy, once it is safe from LINSTOR's own balancing. It returns why there is none; nil where there will be.
func (r *EvacuationReconciler) copyOne(
	ctx context.Context, in evacuation.Input, c evacuation.Copy,
) (metrics.CopyResult, *evacuation.Refusal) {
	unanswered := &evacuation.Refusal{Until: in.Now.Add(evacuation.SilenceHolds), Words: "LINSTOR has not answered", Nodes: in.Eligible()}
	if c.Mark != nil {
		answer, err := r.linstor.ChangeDefinition(ctx, *c.Mark)
		if !r.answered(ctx, evacuation.Properties, c.Resource, answer, err) {
			return metrics.CopyFailed, unanswered
		}
	}
	answer, err := r.linstor.Autoplace(ctx, c.Resource, c.Targets)
	r.answered(ctx, evacuation.Autoplace, c.Resource, answer, err)
	if err != nil {
		return metrics.CopyFailed, unanswered
	}
	if words := answer.Errors(); len(words) > 0 {
		return metrics.CopyRefused, &evacuation.Refusal{
			Until: in.Now.Add(evacuation.RefusalHolds), Words: strings.Join(firstOf(words), "; "), Nodes: in.Eligible(),
		}
	}
	return metrics.CopyPlaced, nil
}

// answered counts an answer and says in the log what LINSTOR was told, and what it has not done. It returns whether it has done it.
func (r *EvacuationReconciler) answered(ctx context.Context, call evacuation.Call, of string, answer linstor.Answer, err error) bool {
	log := ctrl.LoggerFrom(ctx).WithValues("call", call, "of", of)
	if err != nil {
		r.metrics.Told(call, "error")
		log.Error(err, "Told LINSTOR, which has not answered")
		return false
	}
	r.metrics.Told(call, strconv.Itoa(answer.Code))
	errors := answer.Errors()
	if len(errors) > 0 {
		log.Info("Told LINSTOR, which has not done all of it", "code", answer.Code, "errors", len(errors), "message", strings.Join(firstOf(errors), "; "))
	} else {
		log.Info("Told LINSTOR", "code", answer.Code)
	}
	return len(errors) == 0
}

// firstOf are the first of many words.
func firstOf(words []string) []string { return words[:min(len(words), namesInNote)] }
