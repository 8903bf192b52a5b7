package oracle

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The volume could be written on node a until a minute had passed, and on b from then on.
func world() *Oracle {
	pod := func(name string, labels map[string]string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels},
			Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}},
		}
	}
	selected := map[string]string{bed.SelectedLabel: bed.SelectedValue}
	return &Oracle{
		pods: map[types.UID]corev1.Pod{
			"db": pod("db", selected), "other": pod("other", nil),
			"linstor": pod("linstor", map[string]string{bed.ComponentLabel: bed.LINSTORComponent}),
		},
		writable: map[replica][]change{
			{"data", "a"}: {{began, true}, {began.Add(time.Minute), false}},
			{"data", "b"}: {{began, false}, {began.Add(time.Minute), true}},
		},
	}
}

func TestObjections(t *testing.T) {
	t.Parallel()
	deleted := func(uid types.UID) json.RawMessage {
		body, _ := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		return body
	}
	before, after := began.Add(59*time.Second), began.Add(61*time.Second)
	for name, tc := range map[string]struct {
		request bed.Request
		want    string
	}{
		"a pod whose node could not write":  {request: bed.Request{At: after, Verb: "delete", Resource: "pods", Body: deleted("db")}},
		"a pod whose node could still":      {request: bed.Request{At: before, Verb: "delete", Resource: "pods", Body: deleted("db")}, want: "a could write data"},
		"a pod that was not selected":       {request: bed.Request{At: after, Verb: "delete", Resource: "pods", Body: deleted("other")}, want: "it was not selected"},
		"a pod of LINSTOR itself":           {request: bed.Request{At: after, Verb: "delete", Resource: "pods", Body: deleted("linstor")}},
		"a pod that nobody has seen":        {request: bed.Request{At: after, Verb: "delete", Resource: "pods", Body: deleted("new")}, want: "nobody has seen"},
		"a pod by its name alone":           {request: bed.Request{At: after, Verb: "delete", Resource: "pods", Body: json.RawMessage(`{}`)}, want: "nobody has seen"},
		"the announcement of a wrong one":   {request: bed.Request{At: before, Verb: "patch", Resource: "pods/status", Body: json.RawMessage(`{"metadata":{"uid":"db"}}`)}, want: "could write"},
		"a detach from the lost node":       {request: bed.Request{At: after, Verb: "delete", Resource: "volumeattachments", Name: csidriver.AttachmentName("data", "a")}},
		"a detach from a node that writes":  {request: bed.Request{At: after, Verb: "delete", Resource: "volumeattachments", Name: csidriver.AttachmentName("data", "b")}, want: "b could write data"},
		"a change that takes nothing away":  {request: bed.Request{At: before, Verb: "patch", Resource: "nodes"}},
		"a detach of what nobody knows yet": {request: bed.Request{At: before, Verb: "delete", Resource: "volumeattachments", Name: "csi-of-another-driver"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(world().objections(tc.request), "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("objections: %q, want %q", got, tc.want)
			}
		})
	}
}
