package controllers

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

var start = metav1.NewTime(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))

func claimVolume(name string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly},
	}}
}

func csi(driver, handle string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}
}

// bind binds a volume to a claim.
func bind(pv *corev1.PersistentVolume, namespace, claim string) {
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claim, UID: types.UID("claim " + claim)}
	pv.Status.Phase = corev1.VolumeBound
}

// nfsExport is the attribute of volumes that are mounted by NFS.
const nfsExport = "linstor.csi.linbit.com/nfs-export"

// disrupted tells whether a fail-over has marked the pod.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && strings.HasPrefix(c.Message, cluster.DisruptedBy)
	})
}
