package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	// EventLinstorRefuses on the controller's Deployment: LINSTOR does not accept the controller's token or user.
	EventLinstorRefuses = "LinstorRefuses"
	// EventStorageInterrupted on a pod: writes have failed for a while, and its file system may be read-only.
	EventStorageInterrupted = "StorageInterrupted"
	// EventInUseWithoutPod on a pod that waits for a volume: it is in use on a node where Kubernetes knows no pod that uses it.
	EventInUseWithoutPod = "InUseWithoutPod"
	// EventFailedOver on a claim: its volume was moved off a node that lost it, and is attached to another one.
	EventFailedOver = "FailedOver"
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
)

// heldAfter is how long the object of a pod that was deleted without grace may stay before that is worth an Event: most finalizers go within seconds.
const heldAfter = time.Minute

// noteLimit is the length from which on the API server rejects the note of an Event.
const noteLimit = 1024

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reporter reports what was decided and done, in the log, in Events and in metrics.
type reporter struct {
	shared
}

// say reports what was decided of a volume, if that is news, and why a loss is not acted on. It returns when to do that again.
func (r *reporter) say(ctx context.Context, state *nodeState, v *volume) (after time.Duration) {
	r.report(ctx, v)
	return r.explain(ctx, state, v)
}

// report reports a decision in the log if it is news.
func (r *reporter) report(ctx context.Context, v *volume) {
	if !v.state.changed(v.d, r.clock.Now()) {
		return
	}
	if v.d.Verdict == failover.Blocked {
		r.metrics.Blocked(v.d.Reason)
	}
	ctrl.LoggerFrom(ctx).Info("Decided", "volume", v.pv.Name, "resource", v.in.Resource.Name, "node", v.in.Node.Name,
		"verdict", v.d.Verdict, "reason", v.d.Reason, "state", v.d.State, "message", v.d.Message)
}

// explain reports to pods why nothing is done about the loss of their volume, once that is news, and returns when to do that again.
func (r *reporter) explain(ctx context.Context, state *nodeState, v *volume) (after time.Duration) {
	pods, err := r.concerned(ctx, v)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list affected pods", "volume", v.pv.Name)
		return retryLimit
	}
	failure := ""
	if v.err != nil {
		failure = v.err.Error()
	}
	word := v.state.wait.Observe(v.in, v.d, failure, pods)
	if word.After > 0 && v.d.After == 0 && v.isOld() {
		// Nothing else polls a volume about which nothing can be done.
		r.linstor.Poll(v.in.Resource.Name)
	}
	told := state.untold(v.state, word)
	if len(told) == 0 {
		return word.After
	}
	if v.d.Verdict != failover.Blocked || v.err != nil { // a gate has been reported with the decision
		ctrl.LoggerFrom(ctx).Info("Not failing over", "volume", v.pv.Name, "resource", v.in.Resource.Name, "node", v.in.Node.Name,
			"reason", word.Reason, "message", word.Message)
	}
	if v.d.Verdict == failover.NotLost || v.d.Verdict == failover.Undecided || v.err != nil {
		r.metrics.Blocked(word.Reason)
	}
	what := fmt.Sprintf("the pod stays on node %s with volume %s: ", v.in.Node.Name, v.pv.Name)
	switch {
	case len(v.in.Pods) == 0:
		what = fmt.Sprintf("the pod waits for volume %s on node %s: ", v.pv.Name, v.in.Node.Name)
	case len(selectedOf(v.in.Pods)) == 0:
		holder := v.in.Pods[0]
		what = fmt.Sprintf("the pod waits for volume %s, which pod %s/%s on node %s uses: ", v.pv.Name, holder.Namespace, holder.Name, v.in.Node.Name)
	}
	for _, pod := range told {
		r.event(podRef(pod.Namespace, pod.Name, pod.UID), pvRef(v.pv), string(word.Reason), actionRefuse, what+word.Message)
	}
	return word.After
}

// untold returns the pods to which the reason was not reported because of another volume on the node.
func (s *nodeState) untold(of *volumeState, word failover.Word) []failover.Pod {
	return slices.DeleteFunc(word.Pods, func(pod failover.Pod) bool {
		for _, other := range s.volumes {
			if other != of && other.wait.Told(pod.UID, word.Reason) {
				return true
			}
		}
		return false
	})
}

