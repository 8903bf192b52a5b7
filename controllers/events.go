package controllers

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// Reasons of Events. Dashboards know the first four from the designs before this one.
const (
	// EventForceDeleted on a pod: it was deleted because it lost its storage.
	EventForceDeleted = "ForceDeleted"
	// EventForceDetached on an attachment: it was deleted because its node lost the volume.
	EventForceDetached = "ForceDetached"
	// EventNodeLost on a node: it has lost storage, and new pods are kept away from it.
	EventNodeLost = "NodeStorageQuorumLost"
	// EventNodeRegained on a node: it takes pods again.
	EventNodeRegained = "NodeStorageQuorumRegained"
	// EventGuardTripped on the controller's Deployment: so much seems lost at once that nothing is removed.
	EventGuardTripped = "GuardTripped"
	// EventGuardOpened on the controller's Deployment: the view of the cluster is no longer suspect.
	EventGuardOpened = "GuardOpened"
	// EventFailedOver on a claim: its volume was moved off a node that lost it, and is attached to another one.
	EventFailedOver = "FailedOver"
	// EventAttachWaits on a pod: its volume is not attached because a satellite does not answer LINSTOR.
	EventAttachWaits = "AttachWaits"
	// EventDetachFailed on an attachment, and on the pods that wait for it: the CSI driver cannot detach the volume.
	EventDetachFailed = "DetachFailed"
	// EventTieBreakerGone on a pod that was moved: the only tie-breaker of its volume is on the node that was lost.
	EventTieBreakerGone = "TieBreakerGone"
)

// Actions of Events: what was done, or not done.
const (
	actionDelete  = "Deleting"
	actionForce   = "ForceDeleting" // the Event of a pod that did not end in peace must not be taken for a repetition
	actionMove    = "Moving"
	actionDetach  = "Detaching"
	actionTaint   = "Tainting"
	actionUntaint = "Untainting"
	actionRefuse  = "FailOver"
	actionAttach  = "Attaching"
)

// heldAfter is how long the object of a pod that was deleted without grace may stay before that is worth an Event: most finalizers go within seconds.
const heldAfter = time.Minute

// noteLimit is the length from which on the API server rejects the note of an Event.
const noteLimit = 1024

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// report says in the log what was decided, when it is news.
func (r *reporter) report(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision) {
	r.verdicts.note(pv.Name, in.Node.Name, d)
	if !r.reports.changed(pv.Name, in.Node.Name, d) {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Decided", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"verdict", d.Verdict, "reason", d.Reason, "state", d.State, "message", d.Message)
}

func (r *reporter) reportStuck(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, pod failover.Pod) {
	name := cluster.Key(pod.Namespace, pod.Name)
	if !r.reports.stuckPod(pv.Name, in.Node.Name, name, failover.StuckOnNode) {
		return
	}
	message := fmt.Sprintf("the pod does not terminate and its node %s could still write one of its volumes, such as %s; DRBD frees such a node with "+
		"DrbdOptions/Resource/on-suspended-primary-outdated=force-secondary and DrbdOptions/Net/rr-conflict=retry-connect", in.Node.Name, pv.Name)
	ctrl.LoggerFrom(ctx).Info("Pod is stuck", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"pod", name, "reason", failover.StuckOnNode, "message", message)
	r.event(podRef(pod), pvRef(pv), string(failover.StuckOnNode), actionDelete, message)
}

// reportHeld says that the object of a pod stays that was deleted without grace: only finalizers can keep it.
func (r *reporter) reportHeld(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, pod failover.Pod) {
	name := cluster.Key(pod.Namespace, pod.Name)
	if !pod.Forced || in.Now.Sub(pod.DeleteBy) < heldAfter || !r.reports.stuckPod(pv.Name, in.Node.Name, name, failover.HeldByFinalizer) {
		return
	}
	message := fmt.Sprintf("the pod was deleted by force and its finalizers keep its object; volume %s is detached from node %s once they are gone, "+
		"which is for those who set them", pv.Name, in.Node.Name)
	ctrl.LoggerFrom(ctx).Info("Pod is held", "volume", pv.Name, "resource", in.Resource.Name, "node", in.Node.Name,
		"pod", name, "reason", failover.HeldByFinalizer, "message", message)
	r.event(podRef(pod), pvRef(pv), string(failover.HeldByFinalizer), actionDelete, message)
}

// recordRemoval tells a pod that it was deleted for those volumes, of which v is the first that was lost.
func (r *reporter) recordRemoval(v volume, volumes []string, pod *corev1.Pod, how failover.Removal) {
	r.reports.metrics.PodDeleted(how)
	action, mode := actionDelete, "gracefully"
	if how == failover.RemoveForce {
		action, mode = actionForce, "by force"
	}
	r.event(typed(&corev1.Pod{ObjectMeta: pod.ObjectMeta}, "v1", "Pod"), pvRef(v.pv), EventForceDeleted, action, fmt.Sprintf(
		"pod deleted because a used volume is marked as failing: %s, for %s on node %s: %s", mode, named("volume", volumes), v.in.Node.Name, because(v.d)))
}

// close says that a volume is attached elsewhere, which ends its fail-over.
func (r *reporter) close(ctx context.Context, pv *corev1.PersistentVolume, to *storagev1.VolumeAttachment) {
	m, ok := r.reports.arrived(pv.Name)
	if !ok {
		return
	}
	took := ""
	if total, ok := m.took[metrics.StageTotal]; ok {
		took = fmt.Sprintf(" %.1f s after the first sign of the loss", total.Seconds())
	}
	if claim := claimRef(pv); claim != nil {
		// What is related tells one fail-over of the claim from the next.
		related := typed(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: to.Name, UID: to.UID}}, "storage.k8s.io/v1", "VolumeAttachment")
		r.event(claim, related, EventFailedOver, actionMove, fmt.Sprintf("volume %s failed over from node %s to node %s%s, and is attached there: %s",
			pv.Name, m.node, to.Spec.NodeName, took, because(failover.Decision{Reason: m.reason, Message: m.message})))
	}
	ctrl.LoggerFrom(ctx).Info("Failed over", "volume", pv.Name, "from", m.node, "to", to.Spec.NodeName, "seconds", m.seconds(), "reason", m.reason)
}

