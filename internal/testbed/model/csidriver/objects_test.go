package csidriver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestVolumeAndClaimBelongTogether(t *testing.T) {
	tests := map[string]struct {
		volume   Volume
		name     string
		claim    string
		mode     corev1.PersistentVolumeMode
		accesses []corev1.PersistentVolumeAccessMode
		csi      corev1.CSIPersistentVolumeSource
	}{
		"a usual volume is named after its handle": {
			volume: Volume{Handle: "pvc-1", Namespace: "db"},
			name:   "pvc-1", claim: "pvc-1",
			mode:     corev1.PersistentVolumeFilesystem,
			accesses: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			csi:      corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: "pvc-1", FSType: "ext4"},
		},
		"a volume of a group has a name of its own": {
			volume: Volume{Handle: "cg-1/2", Name: "pv", Claim: "data", Namespace: "db"},
			name:   "pv", claim: "data",
			mode:     corev1.PersistentVolumeFilesystem,
			accesses: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			csi:      corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: "cg-1/2", FSType: "ext4"},
		},
		"a raw block volume has no filesystem": {
			volume: Volume{
				Handle: "vm", Namespace: "db", Block: true,
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			},
			name: "vm", claim: "vm",
			mode:     corev1.PersistentVolumeBlock,
			accesses: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			csi:      corev1.CSIPersistentVolumeSource{Driver: Name, VolumeHandle: "vm"},
		},
		"a read-only NFS export says so": {
			volume: Volume{Handle: "share", Namespace: "db", ReadOnly: true, NFSExport: true},
			name:   "share", claim: "share",
			mode:     corev1.PersistentVolumeFilesystem,
			accesses: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			csi: corev1.CSIPersistentVolumeSource{
				Driver: Name, VolumeHandle: "share", FSType: "ext4", ReadOnly: true,
				VolumeAttributes: map[string]string{"linstor.csi.linbit.com/nfs-export": "true"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			if err := test.volume.Create(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), test.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pvc, err := client.CoreV1().PersistentVolumeClaims("db").Get(t.Context(), test.claim, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.csi, pv.Spec.CSI); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			if pv.Spec.ClaimRef.Name != pvc.Name || pv.Spec.ClaimRef.Namespace != pvc.Namespace || pvc.Spec.VolumeName != pv.Name {
				t.Errorf("volume %s for %v, claim %s for %s", pv.Name, pv.Spec.ClaimRef, pvc.Name, pvc.Spec.VolumeName)
			}
			if *pv.Spec.VolumeMode != test.mode || *pvc.Spec.VolumeMode != test.mode {
				t.Errorf("modes %s and %s, want %s", *pv.Spec.VolumeMode, *pvc.Spec.VolumeMode, test.mode)
			}
			if diff := cmp.Diff(test.accesses, pv.Spec.AccessModes); diff != "" {
				t.Errorf("access modes of the volume (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.accesses, pvc.Spec.AccessModes); diff != "" {
				t.Errorf("access modes of the claim (-want +got):\n%s", diff)
			}
			if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName != "" {
				t.Error("the claim asks for provisioning")
			}
		})
	}
}

func TestVolumesAreAttached(t *testing.T) {
	if object := Object(); object.Name != "linstor.csi.linbit.com" || !*object.Spec.AttachRequired {
		t.Errorf("CSIDriver: %+v", object)
	}
}
