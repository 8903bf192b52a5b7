package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const podKind = "Pod"

// Pods looks up pods in the cache, which has selected ones at least. They are the cache's own, and must not be changed.
type Pods struct {
	cache    client.Reader
	volumes  Volumes
	selector labels.Selector
}

// Of returns the pods that use the volume.
func (p Pods) Of(ctx context.Context, pv *corev1.PersistentVolume) ([]corev1.Pod, error) {
	claims, err := p.volumes.claims(ctx, pv)
	if err != nil {
		return nil, err
	}
	return p.by(ctx, claims)
}

// by returns the pods that use a volume by one of the claims ("namespace/claim").
func (p Pods) by(ctx context.Context, claims []string) ([]corev1.Pod, error) {
	var all []corev1.Pod
	for i, claim := range claims {
		pods, err := p.list(ctx, client.MatchingFields{indexPodClaims: claim})
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			if uses(&pod, claims[i:i+1]) && !uses(&pod, claims[:i]) {
				all = append(all, pod)
			}
		}
	}
	return all, nil
}

// On returns the pods on a node.
func (p Pods) On(ctx context.Context, node string) ([]corev1.Pod, error) {
	return p.list(ctx, client.MatchingFields{indexPodNode: node})
}

func (p Pods) list(ctx context.Context, field client.MatchingFields) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := p.cache.List(ctx, &pods, field, shared); err != nil {
		return nil, fmt.Errorf("looking up pods: %w", err)
	}
	return pods.Items, nil
}

// Resources returns the LINSTOR resources of a volume and of all other volumes of pods, its own one first.
func (p Pods) Resources(ctx context.Context, pv *corev1.PersistentVolume, pods []corev1.Pod) ([]string, error) {
	resources := []string{p.volumes.Resource(pv)}
	for i := range pods {
		others, err := p.others(ctx, &pods[i], pv)
		if err != nil {
			return nil, err
		}
		for _, other := range others.ours {
			if name := p.volumes.Resource(other.PersistentVolume); !slices.Contains(resources, name) {
				resources = append(resources, name)
			}
		}
	}
	return resources, nil
}

// MissedBy returns the selected pod for which a helper, which is not selected itself, holds volumes on the same node; nil where there is
// none. It would be moved without them.
func (p Pods) MissedBy(ctx context.Context, helper *corev1.Pod) (*corev1.Pod, error) {
	if Ended(helper) || p.selected(helper) {
		return nil, nil
	}
	owner, err := p.helped(ctx, helper)
	if err != nil || owner == nil || isExempt(owner) || !p.selected(owner) {
		return nil, err
	}
	return owner, nil
}

// helped returns the pod that controls a helper and is on its node; nil where no pod does, or it is not selected: the cache has selected pods,
// at least.
func (p Pods) helped(ctx context.Context, helper *corev1.Pod) (*corev1.Pod, error) {
	ref := ownerOf(helper)
	if ref == nil {
		return nil, nil
	}
	var owner corev1.Pod
	if err := p.cache.Get(ctx, client.ObjectKey{Namespace: helper.Namespace, Name: ref.Name}, &owner); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("looking up pod %s: %w", Key(helper.Namespace, ref.Name), err)
	}
	if owner.UID != ref.UID || owner.Spec.NodeName != helper.Spec.NodeName {
		return nil, nil
	}
	return &owner, nil
}

// helpsExempt reports whether one of the pods of the helper's node controls it and is exempt.
func helpsExempt(helper *corev1.Pod, node []corev1.Pod) bool {
	ref := ownerOf(helper)
	return ref != nil && slices.ContainsFunc(node, func(pod corev1.Pod) bool { return pod.UID == ref.UID && isExempt(&pod) })
}

// ownerOf returns the reference of a helper to the pod that controls it; nil where no pod does.
func ownerOf(helper *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(helper); ref != nil && ref.Kind == podKind {
		return ref
	}
	return nil
}

func isExempt(pod *corev1.Pod) bool {
	_, exempt := pod.Annotations[AnnotationIgnore]
	return exempt
}

func (p Pods) selected(pod *corev1.Pod) bool { return p.selector.Matches(labels.Set(pod.Labels)) }

// podFacts translates one pod, which uses the volume by the claims, into what the policy wants to know of it, its other volumes
// excepted.
func podFacts(pod *corev1.Pod, selector labels.Selector, claims []string) failover.Pod {
	owner := metav1.GetControllerOf(pod)
	facts := failover.Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		UID:       pod.UID,
		HasRun:    HasRun(pod),
		Runs:      runs(pod),
		ReadOnly:  mountsReadOnly(pod, claims),
		Selected:  selector.Matches(labels.Set(pod.Labels)),
		Exempt:    isExempt(pod),

		StaysOutOfService: staysOutOfService(pod.Spec.Tolerations),

		Owned:     owner != nil,
		NodeBound: owner != nil && (owner.Kind == daemonSet || owner.Kind == "Node"),
	}
	if owner != nil && owner.Kind == podKind {
		facts.HelperOf = owner.Name
	}
	facts.Finalizers = len(pod.Finalizers) > 0
	if pod.DeletionTimestamp != nil {
		facts.Terminating, facts.Grace = true, time.Duration(graceOf(pod))*time.Second
		facts.Forced = pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
		facts.Unended = facts.Forced && facts.Finalizers && !Ended(pod)
	}
	return facts
}

