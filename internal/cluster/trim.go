package cluster

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
)

// Trim returns a function that drops from an object what nobody here looks at before it goes into a cache: most of what
// thousands of pods, volumes and attachments consist of. Objects with the same labels, or the same placement, share them. Of a pod's
// labels it leaves those that the selector asks for, or all without one.
//
// The function changes the object itself and returns it. A trimmed object may be patched by what has changed, and must never
// be updated as a whole.
func Trim(selector labels.Selector) toolscache.TransformFunc {
	t := &trimmer{labels: make(map[string]map[string]string), places: make(map[string]*placement)}
	if selector != nil {
		t.keys = make(map[string]bool)
		requirements, _ := selector.Requirements()
		for _, requirement := range requirements {
			t.keys[requirement.Key()] = true
		}
	}
	return t.trim
}

// trimmer knows the labels and the placements that many objects have in common, and retains each of them once.
type trimmer struct {
	// keys of the labels that are kept; nil for all.
	keys map[string]bool

	mu     sync.Mutex
	labels map[string]map[string]string
	places map[string]*placement
}

// manySame bounds how many sets of labels, and how many placements, are retained for sharing. In a larger cluster they are shared less well.
const manySame = 10000

const daemonSet = "DaemonSet"

// The values that objects share in which they are pointers.
var (
	filesystemMode = corev1.PersistentVolumeFilesystem
	blockMode      = corev1.PersistentVolumeBlock
	controlling    = true
	// readOnlyOptions are all that counts of the mount options of a volume.
	readOnlyOptions = []string{mountedReadOnly}
)

func (t *trimmer) trim(o any) (any, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return o, nil // of an object that is gone only its name is left
	}
	object.SetManagedFields(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Pod:
		t.meta(&o.ObjectMeta, AnnotationIgnore, AnnotationUnsafe)
		t.pod(o)
	case *corev1.PersistentVolume:
		t.meta(&o.ObjectMeta, "")
		t.volume(o)
	case *storagev1.VolumeAttachment:
		t.meta(&o.ObjectMeta, AnnotationFailOver, AnnotationUnconfirmed, AnnotationMayRun)
		o.Status = storagev1.VolumeAttachmentStatus{Attached: o.Status.Attached}
	case *storagev1.CSINode:
		for i, driver := range o.Spec.Drivers {
			o.Spec.Drivers[i] = storagev1.CSINodeDriver{Name: driver.Name, NodeID: driver.NodeID}
		}
	case *corev1.Node:
		o.Status = corev1.NodeStatus{
			Conditions: o.Status.Conditions,
			NodeInfo:   corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
		}
	}
	return o, nil
}

// meta keeps some annotations, the labels that are selected by, and what owner controls the object.
func (t *trimmer) meta(m *metav1.ObjectMeta, annotations ...string) {
	m.GenerateName, m.Finalizers = "", nil
	maps.DeleteFunc(m.Annotations, func(key, _ string) bool { return !slices.Contains(annotations, key) })
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	if t.keys != nil {
		maps.DeleteFunc(m.Labels, func(key, _ string) bool { return !t.keys[key] })
		m.Labels = t.labelsOnce(m.Labels)
	}
	m.OwnerReferences = slices.DeleteFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Controller == nil || !*r.Controller })
	for i, owner := range m.OwnerReferences {
		kept := metav1.OwnerReference{Kind: owner.Kind, Controller: &controlling}
		switch owner.Kind {
		case daemonSet:
			kept.Name = owner.Name
		case podKind:
			kept.Name, kept.UID = owner.Name, owner.UID
		}
		m.OwnerReferences[i] = kept
	}
}

// labelsOnce returns the set of labels of that content which other objects have already.
func (t *trimmer) labelsOnce(set map[string]string) map[string]string {
	if len(set) == 0 {
		return nil
	}
	content := labels.Set(set).String()
	if known, ok := t.labels[content]; ok {
		return known
	}
	if len(t.labels) >= manySame {
		clear(t.labels)
	}
	t.labels[content] = maps.Clone(set)
	return t.labels[content]
}