func (r *reporter) recordDetach(v volume, va *storagev1.VolumeAttachment) {
	r.reports.metrics.AttachmentDeleted()
	r.event(typed(&storagev1.VolumeAttachment{ObjectMeta: va.ObjectMeta}, "storage.k8s.io/v1", "VolumeAttachment"), pvRef(v.pv),
		EventForceDetached, actionDetach, fmt.Sprintf("volume detached because it is marked as failing: volume %s from node %s: %s",
			v.pv.Name, v.in.Node.Name, because(v.d)))
}

// because says why something was done.
func because(d failover.Decision) string { return string(d.Reason) + ": " + d.Message }

// namesInNote is how many names a note has of many.
const namesInNote = 5

// named says which of a kind are meant; of many, the first ones and how many more.
func named(kind string, names []string) string {
	if len(names) > 1 {
		kind += "s"
	}
	more := ""
	if left := len(names) - namesInNote; left > 0 {
		names, more = names[:namesInNote], fmt.Sprintf(" and %d more", left)
	}
	return kind + " " + strings.Join(names, ", ") + more
}

func (r *reporter) event(regarding, related runtime.Object, reason, action, note string) {
	r.recorder.Eventf(regarding, related, corev1.EventTypeWarning, reason, action, "%s", truncated(note))
}

// recordTaint tells a node that it was tainted for those volumes, of which d speaks of the first.
func (k *KeepAway) recordTaint(node *corev1.Node, volumes []string, d failover.Decision) {
	k.metrics.Taint("set")
	k.recorder.Eventf(nodeRef(node), nil, corev1.EventTypeWarning, EventNodeLost, actionTaint, "%s",
		truncated(fmt.Sprintf("new pods are kept away from node %s, which lost %s: %s", node.Name, named("volume", volumes), because(d))))
}

// recordUntaint tells a node that its taint was taken off, which those resources of LINSTOR had been the cause of.
func (k *KeepAway) recordUntaint(node *corev1.Node, resources []string, expired bool) {
	change := "removed"
	if expired {
		change = "expired"
	}
	k.metrics.Taint(change)
	k.recorder.Eventf(nodeRef(node), nil, corev1.EventTypeNormal, EventNodeRegained, actionUntaint, "%s",
		truncated(fmt.Sprintf("new pods are no longer kept away from node %s, which had lost %s: %s",
			node.Name, named("resource", resources), untaintedFor(expired))))
}

// truncated makes a text that has words of others in it fit for the note of an Event: one line, valid, and not too long.
func truncated(note string) string {
	note = strings.ToValidUTF8(strings.Join(strings.Fields(note), " "), "?")
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit], "") // what was cut in the middle of a character
	}
	return note
}

func podRef(pod failover.Pod) runtime.Object {
	return typed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}, "v1", "Pod")
}

func pvRef(pv *corev1.PersistentVolume) runtime.Object {
	return typed(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name, UID: pv.UID}}, "v1", "PersistentVolume")
}

// nodeRef refers to a node by its UID, without which "kubectl describe node" does not show the Event.
func nodeRef(node *corev1.Node) runtime.Object {
	return typed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID}}, "v1", "Node")
}

func claimRef(pv *corev1.PersistentVolume) runtime.Object {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return typed(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
	}, "v1", "PersistentVolumeClaim")
}

// typed names the kind in the object itself, as Events want it.
func typed[T runtime.Object](o T, apiVersion, kind string) T {
	o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return o
}
