package permissions

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// The roles are generated from the code that needs the permissions; the controller and the check must ask for neither more nor less.
func TestRequiredPermissionsAreThoseOfTheRoles(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var granted []Permission
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var role rbacv1.Role // a ClusterRole has the same fields
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: ClusterRole, false: Role}[role.Namespace == ""]; role.Name != want {
			t.Errorf("the role of namespace %q is %s, want %s", role.Namespace, role.Name, want)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted = append(granted, Permission{Namespace: role.Namespace, Group: group, Resource: resource, Verb: verb})
					}
				}
			}
		}
	}
	opts := options.Default()
	opts.LeaderElection = true // as in the shipped manifest
	required := Required("ha-controller", opts)
	for _, list := range [][]Permission{granted, required} {
		slices.SortFunc(list, func(a, b Permission) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group),
				cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
		})
	}
	if diff := gocmp.Diff(granted, required); diff != "" {
		t.Errorf("permissions (-role.yaml +Required):\n%s", diff)
	}
}

// An evacuation needs to know which cluster this is; else no permission that a fail-over does not need, and none to delete or evict anything.
func TestAnEvacuationNeedsOnePermissionOfItsOwn(t *testing.T) {
	t.Parallel()
	with := options.Default()
	without := with
	without.Evacuation = false
	own := Permission{Resource: "namespaces", Verb: "get"}
	needed := slices.DeleteFunc(Required("own", with), func(p Permission) bool { return p == own })
	if diff := gocmp.Diff(Required("own", without), needed); diff != "" {
		t.Errorf("permissions (-without evacuation +with):\n%s", diff)
	}
	for _, p := range Required("own", with) {
		switch {
		case p.Resource == "nodes" && p.Verb == "delete", p.Resource == "nodes" && p.Verb == "update", p.Resource == "pods/eviction",
			p.Resource == "persistentvolumes" && !slices.Contains([]string{"get", "list", "watch"}, p.Verb):
			t.Errorf("the controller may %s", p)
		}
	}
}
