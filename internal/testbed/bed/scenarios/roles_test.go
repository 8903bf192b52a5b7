package scenarios_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// oldRole is the name of the Piraeus Operator's ClusterRole and ClusterRoleBinding for the node agents of 1.x. Those of earlier
// releases of this controller had it as well.
const oldRole = "ha-controller"

// operatorRules are what the operator lets its agents do, without what only OpenShift knows.
var operatorRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
	{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch", "update"}},
	{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "delete"}},
}

// TestThePiraeusOperatorTakesNoPermission has the Piraeus Operator apply its objects, by force as it does, and a person those of the
// controller, in every order: the controller has its permissions, and the operator's objects stay as it wants them.
//
//nolint:tparallel // all apply objects of the same names
func TestThePiraeusOperatorTakesNoPermission(t *testing.T) {
	t.Parallel()
	all := bareScenario(t, "operator")
	for name, steps := range map[string]string{
		"the operator is there first":                  "operator ours",
		"the operator comes later":                     "ours operator",
		"both apply again and again":                   "operator ours operator ours operator",
		"its agents are disabled":                      "ours operator disabled",
		"its agents are disabled and enabled":          "operator ours disabled operator",
		"an earlier release is upgraded":               "earlier ours upgrade",
		"the operator comes after an upgrade":          "earlier ours upgrade operator",
		"an earlier release had lost its permissions":  "earlier operator ours upgrade",
		"an earlier release was applied over them":     "operator earlier operator ours upgrade",
		"the operator applies again after the upgrade": "operator earlier ours upgrade operator",
	} {
		t.Run(name, func(t *testing.T) {
			s := all.Within(t)
			ctx, cancel := context.WithTimeout(s.Ctx, 10*time.Second)
			defer cancel()
			deleteRoles(s, oldRole)
			deleteRoles(s, permissions.ClusterRole)
			for step := range strings.FieldsSeq(steps) {
				roleSteps[step](s)
			}
			if err := s.WaitFor(ctx, "the controller to have its permissions", func() (bool, error) { return len(lacking(s)) == 0, nil }); err != nil {
				t.Errorf("%v; it lacks %v", err, lacking(s))
			}
			last := steps[strings.LastIndexByte(steps, ' ')+1:]
			switch {
			case strings.Contains(steps, "operator") && last != "disabled":
				isOperators(s)
			case roleExists(s, oldRole):
				t.Errorf("ClusterRole %s is left behind", oldRole)
			}
		})
	}
}

// roleSteps are what happens to roles, by word.
var roleSteps = map[string]func(*bedtest.Scenario){
	"ours":     func(s *bedtest.Scenario) { s.Must(s.ApplyManifest(s.Ctx)) },
	"earlier":  applyEarlierRoles,
	"operator": func(s *bedtest.Scenario) { applyAsOperator(s, oldRole) },
	"disabled": func(s *bedtest.Scenario) { deleteRoles(s, oldRole) },
	"upgrade":  followUpgradeNote,
}

// TestAProcessWhoseRolesAreOverwrittenIsNotReady has somebody overwrite the controller's own roles: a process that starts is not ready until
// the manifest has been applied again.
func TestAProcessWhoseRolesAreOverwrittenIsNotReady(t *testing.T) {
	t.Parallel()
	s := bareScenario(t, "overwritten")
	s.Must(s.ApplyManifest(s.Ctx))
	applyAsOperator(s, permissions.ClusterRole)
	waitUntil(s, "the permissions to be lost", func() bool { return len(lacking(s)) > 0 })

	replica, err := s.StartReplica(s.Ctx, "overwritten")
	s.Must(err)
	waitUntil(s, "/readyz to say that permissions are missing", func() bool {
		got, err := ask(s.Ctx, s.ControllerProcesses()[0].ProbesURL+"/readyz", "")
		return err == nil && got.code == http.StatusInternalServerError && strings.Contains(got.body, "[-]permissions failed")
	})

	s.Must(s.ApplyManifest(s.Ctx))
	_, err = replica.WaitReady(s.Ctx)
	s.Must(err)
}

