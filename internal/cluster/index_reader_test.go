package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is looked up in the indexes is what the fields say, and nothing else.
func TestIndexReader(t *testing.T) {
	t.Parallel()
	reader, _ := crowdCache(t)
	names := func(list client.ObjectList, field, value string) []string {
		t.Helper()
		if err := reader.List(t.Context(), list, client.MatchingFields{field: value}, shared); err != nil {
			t.Fatal(err)
		}
		var names []string
		switch list := list.(type) {
		case *corev1.PodList:
			for _, o := range list.Items {
				names = append(names, o.Name)
			}
		case *corev1.PersistentVolumeList:
			for _, o := range list.Items {
				names = append(names, o.Name)
			}
		case *storagev1.VolumeAttachmentList:
			for _, o := range list.Items {
				names = append(names, o.Name)
			}
		}
		return names
	}
	for name, tc := range map[string]struct {
		list         client.ObjectList
		field, value string
		want         []string
	}{
		"the pod of a claim":           {&corev1.PodList{}, indexPodClaims, "default/data-00007", []string{crowdPod(7).Name}},
		"a claim of another namespace": {&corev1.PodList{}, indexPodClaims, "other/data-00007", nil},
		"the volume of a claim":        {&corev1.PersistentVolumeList{}, indexVolumeClaim, "default/data-00007", []string{crowdName(7)}},
		"the volume of a resource":     {&corev1.PersistentVolumeList{}, indexVolumeResource, crowdName(7), []string{crowdName(7)}},
		"the attachment of a volume":   {&storagev1.VolumeAttachmentList{}, indexAttachmentVolume, crowdName(7), []string{crowdAttachment(7).Name}},
		"a volume that is not there":   {&storagev1.VolumeAttachmentList{}, indexAttachmentVolume, "none", nil},
	} {
		if got := names(tc.list, tc.field, tc.value); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if got := names(&storagev1.VolumeAttachmentList{}, indexAttachmentNode, nodeA); len(got) != crowdSize {
		t.Errorf("%d attachments on the node, want %d", len(got), crowdSize)
	}

	var all corev1.PodList
	if err := reader.List(t.Context(), &all, client.InNamespace("default"), shared); err != nil || len(all.Items) != crowdSize {
		t.Errorf("%d pods, %v", len(all.Items), err)
	}
	var pv corev1.PersistentVolume
	if err := reader.Get(t.Context(), client.ObjectKey{Name: crowdName(7)}, &pv); err != nil || pv.Name != crowdName(7) || pv.Spec.ClaimRef == nil {
		t.Errorf("%+v, %v", pv, err)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Name: "none"}, &pv); !apierrors.IsNotFound(err) {
		t.Errorf("a volume that is not there: %v", err)
	}
	if err := reader.List(t.Context(), &all, client.MatchingFields{"no such": "field"}); err == nil {
		t.Error("a field that is not indexed finds something")
	}
}
