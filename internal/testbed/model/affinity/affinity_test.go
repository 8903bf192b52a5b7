package affinity_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

func TestAPersistentVolume(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pv    func(*corev1.PersistentVolume)
		disks []string
		// allows are the satellites afterwards; replaced tells whether it is another object.
		allows   string
		replaced bool
	}{
		"that allows the nodes with a disk stays":       {disks: []string{"node-b", "node-a"}, allows: "node-a node-b"},
		"that allows fewer is replaced":                 {disks: []string{"node-a", "node-b", "node-c"}, allows: "node-a node-b node-c", replaced: true},
		"that allows a node without a disk is replaced": {disks: []string{"node-b"}, allows: "node-b", replaced: true},
		"of which nothing is known stays":               {allows: "node-a node-b"},
		"that allows all nodes stays": {
			pv: func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil }, disks: []string{"node-c"},
		},
		"of another driver stays": {
			pv: func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }, disks: []string{"node-c"}, allows: "node-a node-b",
		},
		"that is protected is replaced all the same": {
			pv:    func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"kubernetes.io/pv-protection"} },
			disks: []string{"node-c"}, allows: "node-c", replaced: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apimodel.New().Client("affinity")
				pv := &corev1.PersistentVolume{}
				pv.Name, pv.Labels = "pvc-1", map[string]string{"app": "db"}
				pv.Spec.NodeAffinity = affinity.To("node-b", "node-a")
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeHandle: "pvc-1"}
				pv.Spec.ClaimRef = &corev1.ObjectReference{Name: "data", UID: "claim"}
				if tc.pv != nil {
					tc.pv(pv)
				}
				must(t, api.Create(t.Context(), pv))
				pv.Status.Phase = corev1.VolumeBound
				must(t, api.Status().Update(t.Context(), pv))
				disks := func(handle string) []string {
					if handle != "pvc-1" {
						t.Errorf("asked for the disks of %q", handle)
					}
					return tc.disks
				}
				time.Sleep(affinity.Age - time.Second)
				must(t, affinity.Look(t.Context(), api, time.Now(), disks))
				if young := read(t, api); young.UID != pv.UID {
					t.Error("it was replaced within its first minute")
				}
				time.Sleep(time.Second)
				must(t, affinity.Look(t.Context(), api, time.Now(), disks))
				got := read(t, api)
				if allows := strings.Join(affinity.Satellites(got.Spec.NodeAffinity), " "); allows != tc.allows || (got.UID != pv.UID) != tc.replaced {
					t.Errorf("it allows %q, want %q; it is replaced: %t, want %t", allows, tc.allows, got.UID != pv.UID, tc.replaced)
				}
				if got.Spec.ClaimRef.UID != "claim" || got.Status.Phase != corev1.VolumeBound || got.Labels["app"] != "db" || len(got.Finalizers) != len(pv.Finalizers) {
					t.Errorf("it is %+v", got)
				}
			})
		})
	}
}

func read(t *testing.T, api client.Client) *corev1.PersistentVolume {
	t.Helper()
	var pv corev1.PersistentVolume
	must(t, api.Get(t.Context(), client.ObjectKey{Name: "pvc-1"}, &pv))
	return &pv
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