// bareScenario returns a scenario on a bed of its own with nothing but the API and LINSTOR.
func bareScenario(t *testing.T, name string) *bedtest.Scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bedtest.Timeout)
	t.Cleanup(cancel)
	root, err := bed.Root()
	if err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(root, ".testbed", fmt.Sprintf("%s-roles-%s-%d", time.Now().Format("2006-01-02T15-04-05"), name, os.Getpid()))
	b, err := bed.Start(ctx, bed.Options{Bare: true, Direct: true, LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return &bedtest.Scenario{Bed: b, T: t, Ctx: ctx, Name: name, Began: time.Now()}
}

// lacking returns what the controller's account may not do.
func lacking(s *bedtest.Scenario) []permissions.Permission {
	s.T.Helper()
	opts := options.Default()
	opts.LeaderElection = true
	denied, err := permissions.Denied(s.Ctx, s.Client, permissions.AccountUser(bed.ControllerNamespace, "ha-controller"),
		permissions.Required(bed.ControllerNamespace, opts))
	s.Must(err)
	return denied
}

// operatorLabels are those that the operator gives its objects.
var operatorLabels = map[string]any{
	"app.kubernetes.io/component": "ha-controller", "app.kubernetes.io/name": "piraeus-datastore",
	"app.kubernetes.io/instance": "linstorcluster", "app.kubernetes.io/managed-by": "piraeus-operator",
}

// applyAsOperator applies the operator's ClusterRole and binding by a name, as it does every minute.
func applyAsOperator(s *bedtest.Scenario, name string) {
	s.T.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "piraeus-datastore", Name: "ha-controller"}}
	for kind, o := range map[string]any{
		"ClusterRole":        &rbacv1.ClusterRole{Rules: operatorRules},
		"ClusterRoleBinding": &rbacv1.ClusterRoleBinding{RoleRef: ref, Subjects: subjects},
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		s.Must(err)
		content["apiVersion"], content["kind"] = rbacv1.SchemeGroupVersion.String(), kind
		content["metadata"] = map[string]any{"name": name, "labels": operatorLabels}
		s.Must(s.Client.Apply(s.Ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}),
			client.ForceOwnership, client.FieldOwner("piraeus.io/operator")))
	}
}

// applyEarlierRoles applies the ClusterRole and its binding as an earlier release had them.
func applyEarlierRoles(s *bedtest.Scenario) {
	s.T.Helper()
	manifest := filepath.Join(s.T.TempDir(), "earlier.yaml")
	s.Must(os.WriteFile(manifest, []byte(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: ha-controller
  labels: {app.kubernetes.io/name: piraeus-ha-controller}
rules:
- {apiGroups: [""], resources: [pods], verbs: [delete, get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: ha-controller
  labels: {app.kubernetes.io/name: piraeus-ha-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ha-controller}
subjects: [{kind: ServiceAccount, name: ha-controller, namespace: ha-controller}]
`), 0o600))
	runKubectl(s, "apply", "--filename", manifest)
}

// followUpgradeNote runs the command by which docs/migrating.md has users delete what an earlier release left behind.
func followUpgradeNote(s *bedtest.Scenario) {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "migrating.md"))
	s.Must(err)
	command := regexp.MustCompile(`(?m)^ *kubectl (delete clusterrole.*)$`).FindSubmatch(page)
	if command == nil {
		s.T.Fatal("docs/migrating.md does not say how to delete the roles of earlier releases")
	}
	runKubectl(s, strings.Fields(string(command[1]))...)
}

func runKubectl(s *bedtest.Scenario, args ...string) {
	s.T.Helper()
	root, err := bed.Root()
	s.Must(err)
	cmd := exec.CommandContext(s.Ctx, filepath.Join(root, "bin", "kubectl"), append(args, "--kubeconfig="+s.Kubeconfig,
		"--cache-dir="+s.T.TempDir())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.T.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func deleteRoles(s *bedtest.Scenario, name string) {
	s.T.Helper()
	meta := metav1.ObjectMeta{Name: name}
	for _, o := range []client.Object{&rbacv1.ClusterRole{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta}} {
		s.Must(client.IgnoreNotFound(s.Client.Delete(s.Ctx, o)))
	}
}

func roleExists(s *bedtest.Scenario, name string) bool {
	s.T.Helper()
	err := s.Client.Get(s.Ctx, client.ObjectKey{Name: name}, &rbacv1.ClusterRole{})
	s.Must(client.IgnoreNotFound(err))
	return err == nil
}

// isOperators checks that the operator's objects are there as it applies them.
func isOperators(s *bedtest.Scenario) {
	s.T.Helper()
	var role rbacv1.ClusterRole
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Name: oldRole}, &role))
	var binding rbacv1.ClusterRoleBinding
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Name: oldRole}, &binding))
	if diff := cmp.Diff(operatorRules, role.Rules); diff != "" {
		s.T.Errorf("the operator's rules (-want +got):\n%s", diff)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Namespace != "piraeus-datastore" {
		s.T.Errorf("the operator's role is bound to %+v", binding.Subjects)
	}
}
