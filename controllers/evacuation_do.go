package controllers

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// do tells LINSTOR what is planned, and returns whether it was sent. What it does not do is not tried again here: the next look tells what is to be
// done then.
func (r *EvacuationReconciler) do(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan) (sent bool) {
	for _, resource := range plan.NoTarget {
		mind.memory.Refused[resource] = evacuation.Refusal{
			Until: in.Now.Add(evacuation.RefusalHolds), Words: evacuation.NoNodeFree, Nodes: in.Eligible(),
		}
	}
	if plan.Step.Call == evacuation.Nothing || !r.inTime(plan.Step.Call, in.Linstor.Asked) { // writing to the node has taken so long that all may be different
		return false
	}
	switch plan.Step.Call {
	case evacuation.Autoplace:
		return r.copy(ctx, node, mind, in, plan.Step)
	case evacuation.Evacuate:
		return r.evacuate(ctx, node, mind, in, plan)
	case evacuation.Restore:
		answer, err := r.places.Restore(ctx, plan.Step.Node)
		mind.outcome(evacuation.Restore, answered(ctx, r.metrics, evacuation.Restore, node.Name, answer, err), r.clock.Now())
	case evacuation.Properties:
		mind.outcome(evacuation.Properties, r.marker.do(ctx, r.mayChange(node.Name, in), plan.Step), r.clock.Now())
	case evacuation.Nothing:
	}
	return true
}

// mayChange tells whether a definition may still be changed for a node that was seen so: what was seen is not old, and the node has lost nothing since.
func (r *EvacuationReconciler) mayChange(node string, in evacuation.Input) func() bool {
	return func() bool { return r.inTime(evacuation.Properties, in.Linstor.Asked) && !r.failsOver(node) }
}

// evacuate tells LINSTOR to move everything off a node. That it is told is noted before: should this process end in between, whoever leads next must take
// the flag for ours. Where the call was certainly not sent the note is taken back; where nobody can tell, or the note cannot be taken back, it stays: a flag of
// somebody else that comes then is taken for ours, and no worse, since the gates hold for the next call all the same.
func (r *EvacuationReconciler) evacuate(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan) (sent bool) {
	log := ctrl.LoggerFrom(ctx)
	if err := r.noteProgress(ctx, node, plan.Step.Asking); err != nil {
		log.Error(err, "Cannot note that LINSTOR is to be told, so that it is not")
	} else if r.owns(ctx, in, plan.Step.Node) && r.stillLeaves(ctx, node) && r.inTime(plan.Step.Call, in.Linstor.Asked) {
		answer, err := r.places.Evacuate(ctx, plan.Step.Node, plan.Step.DoNotTarget)
		answered(ctx, r.metrics, evacuation.Evacuate, node.Name, answer, err)
		mind.memory.NotMoved = strings.Join(firstOf(answer.NotMoved()), "; ")
		sent = !errors.Is(err, linstor.ErrNotSent)
	}
	if sent {
		return true
	}
	if err := r.takeBack(ctx, node, plan); err != nil {
		log.Error(err, "Cannot take back the note that LINSTOR was told, which it was not")
	}
	return false
}

// owns notes in LINSTOR that a flag EVACUATE on the node is this cluster's, and returns whether LINSTOR says so.
func (r *EvacuationReconciler) owns(ctx context.Context, in evacuation.Input, node string) bool {
	if known, _ := r.linstor.Node(node); known.Evacuator == in.Cluster {
		return true
	}
	answer, err := r.places.OwnNode(ctx, node, in.Cluster)
	return answered(ctx, r.metrics, evacuation.Properties, node, answer, err) == ""
}

// stillLeaves tells whether the node has the taints that the look has seen and has lost nothing since: LINSTOR's moves outlive a restore.
func (r *EvacuationReconciler) stillLeaves(ctx context.Context, node *corev1.Node) bool {
	var now corev1.Node
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(node), &now); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read whether the node is still to leave, so that LINSTOR is not told")
		return false
	}
	return now.UID == node.UID && equality.Semantic.DeepEqual(now.Spec.Taints, node.Spec.Taints) && !r.failsOver(node.Name)
}

// placing has the copies of one node at a time begin, so that each look counts those of the others: so many may be in progress, and no more. The zero value
// is ready.
type placing struct {
	mu    sync.Mutex
	ended time.Time
}

// begin tells whether copies may begin that rest on what LINSTOR said after that time; then they must end.
func (p *placing) begin(asked time.Time) bool {
	if !p.mu.TryLock() {
		return false
	}
	if asked.After(p.ended) {
		return true
	}
	p.mu.Unlock()
	return false
}