func (t *trimmer) pod(pod *corev1.Pod) {
	where := t.placementOnce(placementOf(pod))
	spec := corev1.PodSpec{
		NodeName: pod.Spec.NodeName, Volumes: decisiveVolumes(pod),
		NodeSelector: where.NodeSelector, Affinity: where.Affinity, Tolerations: where.Tolerations,
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	ofDaemonSet := owner != nil && owner.Kind == daemonSet
	if ofDaemonSet {
		// Its name and the images tell which are node agents, and its readiness which of them run.
		for _, c := range pod.Spec.Containers {
			spec.Containers = append(spec.Containers, corev1.Container{Image: c.Image})
		}
	}
	pod.Spec = spec
	conditions := make([]corev1.PodCondition, 0, 1)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget || c.Type == corev1.PodReady && ofDaemonSet {
			kept := corev1.PodCondition{Type: c.Type, Status: c.Status}
			if c.Type == corev1.DisruptionTarget && strings.HasPrefix(c.Message, DisruptedBy) {
				kept.Message = DisruptedBy
			}
			conditions = append(conditions, kept)
		}
	}
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: conditions,
		InitContainerStatuses: decisiveStatuses(pod.Status.InitContainerStatuses),
		ContainerStatuses:     decisiveStatuses(pod.Status.ContainerStatuses),
	}
}

// decisiveStatuses leaves of each container whether it runs, and whether it has run.
func decisiveStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	if len(all) == 0 {
		return nil
	}
	decisive := func(state corev1.ContainerState) (kept corev1.ContainerState) {
		if state.Running != nil {
			kept.Running = &corev1.ContainerStateRunning{}
		}
		if state.Terminated != nil {
			kept.Terminated = &corev1.ContainerStateTerminated{}
		}
		return kept
	}
	kept := make([]corev1.ContainerStatus, len(all))
	for i, c := range all {
		kept[i] = corev1.ContainerStatus{State: decisive(c.State), LastTerminationState: decisive(c.LastTerminationState)}
	}
	return kept
}

// decisiveVolumes leaves the volumes that are claims, or that may not survive a move.
func decisiveVolumes(pod *corev1.Pod) []corev1.Volume {
	safe := func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim == nil && v.Ephemeral == nil && isEverywhere(pod, v)
	}
	kept := slices.Clone(slices.DeleteFunc(pod.Spec.Volumes, safe)) // in an array no larger than it need be
	for i := range kept {
		if kept[i].Ephemeral != nil {
			kept[i].Ephemeral = &corev1.EphemeralVolumeSource{} // only the kind counts
		}
	}
	return kept
}

func (t *trimmer) volume(pv *corev1.PersistentVolume) {
	spec := corev1.PersistentVolumeSpec{
		NodeAffinity: t.placementOnce(placement{Volume: pv.Spec.NodeAffinity}).Volume, AccessModes: pv.Spec.AccessModes,
	}
	if slices.Contains(pv.Spec.MountOptions, mountedReadOnly) {
		spec.MountOptions = readOnlyOptions
	}
	if mode := pv.Spec.VolumeMode; mode != nil {
		spec.VolumeMode = &filesystemMode
		if *mode == corev1.PersistentVolumeBlock {
			spec.VolumeMode = &blockMode
		}
	}
	if claim := pv.Spec.ClaimRef; claim != nil {
		spec.ClaimRef = &corev1.ObjectReference{
			Kind: claim.Kind, APIVersion: claim.APIVersion, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		}
	}
	if pv.Spec.HostPath != nil { // of these only the kind counts
		spec.HostPath = &corev1.HostPathVolumeSource{}
	}
	if pv.Spec.Local != nil {
		spec.Local = &corev1.LocalVolumeSource{}
	}
	if csi := pv.Spec.CSI; csi != nil {
		spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, ReadOnly: csi.ReadOnly}
		if value, ok := csi.VolumeAttributes[nfsExport]; ok {
			spec.CSI.VolumeAttributes = map[string]string{nfsExport: value}
		}
	}
	pv.Spec = spec
	pv.Status = corev1.PersistentVolumeStatus{Phase: pv.Status.Phase}
}
