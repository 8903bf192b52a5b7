package csidriver

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// UniqueVolumeName returns the name under which Kubernetes lists a volume in a node's volumesInUse and volumesAttached.
func UniqueVolumeName(volumeHandle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + Name + "^" + volumeHandle)
}

// AttachmentName returns the name that the attach/detach controller gives to the VolumeAttachment of a volume and a node.
func AttachmentName(volumeHandle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volumeHandle+Name+node)))
}
