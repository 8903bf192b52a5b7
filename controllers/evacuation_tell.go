package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// Reasons of Events on a node that is evacuated, beside those of internal/evacuation.
const (
	// EventEvacuationStarted on a node: its taint was seen.
	EventEvacuationStarted = "EvacuationStarted"
	// EventEvacuationProgress on a node: how far it has got, at most every five minutes.
	EventEvacuationProgress = "EvacuationProgress"
	// EventStorageSafe on a node: everything has a good copy elsewhere.
	EventStorageSafe = "StorageSafe"
	// EventQuorumWillBeOff on a node: of which volumes LINSTOR will switch quorum off.
	EventQuorumWillBeOff = "QuorumWillBeOff"
	// EventStorageEvacuated on a node: nothing is left there.
	EventStorageEvacuated = "StorageEvacuated"
	// EventStorageReturned on a node: its evacuation has ended, and nothing of it is left.
	EventStorageReturned = "StorageReturned"
	// EventAnotherInstallation on a node: another installation of the controller evacuates it.
	EventAnotherInstallation = "AnotherInstallation"
	// EventUnfinishedMove on a node: LINSTOR may still move volumes off it.
	EventUnfinishedMove = "UnfinishedMove"
)

const (
	// The API server's client takes Events of one reason and action on one object for a series, and keeps the first text: what is another thing
	// to users has another action.
	actionEvacuate   = "Evacuating"
	actionMakeCopies = "MakingLastCopies"
	// progressInterval is how often progress has an Event.
	progressInterval = 5 * time.Minute
	// toldVolumes is how many volumes of a node, and how many pods that wait for them, have an Event of their own; "check" has all volumes.
	toldVolumes = 50
)

// tell writes down what is so, before LINSTOR is told anything: the annotation for whoever leads next, the conditions for users; and says what
// is new in Events.
func (r *EvacuationReconciler) tell(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan) error {
	r.showVolumes(node.Name, plan)
	if plan.Progress == nil { // while it is there, the next leader takes back what this one has not
		if err := r.showConditions(ctx, node, mind, plan.Conditions); err != nil {
			return err
		}
		if err := r.noteProgress(ctx, node, nil); err != nil {
			return err
		}
	} else {
		noted := r.noteProgress(ctx, node, plan.Progress)
		if noted != nil && plan.Conditions.Safe != nil && plan.Conditions.Safe.Status == evacuation.True {
			return noted // else nobody would know, should the node be switched off
		}
		if err := errors.Join(noted, r.showConditions(ctx, node, mind, plan.Conditions)); err != nil {
			return err
		}
	}
	r.announce(ctx, node, mind, in, plan)
	return nil
}

func (r *EvacuationReconciler) showVolumes(node string, plan evacuation.Plan) {
	counts := make(map[evacuation.Reason]int)
	for _, v := range plan.Volumes {
		counts[v.Reason]++
	}
	r.metrics.Evacuating(node, counts)
}

// announce has an Event of everything that is new by what the node said before.
func (r *EvacuationReconciler) announce(ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan) {
	r.announceStages(node, in, plan)
	r.announceWarnings(ctx, node, mind, in, plan)
	if news(in.Conditions.Safe, plan.Conditions.Safe) || news(in.Conditions.Evacuated, plan.Conditions.Evacuated) {
		ctrl.LoggerFrom(ctx).Info("Evacuation", "node", node.Name, "state", plan.State, "safe", said(plan.Conditions.Safe), "evacuated", said(plan.Conditions.Evacuated))
		return
	}
	if moving := plan.State == evacuation.CopyingState || plan.State == evacuation.LeavingState; moving && in.Now.Sub(mind.progressed) >= progressInterval {
		mind.progressed = in.Now
		c := plan.Conditions.Safe
		if plan.State == evacuation.LeavingState {
			c = plan.Conditions.Evacuated
		}
		r.event(nodeRef(node), corev1.EventTypeNormal, EventEvacuationProgress, said(c))
	}
}

// announceStages has an Event of each stage of the evacuation, and times it.
func (r *EvacuationReconciler) announceStages(node *corev1.Node, in evacuation.Input, plan evacuation.Plan) {
	ref := nodeRef(node)
	if in.Progress == nil && plan.Progress != nil {
		action, what := actionEvacuate, "everything gets a copy elsewhere; once the node is drained everything leaves it"
		if plan.Progress.Mode == evacuation.LastCopies {
			action, what = actionMakeCopies, "what exists nowhere else gets a copy; nothing leaves"
		}
		r.recorder.Eventf(ref, nil, corev1.EventTypeNormal, EventEvacuationStarted, action, "taint %s was set: %s", evacuation.TaintKey, what)
	}
	if plan.Progress != nil && plan.Progress.Safe != nil && (in.Progress == nil || in.Progress.Safe == nil) {
		r.event(ref, corev1.EventTypeNormal, EventStorageSafe, plan.Conditions.Safe.Message)
		r.took(metrics.StageSafe, in, plan)
	}
	if becomes(in.Conditions.Evacuated, plan.Conditions.Evacuated) {
		r.event(ref, corev1.EventTypeNormal, EventStorageEvacuated, plan.Conditions.Evacuated.Message)
		r.took(metrics.StageEvacuated, in, plan)
	}
	if plan.State == evacuation.Returned && in.Progress != nil {
		r.event(ref, corev1.EventTypeNormal, EventStorageReturned, "the node takes part in storage as before; surplus copies are for LINSTOR's balancing to remove")
		if len(plan.Unfinished) > 0 {
			r.event(ref, corev1.EventTypeWarning, EventUnfinishedMove, "LINSTOR may still move "+named("volume", plan.Unfinished)+
				" off the node once a copy elsewhere is UpToDate: it keeps that in mind until it is restarted")
		}
	}
}

