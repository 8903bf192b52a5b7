package csidriver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Object returns the CSIDriver object, without which nothing is attached.
func Object() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: Name},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(true),
			PodInfoOnMount: new(true),
			FSGroupPolicy:  new(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		},
	}
}

// Volume describes a PersistentVolume of an existing LINSTOR resource together with its claim.
type Volume struct {
	// Handle is the CSI volume handle: "resource" or "resource/volume number". Required.
	Handle string
	// Name of the PersistentVolume; the handle by default, which fits only without a volume number.
	Name string
	// Namespace and Claim name the claim. The claim's name is the volume's by default.
	Namespace, Claim string
	// Labels are set on both objects.
	Labels map[string]string
	// AccessModes of both objects; ReadWriteOnce by default.
	AccessModes []corev1.PersistentVolumeAccessMode
	// Block makes it a raw block volume.
	Block bool
	// ReadOnly makes the PersistentVolume read-only.
	ReadOnly bool
	// NFSExport marks a volume that is served over NFS.
	NFSExport bool
}

// withDefaults returns v with its empty fields filled in.
func (v Volume) withDefaults() Volume {
	if v.Name == "" {
		v.Name = v.Handle
	}
	if v.Claim == "" {
		v.Claim = v.Name
	}
	if len(v.AccessModes) == 0 {
		v.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return v
}

// mode returns the volume's mode.
func (v Volume) mode() *corev1.PersistentVolumeMode {
	if v.Block {
		return new(corev1.PersistentVolumeBlock)
	}
	return new(corev1.PersistentVolumeFilesystem)
}

// volumeSize is the nominal size of all volumes.
func volumeSize() resource.Quantity { return resource.MustParse("1Gi") }

// PersistentVolume returns the volume's PersistentVolume, reserved for its claim.
func (v Volume) PersistentVolume() *corev1.PersistentVolume {
	v = v.withDefaults()
	csi := &corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: v.Handle, ReadOnly: v.ReadOnly}
	if !v.Block {
		csi.FSType = "ext4"
	}
	if v.NFSExport {
		csi.VolumeAttributes = map[string]string{NFSExportKey: "true"}
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Labels: v.Labels},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: volumeSize()},
			AccessModes: v.AccessModes,
			VolumeMode:  v.mode(),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: v.Namespace, Name: v.Claim,
			},
			// Nobody provisions here, hence nobody would delete.
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: csi},
		},
	}
}

// PersistentVolumeClaim returns the claim that is bound to the volume's PersistentVolume.
func (v Volume) PersistentVolumeClaim() *corev1.PersistentVolumeClaim {
	v = v.withDefaults()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: v.Claim, Namespace: v.Namespace, Labels: v.Labels},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      v.AccessModes,
			VolumeMode:       v.mode(),
			VolumeName:       v.Name,
			StorageClassName: new(""),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: volumeSize()},
			},
		},
	}
}

// Create creates the volume's PersistentVolume and claim. Kubernetes binds them within about a second.
func (v Volume) Create(ctx context.Context, client kubernetes.Interface) error {
	core := client.CoreV1()
	if _, err := core.PersistentVolumes().Create(ctx, v.PersistentVolume(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create volume of handle %s: %w", v.Handle, err)
	}
	if _, err := core.PersistentVolumeClaims(v.Namespace).Create(ctx, v.PersistentVolumeClaim(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create claim of handle %s in namespace %s: %w", v.Handle, v.Namespace, err)
	}
	return nil
}