// concerned returns the selected pods on the node that use the volume or, if none of them is selected, those that wait for it on other nodes.
func (r *reporter) concerned(ctx context.Context, v *volume) ([]failover.Pod, error) {
	if selected := selectedOf(v.in.Pods); len(selected) > 0 {
		return selected, nil
	}
	return r.inputs.Waiting(ctx, v.pv, v.in.Node.Name)
}

func selectedOf(pods []failover.Pod) []failover.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod failover.Pod) bool { return !pod.Selected })
}

// stuck reports that a pod does not terminate on a node that could still write.
func (r *reporter) stuck(ctx context.Context, state *nodeState, v *volume, pod failover.Pod) {
	r.doesNotGo(ctx, state, v, pod, failover.StuckOnNode, "Pod is stuck", fmt.Sprintf(
		"the pod does not terminate and its node %s could still write one of its volumes, such as %s; DRBD frees such a node with "+
			"DrbdOptions/Resource/on-suspended-primary-outdated=force-secondary and DrbdOptions/Net/rr-conflict=retry-connect",
		v.in.Node.Name, v.pv.Name))
}

// heldByFinalizer reports that the object of a pod stays that was deleted without grace: only finalizers can keep it.
func (r *reporter) heldByFinalizer(ctx context.Context, state *nodeState, v *volume, pod failover.Pod) {
	if !pod.Forced || v.in.Now.Sub(pod.GraceEnds()) < heldAfter {
		return
	}
	r.doesNotGo(ctx, state, v, pod, failover.HeldByFinalizer, "Pod is held", fmt.Sprintf(
		"the pod was deleted by force and its finalizers keep its object; volume %s is detached from node %s once they are gone, "+
			"which is for those who set them", v.pv.Name, v.in.Node.Name))
}

// doesNotGo reports that a pod does not go, once for all of its volumes.
func (r *reporter) doesNotGo(
	ctx context.Context, state *nodeState, v *volume, pod failover.Pod, reason failover.Reason, log, message string,
) {
	name, p := cluster.Key(pod.Namespace, pod.Name), &v.state.progress
	for _, other := range state.volumes { // this one as well
		if other.progress.stuck[name] == reason {
			return
		}
	}
	if p.stuck == nil {
		p.stuck = make(map[string]failover.Reason)
	}
	p.stuck[name] = reason
	r.metrics.Blocked(reason)
	ctrl.LoggerFrom(ctx).Info(log, "volume", v.pv.Name, "resource", v.in.Resource.Name, "node", v.in.Node.Name,
		"pod", name, "reason", reason, "message", message)
	r.event(podRef(pod.Namespace, pod.Name, pod.UID), pvRef(v.pv), string(reason), actionDelete, message)
}

func (r *reporter) podDeleted(ctx context.Context, d deletion) {
	volumes := make([]string, len(d.users))
	for i, v := range d.users {
		volumes[i] = v.pv.Name
		v.state.podDeleted(r.metrics, v.d, r.clock.Now())
	}
	v := d.by
	r.metrics.PodDeleted(d.How)
	action, mode := actionDelete, "gracefully"
	if d.How == failover.RemoveForce {
		action, mode = actionForce, "by force"
	}
	ctrl.LoggerFrom(ctx).Info("Deleted pod", "node", v.in.Node.Name, "volumes", volumes, "pod", cluster.Key(d.pod.Namespace, d.pod.Name),
		"mode", d.How, "gracePeriodSeconds", d.grace, "reason", v.d.Reason, "message", v.d.Message)
	r.timed(v.state.move, podRef(d.pod.Namespace, d.pod.Name, d.pod.UID), pvRef(v.pv), EventForceDeleted, action, fmt.Sprintf(
		"pod deleted because a used volume is marked as failing: %s, for %s on node %s: %s", mode, named("volume", volumes), v.in.Node.Name, because(v.d)))
}

