package deploy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// operatorObjects are what the Piraeus Operator applies for its node agents.
const operatorObjects = "testdata/piraeus-operator.yaml"

// way is a way of installing the controller. The chart is installed into the operator's own namespace.
type way struct {
	install, remove    func(t *testing.T, b *bed.Bed)
	namespace, account string
}

// waysToInstall are those that make objects of their own.
func waysToInstall(t *testing.T) map[string]way {
	t.Helper()
	file := writeObjects(t, withComponents(t, components(t)...))
	ways := map[string]way{
		"all components": {
			install:   func(t *testing.T, b *bed.Bed) { mustKubectl(t, b, "apply --server-side --filename="+file) },
			remove:    func(t *testing.T, b *bed.Bed) { deleteAll(t, b, file) },
			namespace: namespace, account: serviceAccount,
		},
	}
	for _, major := range majors {
		run := func(t *testing.T, b *bed.Bed, args ...string) {
			t.Helper()
			output(t, helm(t, major, append(args, "--namespace="+operatorNamespace, "--kubeconfig="+b.Kubeconfig)...))
		}
		ways[major] = way{
			install:   func(t *testing.T, b *bed.Bed) { run(t, b, "upgrade", "--install", name, chart) },
			remove:    func(t *testing.T, b *bed.Bed) { run(t, b, "uninstall", name, "--ignore-not-found") },
			namespace: operatorNamespace, account: name,
		}
	}
	return ways
}

// TestWithHelmItStandsBesideThePiraeusOperator installs the controller in each way before, after and between what the operator applies, and
// removes either: the controller has its permissions while it is there, and the operator's objects are as it wants them while they are.
//
//nolint:tparallel // all apply objects of the same names
func TestWithHelmItStandsBesideThePiraeusOperator(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	if err := client.IgnoreAlreadyExists(b.Client.Create(t.Context(), space)); err != nil {
		t.Fatal(err)
	}
	for installed, way := range waysToInstall(t) {
		for name, order := range map[string]string{
			"the operator is there first":  "operator ours",
			"the operator comes later":     "ours operator",
			"both apply again and again":   "operator ours operator ours operator",
			"its agents are disabled":      "operator ours disabled",
			"its agents are enabled again": "operator ours disabled operator",
			"the controller is removed":    "operator ours operator removed",
			"the controller is back":       "ours operator removed ours",
		} {
			t.Run(installed+": "+name, func(t *testing.T) {
				t.Cleanup(func() {
					way.remove(t, b)
					deleteAll(t, b, operatorObjects)
				})
				steps := strings.Fields(order)
				for _, step := range steps {
					besideStep(t, b, way, step)
				}
				if last := slices.Index(steps, "removed"); last != len(steps)-1 {
					lacksNothing(t, b, way)
				}
				if steps[len(steps)-1] != "disabled" {
					isOperators(t, b)
				}
			})
		}
	}
}

func besideStep(t *testing.T, b *bed.Bed, w way, step string) {
	t.Helper()
	switch step {
	case "operator":
		mustKubectl(t, b, "apply --server-side --force-conflicts --field-manager=piraeus.io/operator --filename="+operatorObjects)
	case "disabled":
		deleteAll(t, b, operatorObjects)
	case "ours":
		w.install(t, b)
	case "removed":
		w.remove(t, b)
	}
}

// lacksNothing waits until the controller's account has all permissions: the API server learns of roles a moment later.
func lacksNothing(t *testing.T, b *bed.Bed, w way) {
	t.Helper()
	opts := options.Default()
	opts.LeaderElection = true
	var denied []permissions.Permission
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err := b.WaitFor(ctx, "the controller to have its permissions", func() (bool, error) {
		var err error
		denied, err = permissions.Denied(ctx, b.Client, permissions.AccountUser(w.namespace, w.account), permissions.Required(w.namespace, opts))
		return len(denied) == 0, err
	})
	if err != nil {
		t.Errorf("%v; it lacks %v", err, denied)
	}
}

// isOperators checks that the operator's objects have what it has applied.
func isOperators(t *testing.T, b *bed.Bed) {
	t.Helper()
	before := specs(t, b, operatorObjects)
	mustKubectl(t, b, "apply --server-side --field-manager=piraeus.io/operator --filename="+operatorObjects)
	if diff := cmp.Diff(before, specs(t, b, operatorObjects)); diff != "" {
		t.Errorf("the operator's objects were changed (-before +as it wants them):\n%s", diff)
	}
}
