package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// podFacts translates one pod, which uses the volume by the claims, into what the policy wants to know of it, its other volumes
// excepted.
func podFacts(pod *corev1.Pod, selector labels.Selector, claims []string) failover.Pod {
	owner := metav1.GetControllerOf(pod)
	_, exempt := pod.Annotations[AnnotationIgnore]
	facts := failover.Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		UID:       pod.UID,
		Created:   pod.CreationTimestamp.Time,
		Bound:     boundAt(pod),
		HasRun:    hasRun(pod),
		ReadOnly:  mountsReadOnly(pod, claims),
		Selected:  selector.Matches(labels.Set(pod.Labels)),
		Exempt:    exempt,
		Owned:     owner != nil,
		NodeBound: owner != nil && (owner.Kind == daemonSet || owner.Kind == "Node"),
	}
	if owner != nil && owner.Kind == podKind {
		facts.HelperOf = owner.Name
	}
	facts.Started, facts.RunningSince = startOf(pod)
	facts.Finalizers = len(pod.Finalizers) > 0
	if pod.DeletionTimestamp != nil {
		// The API server sets it to the end of the grace, not to its start.
		facts.DeleteBy = pod.DeletionTimestamp.Time
		facts.Forced = pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	}
	return facts
}

// local turns the times of a pod, which are the API server's, into those of our clock.
func (g *gatherer) local(pod failover.Pod) failover.Pod {
	for _, at := range []*time.Time{&pod.Created, &pod.Bound, &pod.Started, &pod.RunningSince, &pod.DeleteBy} {
		*at = g.serverTime.Local(*at)
	}
	return pod
}

func boundAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// containersOf returns the states of all containers of a pod, init containers first: the kubelet starts none of either kind before all
// volumes are mounted.
func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// hasRun tells whether any container of the pod has started.
func hasRun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}

// startOf returns when the first container of the pod started that is known of, and the first one of those that run; zero where there
// is none.
func startOf(pod *corev1.Pod) (started, runningSince time.Time) {
	first := func(known *time.Time, at metav1.Time) {
		if !at.IsZero() && (known.IsZero() || at.Time.Before(*known)) {
			*known = at.Time
		}
	}
	for _, c := range containersOf(pod) {
		if running := c.State.Running; running != nil {
			first(&started, running.StartedAt)
			first(&runningSince, running.StartedAt)
		}
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if state.Terminated != nil {
				first(&started, state.Terminated.StartedAt)
			}
		}
	}
	return started, runningSince
}

// mountsReadOnly tells whether the pod asks for the claims ("namespace/claim") read-only everywhere it uses one.
func mountsReadOnly(pod *corev1.Pod, claims []string) bool {
	used := false
	for _, volume := range pod.Spec.Volumes {
		if !slices.Contains(claims, key(pod.Namespace, claimName(pod, volume))) {
			continue
		}
		if volume.PersistentVolumeClaim == nil || !volume.PersistentVolumeClaim.ReadOnly {
			return false
		}
		used = true
	}
	return used
}

// uses tells whether the pod is one of those that hold one of the claims ("namespace/claim"). A pod that has ended by itself
// holds nothing any more, as for Kubernetes' attach/detach controller; one that a fail-over has marked as
// failed does, until its object is gone.
func uses(pod *corev1.Pod, claims []string) bool {
	if ended(pod) && !disrupted(pod) {
		return false
	}
	return slices.ContainsFunc(claimsOf(pod), func(claim string) bool { return slices.Contains(claims, claim) })
}

// disruptedBy begins the message of the condition DisruptionTarget that a fail-over sets. Others set that condition too, the kubelet
// when it evicts a pod.
const disruptedBy = "PiraeusHAController: "

// disrupted tells whether a fail-over has marked the pod.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && strings.HasPrefix(c.Message, disruptedBy)
	})
}

// podVolume is a volume of ours as one pod uses it.
type podVolume struct {
	*corev1.PersistentVolume
	// ephemeral is set where the claim is the pod's own, and goes with it.
	ephemeral bool
}

// podVolumes sorts a pod's volumes: the PersistentVolumes of our driver other than the given one, and the name of the
// first volume that may not survive a move. Where a claim seems to have several volumes, the pod may use any of them, unless one is
// the given one.
func (g *gatherer) podVolumes(ctx context.Context, pod *corev1.Pod, except *corev1.PersistentVolume) ([]podVolume, string, error) {
	var ours []podVolume
	unsafe := ""
	for _, volume := range pod.Spec.Volumes {
		name := claimName(pod, volume)
		if name == "" {
			if unsafe == "" && !safeSource(volume.VolumeSource) {
				unsafe = volume.Name
			}
			continue
		}
		bound, err := g.volumesOfClaim(ctx, key(pod.Namespace, name))
		if err != nil {
			return nil, "", err
		}
		if slices.ContainsFunc(bound, func(pv *corev1.PersistentVolume) bool { return sameVolume(pv, except) }) {
			continue
		}
		safe := len(bound) > 0 || volume.Ephemeral != nil
		for _, pv := range bound {
			if g.isOurs(pv) {
				ours = append(ours, podVolume{pv, volume.Ephemeral != nil})
				continue
			}
			survives, err := g.survivesMove(ctx, pv, volume, pod.Spec.NodeName)
			if err != nil {
				return nil, "", err
			}
			safe = safe && survives
		}
		if !safe && unsafe == "" {
			unsafe = volume.Name
		}
	}
	return ours, unsafe, nil
}

// survivesMove tells whether a pod's volume of another driver can be had on any node.
func (g *gatherer) survivesMove(ctx context.Context, pv *corev1.PersistentVolume, volume corev1.Volume, node string) (bool, error) {
	if volume.Ephemeral != nil {
		return true, nil
	}
	return g.sharedWithoutAttachment(ctx, pv, node)
}

// safeSource tells whether a volume that is no claim can be had on any node.
func safeSource(source corev1.VolumeSource) bool {
	return source.ConfigMap != nil || source.Secret != nil || source.Projected != nil ||
		source.DownwardAPI != nil || source.EmptyDir != nil
}

// sharedWithoutAttachment tells whether a volume may be used by many nodes and is not attached to this one by
// any driver, like a network file system.
func (g *gatherer) sharedWithoutAttachment(ctx context.Context, pv *corev1.PersistentVolume, node string) (bool, error) {
	if !slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) {
		return false, nil
	}
	var attachments storagev1.VolumeAttachmentList
	if err := g.cache.List(ctx, &attachments, client.MatchingFields{indexAttachmentVolume: pv.Name}, shared); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == node }), nil
}
