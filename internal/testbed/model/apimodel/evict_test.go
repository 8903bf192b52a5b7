package apimodel_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

func TestAnEviction(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pod   func(*corev1.Pod)
		uid   types.UID
		fault error
		// fails tells whether the error is the wanted one; nil if there is to be none.
		fails func(error) bool
		// grace is that of the pod afterwards, -1 if it is not being deleted, -2 if it is gone.
		grace int64
	}{
		"deletes a pod gracefully":             {grace: 30},
		"deletes a pod with its own grace":     {pod: func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(7)) }, grace: 7},
		"takes a pod away that is not bound":   {pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }, grace: -2},
		"refuses a pod that is another by now": {uid: "another", fails: apierrors.IsConflict, grace: -1},
		"can be refused by a budget": {
			fault: apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0),
			fails: apierrors.IsTooManyRequests, grace: -1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := apimodel.New()
			api := m.Client("drain")
			pod := createPod(t, api, func(p *corev1.Pod) {
				if tc.pod != nil {
					tc.pod(p)
				}
			})
			m.Fail(func(r apimodel.Request) error {
				if r.Eviction && r.Verb == apimodel.VerbCreate && r.Kind == "Pod" {
					return tc.fault
				}
				return nil
			})
			eviction := &policyv1.Eviction{}
			if tc.uid != "" {
				eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &tc.uid}}
			}
			err := api.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), eviction)
			if (err != nil) != (tc.fails != nil) || tc.fails != nil && !tc.fails(err) {
				t.Errorf("the eviction ends with %v", err)
			}
			grace, left := int64(-2), getPod(t, api)
			switch {
			case left == nil:
			case left.DeletionGracePeriodSeconds == nil:
				grace = -1
			default:
				grace = *left.DeletionGracePeriodSeconds
			}
			if grace != tc.grace {
				t.Errorf("the pod's grace is %d, want %d", grace, tc.grace)
			}
		})
	}
}

func TestAnEvictionIsToldAsOne(t *testing.T) {
	t.Parallel()
	m := apimodel.New()
	api := m.Client("drain")
	pod := createPod(t, api)
	var seen []apimodel.Change
	m.OnChange(func(c apimodel.Change) { seen = append(seen, c) })
	if err := api.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || !seen[0].Eviction || seen[0].Actor != "drain" || seen[0].New.GetDeletionTimestamp() == nil {
		t.Fatalf("told is %+v", seen)
	}
	if wait := seen[0].New.GetDeletionTimestamp().Sub(seen[0].Time); wait < 28*time.Second || wait > 31*time.Second {
		t.Errorf("the grace is %v", wait)
	}
}

func TestOtherSubresourcesCanNotBeCreated(t *testing.T) {
	t.Parallel()
	api := apimodel.New().Client("test")
	pod := createPod(t, api)
	if err := api.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{}); err == nil {
		t.Error("a binding was created")
	}
}