func (r *EvacuationReconciler) took(stage metrics.EvacuationStage, in evacuation.Input, plan evacuation.Plan) {
	if plan.Progress != nil {
		r.metrics.EvacuationTook(stage, max(0, in.Now.Sub(plan.Progress.Since))) // another clock may have begun
	}
}

// announceWarnings has an Event of what somebody should see to: each once.
func (r *EvacuationReconciler) announceWarnings(
	ctx context.Context, node *corev1.Node, mind *evacuee, in evacuation.Input, plan evacuation.Plan,
) {
	ref := nodeRef(node)
	if plan.State == evacuation.Refused && news(in.Conditions.Safe, plan.Conditions.Safe) {
		r.event(ref, corev1.EventTypeWarning, string(plan.Conditions.Safe.Reason), plan.Conditions.Safe.Message)
	}
	if plan.Step.Call == evacuation.Evacuate && plan.Step.Asking.Asks == 1 {
		r.announceQuorumOff(ref, plan)
	}
	for _, v := range plan.Volumes {
		if v.Reason == evacuation.CopiedElsewhere {
			delete(mind.told, v.Resource)
			continue
		}
		// What is blocked is tried again now and then, and copied for that moment: that is no news.
		if v.Reason != evacuation.Copying && mind.told[v.Resource] != v.Reason && len(mind.told) < toldVolumes {
			mind.told[v.Resource] = v.Reason
			r.recorder.Eventf(ref, r.volumeRef(ctx, v), corev1.EventTypeWarning, string(v.Reason), actionEvacuate, "%s", truncated(v.Resource+": "+v.Message))
		}
		r.tellPods(ctx, node.Name, mind, v)
	}
}

// announceQuorumOff has an Event of the volumes of which LINSTOR is going to switch quorum off, and why.
func (r *EvacuationReconciler) announceQuorumOff(ref runtime.Object, plan evacuation.Plan) {
	var why []string
	if len(plan.QuorumOff) > 0 {
		why = append(why, fmt.Sprintf("without this node LINSTOR has no place for a tie-breaker, and switches quorum off for %s: until it is back, or another "+
			"node is there, they cannot fail over", named("volume", plan.QuorumOff)))
	}
	if len(plan.SingleDisk) > 0 {
		why = append(why, fmt.Sprintf("LINSTOR keeps a single disk of %s, as the resource group wants, and a single disk has no quorum", named("volume", plan.SingleDisk)))
	}
	if len(why) > 0 {
		r.event(ref, corev1.EventTypeWarning, EventQuorumWillBeOff, strings.Join(why, "; "))
	}
}

// volumeRef is a PersistentVolume on a resource definition, so that Events of several volumes are no series; nil where none is known.
func (r *EvacuationReconciler) volumeRef(ctx context.Context, v evacuation.VolumeState) runtime.Object {
	for _, name := range v.Volumes {
		if pv, err := r.volumes.Get(ctx, name); err == nil && pv != nil {
			return pvRef(pv)
		}
	}
	return nil
}

// tellPods tells the selected pods that wait for a volume why, each once: many of them come when the node is drained, and not when it is tainted.
func (r *EvacuationReconciler) tellPods(ctx context.Context, node string, mind *evacuee, v evacuation.VolumeState) {
	for _, name := range v.Volumes {
		pv, err := r.volumes.Get(ctx, name)
		if err != nil || pv == nil {
			continue
		}
		pods, err := r.pods.Of(ctx, pv)
		if err != nil {
			continue
		}
		for i := range pods {
			pod := &pods[i]
			news := toldPod{pod.UID, v.Reason}
			if !mind.pods[news] && len(mind.pods) < toldVolumes && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && !cluster.HasRun(pod) {
				mind.pods[news] = true
				r.event(podRef(pod.Namespace, pod.Name, pod.UID), corev1.EventTypeWarning, string(v.Reason), fmt.Sprintf(
					"node %s is being evacuated, and volume %s is not safe elsewhere yet: %s", node, name, v.Message))
			}
		}
	}
}

func (r *EvacuationReconciler) event(regarding runtime.Object, kind, reason, note string) {
	r.recorder.Eventf(regarding, nil, kind, reason, actionEvacuate, "%s", truncated(note))
}

// news tells whether a condition says something else, whatever the words.
func news(before, after *evacuation.Condition) bool {
	if before == nil || after == nil {
		return before != after
	}
	return before.Status != after.Status || before.Reason != after.Reason
}

// becomes tells whether a condition becomes True.
func becomes(before, after *evacuation.Condition) bool {
	return after != nil && after.Status == evacuation.True && news(before, after)
}

// said is a condition in words.
func said(c *evacuation.Condition) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(string(c.Status) + " " + string(c.Reason) + ": " + c.Message)
}
