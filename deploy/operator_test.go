package deploy

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// operatorNamespace is the namespace of the Piraeus Operator.
const operatorNamespace = "piraeus-datastore"

// asOperator renders config/piraeus-operator as the operator does: with its namespace, its labels, in selectors as well, and an image.
func asOperator(t *testing.T) []byte {
	t.Helper()
	return kustomize(t, `
resources: [$CONFIG/piraeus-operator]
namespace: piraeus-datastore
labels:
  - includeSelectors: true
    pairs:
      app.kubernetes.io/name: piraeus-datastore
      app.kubernetes.io/instance: linstorcluster
      app.kubernetes.io/managed-by: piraeus-operator
images: [{name: ha-controller, newName: quay.io/piraeusdatastore/piraeus-ha-controller, newTag: v2.0.0}]
`)
}

// TestTheOperatorsComponentIsMadeAsItsOthers checks names, labels and certificates, and that all roles arrive with it.
func TestTheOperatorsComponentIsMadeAsItsOthers(t *testing.T) {
	t.Parallel()
	all := parseObjects(t, asOperator(t))
	want := []string{
		"ClusterRole /ha-controller", "ClusterRoleBinding /ha-controller", "Deployment piraeus-datastore/ha-controller",
		"PodDisruptionBudget piraeus-datastore/ha-controller", "Role piraeus-datastore/ha-controller",
		"RoleBinding piraeus-datastore/ha-controller", "ServiceAccount piraeus-datastore/ha-controller",
	}
	got := ids(all)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	d := deploymentOf(t, all)
	c := d.Spec.Template.Spec.Containers[0]
	if c.Name != "ha-controller" || c.Image != "quay.io/piraeusdatastore/piraeus-ha-controller:v2.0.0" {
		t.Errorf("the container is %s of %s", c.Name, c.Image)
	}
	if got := d.Spec.Selector.MatchLabels["app.kubernetes.io/component"]; got != "ha-controller" {
		t.Errorf("the component is %q", got)
	}
	for name, key := range map[string]string{"LS_ROOT_CA": "ca.crt", "LS_USER_CERTIFICATE": "tls.crt", "LS_USER_KEY": "tls.key"} {
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if i < 0 || c.Env[i].ValueFrom == nil || c.Env[i].ValueFrom.SecretKeyRef == nil || c.Env[i].ValueFrom.SecretKeyRef.Key != key {
			t.Errorf("%s does not come from the key %s of a Secret", name, key)
		}
	}
	for _, binding := range all {
		subjects, found := binding.Object["subjects"].([]any)
		if subject, ok := append(subjects, nil)[0].(map[string]any); found && (!ok || subject["namespace"] != operatorNamespace) {
			t.Errorf("%s is for %v", id(binding), subjects)
		}
	}
}

// TestTheOperatorRunsIt applies what the operator would apply, as it does, to a cluster: it has its permissions, and a crash fails over.
func TestTheOperatorRunsIt(t *testing.T) {
	t.Parallel()
	b := bedtest.Empty(t, "operator", bed.Options{})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: operatorNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := b.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	file := writeObjects(t, asOperator(t))
	mustKubectl(t, b, "apply --server-side --force-conflicts --field-manager=piraeus.io/operator --validate=strict --filename="+file)

	s := bedtest.New(t, b, 3)
	s.Must(s.WaitFor(s.Ctx, "the Deployment to be available", func() (bool, error) {
		var d appsv1.Deployment
		err := b.Client.Get(s.Ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "ha-controller"}, &d)
		return d.Status.AvailableReplicas == 3, err
	}))
	o := parsed(t, deploymentOf(t, parseObjects(t, asOperator(t))).Spec.Template.Spec.Containers[0])
	denied, err := permissions.Denied(s.Ctx, b.Client, permissions.AccountUser(operatorNamespace, "ha-controller"),
		permissions.Required(operatorNamespace, o))
	if err != nil || len(denied) > 0 {
		t.Errorf("it may not %v: %v", denied, err)
	}

	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(pod.Spec.NodeName)
	s.WaitMoved(w, pod.Spec.NodeName, crashed)
}
