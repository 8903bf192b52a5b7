package scenarios_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// asController returns a client with the rights of the controller's ServiceAccount.
func asController(s *bedtest.Scenario) client.Client {
	s.T.Helper()
	const namespace = bed.ControllerNamespace
	config := rest.CopyConfig(s.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":ha-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	c, err := client.New(config, client.Options{})
	s.Must(err)
	return c
}

// apiSemantics checks what the act relies on, by the real API server and the shipped roles: a pod is
// deleted by UID or not at all, a patch by UID or version likewise, and what the controller need not do
// it may not.
func apiSemantics(s *bedtest.Scenario) {
	w := s.Workload("db")
	first := s.Start(w)
	s.Must(s.Client.Delete(s.Ctx, &first, client.GracePeriodSeconds(0)))
	var second corev1.Pod
	s.Must(s.WaitFor(s.Ctx, "the pod to be created anew", func() (bool, error) {
		err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&first), &second)
		return second.UID != first.UID, err
	}))
	c := asController(s)

	if err := c.Delete(s.Ctx, second.DeepCopy(), client.Preconditions{UID: &first.UID}); !apierrors.IsConflict(err) {
		s.T.Errorf("deleting a pod by the UID of its predecessor: %v, want a conflict", err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Failed"}}`, first.UID)
	if err := c.Status().Patch(s.Ctx, second.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err == nil {
		s.T.Error("the status of a pod was patched by the UID of its predecessor")
	}

	running, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	on := running.Spec.NodeName
	empty := func(node *corev1.Node, options ...client.SubResourcePatchOption) error {
		emptied := node.DeepCopy()
		emptied.Status.VolumesInUse = nil
		return c.Status().Patch(s.Ctx, emptied, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}), options...)
	}
	// The kubelet and Kubernetes may write the node at any moment.
	s.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error { return empty(nodeOf(s, on), client.DryRunAll) }))
	old := nodeOf(s, on)
	old.ResourceVersion = "1"
	if err := empty(old); !apierrors.IsConflict(err) {
		s.T.Errorf("patching volumesInUse of a version long gone: %v, want a conflict", err)
	}
	if !inUse(s, on, volumeOf(w)) {
		s.T.Errorf("volume %s is not in use any more: %s", volumeOf(w), csidriver.UniqueVolumeName(volumeOf(w)))
	}
	forbidden(s, c, &second)
}

// forbidden checks that the controller's role ends where its work does.
func forbidden(s *bedtest.Scenario, c client.Client, pod *corev1.Pod) {
	s.T.Helper()
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: volumesOf(pod)[0]}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volumesOf(pod)[0]}}
	for what, try := range map[string]func() error{
		"patch the status of a claim":  func() error { return c.Status().Patch(s.Ctx, claim, merge(`{"status":{"phase":"Lost"}}`)) },
		"patch the status of a volume": func() error { return c.Status().Patch(s.Ctx, volume, merge(`{"status":{"phase":"Failed"}}`)) },
		"patch a pod":                  func() error { return c.Patch(s.Ctx, pod.DeepCopy(), merge(`{"metadata":{"labels":{"a":"b"}}}`)) },
		"create a pod": func() error {
			return c.Create(s.Ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "x"}})
		},
		"delete a volume": func() error { return c.Delete(s.Ctx, volume) },
		"delete a claim":  func() error { return c.Delete(s.Ctx, claim) },
		"delete a node":   func() error { return c.Delete(s.Ctx, nodeOf(s, s.Nodes[2])) },
		"list secrets":    func() error { return c.List(s.Ctx, &corev1.SecretList{}) },
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			s.T.Errorf("the controller tries to %s: %v, want it forbidden", what, err)
		}
	}
}
