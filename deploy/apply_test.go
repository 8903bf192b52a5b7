package deploy

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// waysToApply are the ways in which users and their tools apply a manifest.
var waysToApply = map[string]string{
	"kubectl apply":               "apply",
	"kubectl apply --server-side": "apply --server-side",
	"Argo CD":                     "apply --server-side --field-manager=argocd-controller",
}

// TestEveryWayToApplyFollowsEveryOther applies the shipped manifest in one way and then in another, alone and with all components: no
// field conflicts, and nothing changes. The API server fills in defaults, and where a manifest leaves one out of a value that counts as
// a whole, the second way conflicts with what it wrote.
//
//nolint:tparallel // all apply objects of the same names
func TestEveryWayToApplyFollowsEveryOther(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	for manifest, file := range map[string]string{
		"all.yaml": "all.yaml", "all components": writeObjects(t, withComponents(t, components(t)...)),
	} {
		for first, firstly := range waysToApply {
			for second, secondly := range waysToApply {
				t.Run(manifest+" by "+first+", then "+second, func(t *testing.T) {
					mustKubectl(t, b, firstly+" --filename="+file)
					t.Cleanup(func() { deleteAll(t, b, file) })
					before := specs(t, b, file)
					if _, err := kubectl(t, b, secondly+" --filename="+file); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(before, specs(t, b, file)); diff != "" {
						t.Errorf("the second way changes something (-first +second):\n%s", diff)
					}
				})
			}
		}
	}
}

// TestTheAPIServerAcceptsEveryObject asks the API server to apply everything without doing it. It refuses fields that it does not know,
// and a namespace with the Pod Security Standard "restricted" what the standard forbids.
//
//nolint:tparallel // all apply objects of the same names
func TestTheAPIServerAcceptsEveryObject(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	mustKubectl(t, b, "apply --server-side --filename=all.yaml")
	t.Cleanup(func() { deleteAll(t, b, "all.yaml") })
	for manifest, content := range map[string][]byte{
		"default": withComponents(t), "all components": withComponents(t, components(t)...),
	} {
		t.Run(manifest, func(t *testing.T) { accepted(t, b, content) })
	}
}

// accepted checks that objects pass a strict dry run, and pods of their Deployment's template as well: the admission of pods only warns
// of a Deployment. The namespace, which must enforce a standard, and the ServiceAccount must exist.
func accepted(t *testing.T, b *bed.Bed, content []byte) {
	t.Helper()
	file := writeObjects(t, content)
	mustKubectl(t, b, "apply --server-side --force-conflicts --dry-run=server --validate=strict --filename="+file)
	d := deploymentOf(t, parseObjects(t, content))
	var namespace corev1.Namespace
	if err := b.Client.Get(t.Context(), client.ObjectKey{Name: d.Namespace}, &namespace); err != nil {
		t.Fatal(err)
	}
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Fatalf("namespace %s enforces %q", d.Namespace, got)
	}
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.GenerateName = d.Namespace, d.Name+"-"
	if err := b.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("its pods are refused: %v", err)
	}
}

// restrict makes a namespace enforce the Pod Security Standard "restricted", whether another test left it or not.
func restrict(t *testing.T, b *bed.Bed, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := controllerutil.CreateOrUpdate(t.Context(), b.Client, namespace, func() error {
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, "pod-security.kubernetes.io/enforce", "restricted")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deleteAll deletes the objects of a file but for namespaces, which need a controller-manager to go.
func deleteAll(t *testing.T, b *bed.Bed, file string) {
	t.Helper()
	for _, o := range readObjects(t, file) {
		if o.GetKind() == "Namespace" {
			continue
		}
		// It may be called when the test has ended.
		if err := client.IgnoreNotFound(b.Client.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
			t.Error(err)
		}
	}
}

// specs returns what the API server stores of the objects of a file, without metadata and status, by kind, namespace and name.
func specs(t *testing.T, b *bed.Bed, file string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, o := range readObjects(t, file) {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(o.GroupVersionKind())
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(o), stored); err != nil {
			t.Fatal(err)
		}
		delete(stored.Object, "metadata")
		delete(stored.Object, "status")
		all[id(o)] = stored.Object
	}
	return all
}

// id returns kind, namespace and name.
func id(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetKind(), o.GetNamespace() + "/" + o.GetName()}, " ")
}