// staysOutOfService reports whether who has these tolerations tolerates the taint of a node that is out of service for good, whatever its value: which
// one it has is not known here.
func staysOutOfService(tolerations []corev1.Toleration) bool {
	tolerates := false
	for i, t := range tolerations {
		taint := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: t.Value, Effect: corev1.TaintEffectNoExecute}
		if !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations[i:i+1], &taint, false) {
			continue
		}
		if t.TolerationSeconds != nil {
			return false
		}
		tolerates = tolerates || t.Operator == corev1.TolerationOpExists
	}
	return tolerates
}

// containersOf returns the states of all containers of a pod, init containers first: the kubelet starts none of either kind before all
// volumes are mounted.
func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// HasRun reports whether any container of the pod has started.
func HasRun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}

// runs reports whether a container of the pod runs.
func runs(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containersOf(pod), func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// mountsReadOnly reports whether the pod asks for the claims ("namespace/claim") read-only everywhere it uses one.
func mountsReadOnly(pod *corev1.Pod, claims []string) bool {
	used := false
	for _, volume := range pod.Spec.Volumes {
		if !slices.Contains(claims, Key(pod.Namespace, claimName(pod, volume))) {
			continue
		}
		if volume.PersistentVolumeClaim == nil || !volume.PersistentVolumeClaim.ReadOnly {
			return false
		}
		used = true
	}
	return used
}

// uses reports whether the pod is one of those that hold one of the claims ("namespace/claim"). A pod that has ended by itself
// holds nothing any more, as for Kubernetes' attach/detach controller; one that a fail-over has marked as
// failed does, until its object is gone.
func uses(pod *corev1.Pod, claims []string) bool {
	if Ended(pod) && !Disrupted(pod) {
		return false
	}
	return slices.ContainsFunc(ClaimsOf(pod), func(claim string) bool { return slices.Contains(claims, claim) })
}

// Disrupted reports whether a fail-over has set the pod's condition.
func Disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && strings.HasPrefix(c.Message, DisruptedBy)
	})
}

// podVolume is a volume of ours as one pod uses it.
type podVolume struct {
	*corev1.PersistentVolume
	// ephemeral is set where the claim is the pod's own, and goes with it.
	ephemeral bool
}

// otherVolumes are the volumes of a pod other than a given one.
type otherVolumes struct {
	ours []podVolume
	// unsafe names the first one that may not survive a move, and unbound the first claim of which no PersistentVolume is known to be bound;
	// empty where there is none. A claim of a running pod had one: where it is being created again, what the pod writes there is not known.
	unsafe, unbound string
}

// others sorts a pod's volumes other than the given one. Where a claim seems to have several volumes, the pod may use any of them, unless
// one is the given one. A claim that goes with the pod need not be bound.
func (p Pods) others(ctx context.Context, pod *corev1.Pod, except *corev1.PersistentVolume) (otherVolumes, error) {
	var all otherVolumes
	for _, volume := range pod.Spec.Volumes {
		name := claimName(pod, volume)
		if name == "" {
			if !isEverywhere(pod, volume) {
				all.unsafe = cmp.Or(all.unsafe, volume.Name)
			}
			continue
		}
		claim, ephemeral := Key(pod.Namespace, name), volume.Ephemeral != nil
		bound, err := p.volumes.OfClaim(ctx, claim)
		if err != nil {
			return otherVolumes{}, err
		}
		if slices.ContainsFunc(bound, func(pv *corev1.PersistentVolume) bool { return sameVolume(pv, except) }) {
			continue
		}
		if len(bound) == 0 && !ephemeral {
			all.unbound = cmp.Or(all.unbound, claim)
		}
		for _, pv := range bound {
			if p.volumes.Resource(pv) != "" {
				all.ours = append(all.ours, podVolume{pv, ephemeral})
				continue
			}
			if !ephemeral && !isSharedFileSystem(pv) {
				all.unsafe = cmp.Or(all.unsafe, volume.Name)
			}
		}
	}
	return all, nil
}

// isEverywhere reports whether a pod can have a volume, which is no claim, on any node with the same content, or needs none: an inline CSI volume is
// ephemeral, and a directory of the host that no container can write has what each host has.
func isEverywhere(pod *corev1.Pod, volume corev1.Volume) bool {
	source := volume.VolumeSource
	return source.ConfigMap != nil || source.Secret != nil || source.Projected != nil || source.DownwardAPI != nil || source.EmptyDir != nil ||
		source.Image != nil || source.CSI != nil || source.NFS != nil || source.HostPath != nil && isReadOnly(pod, volume.Name)
}

// isReadOnly reports whether all containers that mount a volume of a pod do so read-only, and there are any.
func isReadOnly(pod *corev1.Pod, volume string) bool {
	var mounts []corev1.VolumeMount
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		mounts = append(mounts, c.VolumeMounts...)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		mounts = append(mounts, c.VolumeMounts...)
	}
	mounts = slices.DeleteFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name != volume })
	return len(mounts) > 0 && !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return !m.ReadOnly })
}

// isSharedFileSystem reports whether a volume of another driver is a file system that many nodes may use.
func isSharedFileSystem(pv *corev1.PersistentVolume) bool {
	nodeLocal := pv.Spec.HostPath != nil || pv.Spec.Local != nil // on each node another one, whatever its modes say
	return !nodeLocal && !isBlock(pv) && slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany)
}

// Ended reports whether a pod has run to its end.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
