// Package deploy has no code: it tests the manifests that users apply.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	namespace      = "ha-controller"
	name           = "piraeus-ha-controller"
	serviceAccount = "ha-controller"
)

// objects are the manifests of all.yaml by type.
type objects struct {
	deployment   *appsv1.Deployment
	budget       *policyv1.PodDisruptionBudget
	namespace    *corev1.Namespace
	account      *corev1.ServiceAccount
	rules        map[string][]rbacv1.PolicyRule
	roleBindings []rbacv1.RoleBinding
	// names has "Kind namespace/name" of each object in the order of the file.
	names []string
}

// load decodes all.yaml as strictly as "kubectl apply" does, so that a misspelled field is an error.
func load(t *testing.T) objects {
	t.Helper()

	content, err := os.ReadFile("all.yaml")
	if err != nil {
		t.Fatal(err)
	}

	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	all := objects{rules: map[string][]rbacv1.PolicyRule{}}
	buffer := make([]byte, len(content))

	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}

		if err != nil {
			t.Fatal(err)
		}

		object, kind, err := decoder.Decode(buffer[:n], nil, nil)
		if err != nil {
			t.Fatalf("decoding a document of all.yaml: %v\n%s", err, buffer[:n])
		}

		all.add(t, kind.Kind, object)
	}
}

func (all *objects) add(t *testing.T, kind string, object runtime.Object) {
	t.Helper()

	metadata, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}

	id := kind + " " + metadata.GetNamespace() + "/" + metadata.GetName()
	all.names = append(all.names, id)

	switch o := object.(type) {
	case *appsv1.Deployment:
		all.deployment = o
	case *policyv1.PodDisruptionBudget:
		all.budget = o
	case *corev1.Namespace:
		all.namespace = o
	case *corev1.ServiceAccount:
		all.account = o
	case *rbacv1.ClusterRole:
		all.rules[id] = o.Rules
	case *rbacv1.Role:
		all.rules[id] = o.Rules
	case *rbacv1.RoleBinding:
		all.roleBindings = append(all.roleBindings, *o)
	case *rbacv1.ClusterRoleBinding:
		all.roleBindings = append(all.roleBindings, rbacv1.RoleBinding{ObjectMeta: o.ObjectMeta, RoleRef: o.RoleRef, Subjects: o.Subjects})
	default:
		t.Errorf("%s is of no kind that is expected", id)
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()

	all := load(t)
	want := []string{
		"Namespace /ha-controller",
		"ServiceAccount ha-controller/ha-controller",
		"Role ha-controller/piraeus-ha-controller-manager",
		"Role kube-node-lease/piraeus-ha-controller-manager",
		"ClusterRole /piraeus-ha-controller-manager",
		"RoleBinding ha-controller/piraeus-ha-controller-manager",
		"RoleBinding kube-node-lease/piraeus-ha-controller-manager",
		"ClusterRoleBinding /piraeus-ha-controller-manager",
		"Deployment ha-controller/piraeus-ha-controller",
		"PodDisruptionBudget ha-controller/piraeus-ha-controller",
	}

	if diff := cmp.Diff(want, all.names); diff != "" {
		t.Errorf("the objects and their order, in which they are applied, differ (-want +got):\n%s", diff)
	}

	if got := all.namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("the namespace enforces the Pod Security Standard %q, want restricted", got)
	}
}

func TestHeaderTellsHowToReachLinstor(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("all.yaml")
	if err != nil {
		t.Fatal(err)
	}

	header, _, _ := strings.Cut(string(content), "apiVersion")
	for _, part := range []string{"LS_CONTROLLERS", "kustomization", "make manifests"} {
		if !strings.Contains(header, part) {
			t.Errorf("the comment at the top does not mention %q:\n%s", part, header)
		}
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()

	all := load(t)
	for role, rules := range all.rules {
		if len(rules) == 0 {
			t.Errorf("%s has no rules", role)
		}

		for _, rule := range rules {
			if len(rule.NonResourceURLs) > 0 {
				t.Errorf("%s has a rule for paths: %v", role, rule)
			}

			for _, value := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if strings.Contains(value, "*") {
					t.Errorf("%s has a wildcard: %v", role, rule)
				}
			}

			for _, denied := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
				if slices.Contains(rule.Verbs, denied) {
					t.Errorf("%s may %s: %v", role, denied, rule)
				}
			}

			for _, denied := range []string{"secrets", "configmaps", "pods/exec", "nodes/proxy", "serviceaccounts/token"} {
				if slices.Contains(rule.Resources, denied) {
					t.Errorf("%s names %s, which no part of the controller needs: %v", role, denied, rule)
				}
			}
		}
	}
}

func TestBindingsGiveEachRoleToTheServiceAccount(t *testing.T) {
	t.Parallel()

	all := load(t)
	bound := map[string]bool{}

	for _, binding := range all.roleBindings {
		bound[binding.RoleRef.Kind+" "+binding.Namespace+"/"+binding.RoleRef.Name] = true

		want := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: all.account.Name, Namespace: all.account.Namespace}}
		if diff := cmp.Diff(want, binding.Subjects); diff != "" {
			t.Errorf("subjects of binding %s/%s (-want +got):\n%s", binding.Namespace, binding.Name, diff)
		}
	}

	for role := range all.rules {
		if !bound[role] {
			t.Errorf("%s is bound to nobody", role)
		}
	}

	if len(bound) != len(all.rules) {
		t.Errorf("bindings refer to %v, and there are %d roles", bound, len(all.rules))
	}

	if all.account.Name != serviceAccount || all.account.Namespace != namespace {
		t.Errorf("the ServiceAccount is %s/%s", all.account.Namespace, all.account.Name)
	}
}