func (r *reporter) detached(ctx context.Context, v *volume, done string) {
	attachment := *v.in.Attachment
	ctrl.LoggerFrom(ctx).Info(done, "node", v.in.Node.Name, "volume", v.pv.Name, "volumeAttachment", attachment.Name,
		"reason", v.d.Reason, "message", v.d.Message)
	v.state.wasDetached(attachment, v.d, r.clock.Now())
	v.state.leaveToKubernetes(attachment.UID, r.clock.Now())
	r.metrics.AttachmentDeleted()
	r.timed(v.state.move, attachmentRef(attachment.Name, attachment.UID), pvRef(v.pv), EventForceDetached, actionDetach, fmt.Sprintf(
		"volume detached because it is marked as failing: volume %s from node %s: %s", v.pv.Name, v.in.Node.Name, because(v.d)))
}

// failedOver reports that a volume is attached to another node, which ends its fail-over.
func (r *reporter) failedOver(ctx context.Context, node string, pv *corev1.PersistentVolume, known *volumeState, to *storagev1.VolumeAttachment) {
	m, now, took := known.move, r.clock.Now(), ""
	known.took(r.metrics, metrics.StageAttached, now.Sub(m.since))
	if !m.suspect.IsZero() {
		total := now.Sub(m.suspect)
		known.took(r.metrics, metrics.StageTotal, total)
		took = fmt.Sprintf(" %.1f s after the first sign of the loss", total.Seconds())
	}
	known.move, known.deleted = nil, nil
	r.metrics.FailoverCompleted(m.reason)
	if claim := pv.Spec.ClaimRef; claim != nil {
		// What is related distinguishes one fail-over of the claim from the next.
		regarding := ref("v1", "PersistentVolumeClaim", claim.Namespace, claim.Name, claim.UID)
		r.timed(m, regarding, attachmentRef(to.Name, to.UID), EventFailedOver, actionMove, fmt.Sprintf("volume %s failed over from node %s to node %s%s, and is attached there: %s",
			pv.Name, node, to.Spec.NodeName, took, because(failover.Decision{Reason: m.reason, Message: m.message})))
	}
	ctrl.LoggerFrom(ctx).Info("Failed over", "volume", pv.Name, "from", node, "to", to.Spec.NodeName, "seconds", m.seconds, "reason", m.reason)
}

// event records a Warning.
func (s *shared) event(regarding, related runtime.Object, reason, action, note string) {
	s.recorder.Eventf(regarding, related, corev1.EventTypeWarning, reason, action, "%s", truncated(note))
}

// timed records a Warning with the seconds that each stage of a fail-over took so far.
func (s *shared) timed(m *move, regarding, related runtime.Object, reason, action, note string) {
	recorder, ok := s.recorder.(events.AnnotatedEventRecorder)
	if !ok || m == nil {
		s.event(regarding, related, reason, action, note)
		return
	}
	seconds, _ := json.Marshal(m.seconds) //nolint:errchkjson // numbers
	recorder.AnnotatedEventf(regarding, related, map[string]string{cluster.AnnotationSeconds: string(seconds)}, corev1.EventTypeWarning, reason, action,
		"%s", truncated(note))
}

func because(d failover.Decision) string { return string(d.Reason) + ": " + d.Message }

// namesInNote is how many names a note has of many.
const namesInNote = 5

// named lists the names of some objects of a kind; if there are many, the first ones and how many more.
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

// truncated makes a text the valid note of an Event, in one line, although others may have written a part of it.
func truncated(note string) string {
	note = strings.ToValidUTF8(strings.Join(strings.Fields(note), " "), "?")
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit], "") // what was cut in the middle of a character
	}
	return note
}

func podRef(namespace, name string, uid types.UID) runtime.Object {
	return ref("v1", "Pod", namespace, name, uid)
}

func pvRef(pv *corev1.PersistentVolume) runtime.Object {
	return ref("v1", "PersistentVolume", "", pv.Name, pv.UID)
}

func nodeRef(node *corev1.Node) runtime.Object { return ref("v1", "Node", "", node.Name, node.UID) }

func attachmentRef(name string, uid types.UID) runtime.Object {
	return ref("storage.k8s.io/v1", "VolumeAttachment", "", name, uid)
}

// ref refers to an object by its UID, without which "kubectl describe" does not show the Event.
func ref(apiVersion, kind, namespace, name string, uid types.UID) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
	}
}
