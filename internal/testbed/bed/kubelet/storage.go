package kubelet

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// Storage is the block storage of the nodes: what mounting a volume does to DRBD.
type Storage interface {
	// Open opens the resource's device on a node. An error refuses: the kubelet tries again.
	Open(resource, node string, readOnly bool) error
	// Close undoes one successful Open.
	Close(resource, node string)
}

// IOHanger is implemented by a Storage that knows when IO hangs, as it does on a DRBD device without
// quorum and on-no-quorum=suspend-io. Containers that have the device open can not be stopped then.
type IOHanger interface {
	// IOHangs tells whether a process that uses the resource's device on the node waits for IO.
	IOHangs(resource, node string) bool
}

// UniqueVolumeName returns the name under which Kubernetes lists a CSI volume in a node's
// volumesInUse and volumesAttached.
func UniqueVolumeName(driver, volumeHandle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + volumeHandle)
}

// AttachmentName returns the name that the attach/detach controller gives to the VolumeAttachment of a
// CSI volume and a node.
func AttachmentName(driver, volumeHandle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volumeHandle+driver+node)))
}

// volume is one volume of one pod.
type volume struct {
	name     corev1.UniqueVolumeName
	handle   string
	pv       string
	resource string
	block    bool
	readOnly bool
	nfs      bool
}

// newVolume describes how a pod that refers to its claim by source uses pv.
func newVolume(pv *corev1.PersistentVolume, source *corev1.PersistentVolumeClaimVolumeSource) volume {
	csi := pv.Spec.CSI
	_, nfs := csi.VolumeAttributes[csidriver.NFSExportKey]
	return volume{
		name:     UniqueVolumeName(csi.Driver, csi.VolumeHandle),
		handle:   csi.VolumeHandle,
		pv:       pv.Name,
		resource: csidriver.Resource(csi.VolumeHandle),
		block:    pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock,
		readOnly: source.ReadOnly || csi.ReadOnly || readOnlyMany(pv.Spec.AccessModes),
		nfs:      nfs,
	}
}

// readOnlyMany tells whether ReadOnlyMany is the only access mode.
func readOnlyMany(modes []corev1.PersistentVolumeAccessMode) bool {
	for _, mode := range modes {
		if mode != corev1.ReadOnlyMany {
			return false
		}
	}
	return len(modes) > 0
}

// opened tells whether the pod opens the volume's DRBD device, at the latest when its containers run.
func (v volume) opened(pod *corev1.Pod) bool {
	return !v.nfs && (!v.block || opensBlock(pod))
}

// attached tells whether attachment says that the volume is attached.
func attached(attachment *storagev1.VolumeAttachment) bool {
	return attachment != nil && attachment.Status.Attached && attachment.DeletionTimestamp == nil
}