func (p *placing) end(now time.Time) {
	p.ended = now
	p.mu.Unlock()
}

// copy has LINSTOR make copies, all at the same time, once they are safe from its own balancing. It returns whether anything was sent.
func (r *EvacuationReconciler) copy(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, step evacuation.Step) (sent bool) {
	if !r.placing.begin(in.Linstor.Asked) {
		return false
	}
	defer func() { r.placing.end(r.clock.Now()) }()
	unmarked := r.marker.mark(ctx, r.mayChange(node.Name, in), step.Entry, withoutMark(step.Copies))
	// The look and the marks may have taken so long that all is different.
	if !r.inTime(step.Call, in.Linstor.Asked) || !r.stillLeaves(ctx, node) {
		return true
	}
	eligible, err := r.eligible(ctx, node, in)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot tell which nodes may have a copy by now, so that LINSTOR is not told")
		return true
	}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, c := range step.Copies {
		c.Targets = slices.DeleteFunc(slices.Clone(c.Targets), func(name string) bool { return !slices.Contains(eligible, name) })
		if len(c.Targets) == 0 { // LINSTOR takes that for all
			continue
		}
		calls.Go(func() {
			result, refusal := metrics.CopyFailed, (*evacuation.Refusal)(nil)
			if words, is := unmarked[strings.ToLower(c.Resource)]; is {
				refusal = refused(in, evacuation.SilenceHolds, words)
			} else {
				result, refusal = r.copyOne(ctx, in, c)
			}
			r.metrics.Copied(result)
			mu.Lock()
			defer mu.Unlock()
			if delete(mind.memory.Refused, c.Resource); refusal != nil {
				mind.memory.Refused[c.Resource] = *refusal
			}
		})
	}
	calls.Wait()
	return true
}

// eligible are the nodes that may have a copy by what is known now, without asking LINSTOR.
func (r *EvacuationReconciler) eligible(ctx context.Context, node *corev1.Node, in evacuation.Input) (names []string, err error) {
	if in.Nodes, err = r.nodes(ctx, node); err != nil {
		return nil, err
	}
	return in.Eligible(), nil
}

// withoutMark are the definitions that get a mark before they are copied.
func withoutMark(copies []evacuation.Copy) []string {
	var names []string
	for _, c := range copies {
		if c.Mark {
			names = append(names, c.Resource)
		}
	}
	return names
}

// copyOne has LINSTOR make one copy. It returns why there is none; nil where there will be.
func (r *EvacuationReconciler) copyOne(
	ctx context.Context, in evacuation.Input, c evacuation.Copy,
) (metrics.CopyResult, *evacuation.Refusal) {
	answer, err := r.places.Autoplace(ctx, c.Resource, c.Targets)
	answered(ctx, r.metrics, evacuation.Autoplace, c.Resource, answer, err)
	if err != nil {
		return metrics.CopyFailed, refused(in, evacuation.SilenceHolds, "LINSTOR has not answered")
	}
	if words := answer.Errors(); len(words) > 0 {
		return metrics.CopyRefused, refused(in, evacuation.RefusalHolds, strings.Join(firstOf(words), "; "))
	}
	return metrics.CopyPlaced, nil
}

func refused(in evacuation.Input, holds time.Duration, words string) *evacuation.Refusal {
	return &evacuation.Refusal{Until: in.Now.Add(holds), Words: words, Nodes: in.Eligible()}
}

// answered counts what LINSTOR was told and says it in the log, and what it has not done. It returns the words on that; none where it has done all.
func answered(ctx context.Context, m *metrics.Metrics, call evacuation.Call, of string, answer linstor.Answer, err error) string {
	log := ctrl.LoggerFrom(ctx).WithValues("call", call, "of", of)
	if err != nil {
		m.Told(call, "error")
		log.Error(err, "Told LINSTOR, which has not answered")
		return "LINSTOR has not answered: " + oneLine(err)
	}
	m.Told(call, strconv.Itoa(answer.Code))
	all := answer.Errors()
	words := strings.Join(firstOf(all), "; ")
	if len(all) > 0 {
		log.Info("Told LINSTOR, which has not done all of it", "code", answer.Code, "errors", len(all), "message", words)
	} else {
		log.Info("Told LINSTOR", "code", answer.Code)
	}
	return words
}

// firstOf are the first of many words.
func firstOf(words []string) []string { return words[:min(len(words), namesInNote)] }
