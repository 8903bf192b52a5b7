package cluster

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzVolumeHandle reads any handle: what is before the first slash is the resource, whatever the volume's own name,
// and the handles of all volumes of a resource lead to it.
func FuzzVolumeHandle(f *testing.F) {
	const driver = "linstor.csi.linbit.com"
	volumes := Volumes{driver: driver}
	volume := func(driver, handle string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
		return pv
	}
	f.Fuzz(func(t *testing.T, handle string) {
		resource := volumes.Resource(volume(driver, handle))
		if strings.Contains(resource, "/") || !strings.HasPrefix(handle+"/", resource+"/") {
			t.Fatalf("resource %q is not the first part of %q", resource, handle)
		}
		if again := volumes.Resource(volume(driver, resource+"/1")); again != resource {
			t.Fatalf("volume 1 of resource %q is of resource %q", resource, again)
		}
		if volumes.Resource(volume("other."+driver, handle)) != "" {
			t.Fatal("a volume of another driver is ours")
		}
		if volumes.Resource(&corev1.PersistentVolume{}) != "" {
			t.Fatal("a volume without a driver is ours")
		}
		for _, i := range indexes(driver) {
			if i.field != indexVolumeResource {
				continue
			}
			found := slices.Contains(i.extract(volume(driver, handle)), strings.ToLower(resource))
			if found != (resource != "") {
				t.Fatalf("found by its resource %q: %t", resource, found)
			}
		}
	})
}
