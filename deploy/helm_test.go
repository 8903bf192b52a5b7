package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// nodeAgents makes the objects of the chart's last release of 1.x, a DaemonSet of node agents.
const nodeAgents = "testdata/chart-1.3.3"

// TestWithHelmTheControllerTakesThePlaceOfNodeAgents upgrades releases of 1.3.3, one with the default values and one with values of its
// owner, in a cluster; a node crashes, and the workload moves. A rollback brings the agents back, and an uninstall leaves nothing.
func TestWithHelmTheControllerTakesThePlaceOfNodeAgents(t *testing.T) {
	t.Parallel()
	for _, major := range majors {
		t.Run(major, func(t *testing.T) {
			t.Parallel()
			b := bedtest.Empty(t, major, bed.Options{})
			for name, values := range map[string]string{
				"default values": "",
				"own values": "options: {v: 1, grace-period-seconds: 20, fail-over-timeout: 10s}\npodAnnotations: {example.com/team: storage}\n" +
					"tolerations: [{operator: Exists, effect: NoSchedule}]\n",
			} {
				t.Run(name, func(t *testing.T) { upgrade(t, b, major, values) })
			}
		})
	}
}

// upgrade installs 1.3.3 with values, and takes it to 2.0.0, back, forward, and away.
func upgrade(t *testing.T, b *bed.Bed, major, values string) {
	r := release{t: t, bed: b, major: major}
	r.run("install", nodeAgents, "--create-namespace", "--values="+valuesFile(t, values))
	r.hasDaemonSet(true)

	notes := r.run("upgrade", chart, "--reset-then-reuse-values", "--wait", "--timeout=3m")
	r.hasDaemonSet(false)
	if err := b.WaitController(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.has(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}, false)
	if values != "" {
		r.keepsValues(notes)
	}

	s := bedtest.New(t, b, 3)
	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(pod.Spec.NodeName)
	s.WaitMoved(w, pod.Spec.NodeName, crashed)
	s.Return(pod.Spec.NodeName) // or an agent stays there for ever

	r.run("rollback", "1")
	r.hasDaemonSet(true)
	r.has(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, false)

	r.run("upgrade", chart, "--reset-then-reuse-values", "--wait", "--timeout=3m")
	r.hasDaemonSet(false)
	r.run("uninstall", "--wait")
	r.isGone()
}

// release is a release of the chart in a cluster, in the namespace of the shipped manifest.
type release struct {
	t     *testing.T
	bed   *bed.Bed
	major string
}

// run runs a command of Helm for the release and returns what it prints.
func (r release) run(command string, args ...string) string {
	r.t.Helper()
	args = append([]string{command, name}, append(args, "--namespace="+namespace, "--kubeconfig="+r.bed.Kubeconfig)...)
	return string(output(r.t, helm(r.t, r.major, args...)))
}

func (r release) hasDaemonSet(want bool) {
	r.t.Helper()
	r.has(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, want)
}

// has checks whether an object exists, and waits a while for it to go where it should not: Helm deletes in the background.
func (r release) has(o client.Object, want bool) {
	r.t.Helper()
	err := r.bed.WaitFor(r.t.Context(), fmt.Sprintf("%T %s to exist: %t", o, o.GetName(), want), func() (bool, error) {
		err := r.bed.Client.Get(r.t.Context(), client.ObjectKeyFromObject(o), o)
		return apierrors.IsNotFound(err) != want, client.IgnoreNotFound(err)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// keepsValues checks that the values which a user gave to 1.3.3 are those of the Deployment.
func (r release) keepsValues(notes string) {
	r.t.Helper()
	var d appsv1.Deployment
	if err := r.bed.Client.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &d); err != nil {
		r.t.Fatal(err)
	}
	o := parsed(r.t, d.Spec.Template.Spec.Containers[0])
	if o.GracePeriodSeconds != 20 || d.Spec.Template.Annotations["example.com/team"] != "storage" {
		r.t.Errorf("values are lost: %d seconds, annotations %v", o.GracePeriodSeconds, d.Spec.Template.Annotations)
	}
	if !strings.Contains(notes, "options.fail-over-timeout means nothing any more") {
		r.t.Errorf("the notes do not say which option means nothing:\n%s", notes)
	}
}

// isGone checks that no object is left that has the labels of the release.
func (r release) isGone() {
	r.t.Helper()
	lists := []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &corev1.PodList{},
	}
	for _, list := range lists {
		err := r.bed.WaitFor(r.t.Context(), fmt.Sprintf("no %T of the release", list), func() (bool, error) {
			err := r.bed.Client.List(r.t.Context(), list, client.MatchingLabels{"app.kubernetes.io/instance": name})
			items, _ := apimeta.ExtractList(list)
			return len(items) == 0, err
		})
		if err != nil {
			r.t.Error(err)
		}
	}
}

// TestWithHelmTheOldDefaultsAreRefusedBySentence upgrades with --reuse-values, which brings the defaults of the old chart in place of the new.
func TestWithHelmTheOldDefaultsAreRefusedBySentence(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	for _, major := range majors {
		r := release{t: t, bed: b, major: major}
		r.run("install", nodeAgents, "--create-namespace")
		cmd := helm(t, major, "upgrade", name, chart, "--reuse-values", "--namespace="+namespace, "--kubeconfig="+b.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if exit := (&exec.ExitError{}); !errors.As(err, &exit) || !strings.Contains(string(out), "use --reset-then-reuse-values") {
			t.Errorf("%s: %v\n%s", major, err, out)
		}
		r.run("uninstall")
	}
}

// TestWithHelmTheAPIServerAcceptsTheChart by a strict dry run of what the default values make, and those that switch everything on, and admits the
// pods to a namespace with the Pod Security Standard "restricted".
//
//nolint:tparallel // all apply objects of the same names
func TestWithHelmTheAPIServerAcceptsTheChart(t *testing.T) {
	t.Parallel()
	b := apiServer(t)
	takeTurn(t)
	teachMonitoring(t, b)
	for values, content := range map[string][]byte{"default": render(t, "helm4", ""), "everything": render(t, "helm4", everything)} {
		t.Run(values, func(t *testing.T) {
			restrict(t, b, namespace)
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if err := client.IgnoreAlreadyExists(b.Client.Create(t.Context(), account)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Client.Delete(context.WithoutCancel(t.Context()), account) })
			accepted(t, b, content)
		})
	}
}

// prometheusOperator is the release of the Prometheus Operator whose kinds the monitors and rules must fit.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// teachMonitoring lets the API server know the kinds of the Prometheus Operator.
func teachMonitoring(t *testing.T, b *bed.Bed) {
	t.Helper()
	var module struct{ Dir string }
	if err := json.Unmarshal(output(t, exec.CommandContext(t.Context(), "go", "mod", "download", "-json", prometheusOperator)), &module); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		file := filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml")
		mustKubectl(t, b, "apply --server-side --filename="+file)
		mustKubectl(t, b, "wait --for=condition=Established --timeout=60s crd/"+kind+".monitoring.coreos.com")
	}
}
