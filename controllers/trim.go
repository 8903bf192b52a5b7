package controllers

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

var _ toolscache.TransformFunc = Trim

// Trim drops from an object what nobody here looks at before it goes into a cache: most of what thousands of pods, volumes
// and attachments consist of. It changes the object itself and returns it. A trimmed object may be patched by what has
// changed, and must never be updated as a whole.
func Trim(o any) (any, error) {
	object, ok := o.(metav1.Object)
	if !ok {
		return o, nil // of an object that is gone only its name is left
	}
	object.SetManagedFields(nil)
	switch o := o.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *corev1.PersistentVolume:
		trimVolume(o)
	case *storagev1.VolumeAttachment:
		trimMeta(&o.ObjectMeta, AnnotationFailOver)
		o.Status = storagev1.VolumeAttachmentStatus{Attached: o.Status.Attached}
	case *corev1.Node:
		o.Status = corev1.NodeStatus{
			Conditions: o.Status.Conditions,
			NodeInfo:   corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
		}
	}
	return o, nil
}

// trimMeta keeps one annotation only.
func trimMeta(m *metav1.ObjectMeta, annotation string) {
	maps.DeleteFunc(m.Annotations, func(key, _ string) bool { return key != annotation })
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
}

func trimPod(pod *corev1.Pod) {
	trimMeta(&pod.ObjectMeta, AnnotationIgnore)
	containers := make([]corev1.Container, len(pod.Spec.Containers))
	for i, c := range pod.Spec.Containers {
		containers[i] = corev1.Container{Name: c.Name, Image: c.Image}
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Volumes: pod.Spec.Volumes, Containers: containers}
	for i := range pod.Spec.Volumes {
		// Of what a volume is made from only the kind counts.
		if v := &pod.Spec.Volumes[i]; v.Projected != nil {
			v.Projected = &corev1.ProjectedVolumeSource{}
		}
	}
	statuses := make([]corev1.ContainerStatus, len(pod.Status.ContainerStatuses))
	for i, c := range pod.Status.ContainerStatuses {
		statuses[i] = corev1.ContainerStatus{Name: c.Name, State: c.State, LastTerminationState: c.LastTerminationState}
	}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, ContainerStatuses: statuses}
}

func trimVolume(pv *corev1.PersistentVolume) {
	trimMeta(&pv.ObjectMeta, "")
	pv.Labels, pv.Finalizers = nil, nil
	spec := corev1.PersistentVolumeSpec{AccessModes: pv.Spec.AccessModes, VolumeMode: pv.Spec.VolumeMode}
	if claim := pv.Spec.ClaimRef; claim != nil {
		spec.ClaimRef = &corev1.ObjectReference{Kind: claim.Kind, APIVersion: claim.APIVersion, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
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
