package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func TestTheClaimOfAVolume(t *testing.T) {
	t.Parallel()
	ref := &corev1.ObjectReference{Namespace: "shop", Name: "data"}
	for name, tc := range map[string]struct {
		ref   *corev1.ObjectReference
		phase corev1.PersistentVolumePhase
		want  string
	}{
		"a volume that is bound":                       {ref, corev1.VolumeBound, "shop/data"},
		"a volume that is reserved for a claim":        {ref, corev1.VolumeAvailable, ""},
		"a volume whose claim is gone":                 {ref, corev1.VolumeReleased, ""},
		"a volume that nobody asked for":               {nil, corev1.VolumeAvailable, ""},
		"a volume that is bound and says not to which": {nil, corev1.VolumeBound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pv := &corev1.PersistentVolume{}
			pv.Spec.ClaimRef, pv.Status.Phase = tc.ref, tc.phase
			if got := claimOf(pv); got != tc.want {
				t.Errorf("claim %q, want %q", got, tc.want)
			}
		})
	}
}

// One CSI volume may have several PersistentVolumes.
func TestWhichPersistentVolumesAreOneVolume(t *testing.T) {
	t.Parallel()
	volume := func(name string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}
	}
	data := volume("data", csi(virtual.Driver, "pvc-data"))
	for name, tc := range map[string]struct {
		a, b *corev1.PersistentVolume
		want bool
	}{
		"the same name":                     {data, data, true},
		"another name and the same handle":  {data, volume("again", csi(virtual.Driver, "pvc-data")), true},
		"another handle":                    {data, volume("wal", csi(virtual.Driver, "pvc-wal")), false},
		"the same handle of another driver": {data, volume("theirs", csi("other.example.com", "pvc-data")), false},
		"two that are of no CSI driver":     {volume("a", corev1.PersistentVolumeSource{}), volume("b", corev1.PersistentVolumeSource{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sameVolume(tc.a, tc.b); got != tc.want {
				t.Errorf("the same: %t, want %t", got, tc.want)
			}
		})
	}
}
