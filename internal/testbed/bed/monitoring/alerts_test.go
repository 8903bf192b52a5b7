package monitoring_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/permissions"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// fires is how long after its cause an alert may fire, and rests how long after its end it may still do.
	fires = 3 * time.Minute
	rests = 3 * time.Minute
)

func TestMain(m *testing.M) { bedtest.Main(m) }

// watched is a bed whose controller a Prometheus watches.
type watched struct {
	*bedtest.Scenario

	prometheus *prometheus
	root       string    // the folder of the project
	began      time.Time // when Prometheus was started
	seen       *answers  // what the dashboard showed
}

// watch starts a bed with all that users apply to have the controller watched, and a Prometheus that does so.
func watch(t *testing.T, name string) *watched {
	t.Helper()
	b := bedtest.Own(t, name, bed.Options{
		DRBDDetection: time.Second, LINSTOR: linstorsim.Options{ReconnectInterval: 2 * time.Second},
		Driver:         csidriver.Options{NodeCache: 5 * time.Second},
		ControllerArgs: []string{"--confirmed-loss-grace-period=2s"},
	})
	install(t, b)
	root, err := bed.Root()
	must(t, err)
	rules, err := os.ReadFile(filepath.Join(root, "config", "extras", "monitoring", "prometheus_rule.yaml"))
	must(t, err)
	began := time.Now()
	return &watched{bedtest.New(t, b, 7), startPrometheus(t, b, rules), root, began, &answers{}}
}

// workloads starts one that is moved, one that stays, and one that cannot be moved.
func (w *watched) workloads() (safe, alone bed.Workload) {
	w.T.Helper()
	safe = w.Workload("db")
	safe.Nodes = w.Nodes[:3] // not where the one runs that cannot be moved
	w.Start(safe)
	w.Start(bed.Workload{
		Namespace: w.Name, Name: "cache", Nodes: w.Nodes[4:], PreferNode: w.Nodes[5],
		Volumes: []bed.Volume{{Name: w.Name + "-cache", Nodes: w.Nodes[4:]}},
	})
	alone = bed.Workload{
		Namespace: w.Name, Name: "alone", Nodes: w.Nodes[3:5], PreferNode: w.Nodes[3],
		Volumes: []bed.Volume{{Name: w.Name + "-alone", Nodes: w.Nodes[3:5], Quorum: "majority"}},
	}
	w.Start(alone)
	return safe, alone
}

// Everything that wakes somebody up is made to happen, one after the other, and ended again: each alert fires, and rests again. While
// volumes are blocked and others have just been moved, the dashboard is asked for all that it shows. This takes a quarter of an hour.
func TestWithPrometheusAlertsFireAndRest(t *testing.T) {
	w := watch(t, "monitoring")
	safe, alone := w.workloads()
	for _, act := range append(losses(safe), []act{
		{"most nodes crash", func(w *watched) {
			w.Crash(w.Nodes...)
			w.wantFires("GuardTripped")
			w.Return(w.Nodes...)
			w.wantRests("GuardTripped")
		}},
		{"LINSTOR stops", func(w *watched) {
			w.LINSTOR.Stop()
			w.wantFires("Blind")
			w.LINSTOR.Start()
			w.wantRests("Blind")
		}},
		{"nobody may lead, while node agents come", func(w *watched) {
			w.deployAgents(true)
			restore := w.deny(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: bed.ControllerNamespace, Name: permissions.Role}}, "leases")
			w.wantFires("NoLeader")
			restore()
			w.wantRests("NoLeader")
			w.wantFires("NodeAgentRuns")
		}},
		{"a permission is taken away, and the node agents go", func(w *watched) {
			w.deployAgents(false)
			restore := w.deny(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: permissions.ClusterRole}}, "volumeattachments")
			leader, err := w.Leader(w.Ctx)
			w.Must(err)
			w.Must(w.KillController(leader, syscall.SIGKILL))
			w.wantFires("MissingPermission")
			restore()
			w.wantRests("MissingPermission")
			w.wantRests("NodeAgentRuns")
		}},
		{"the unprotected pod goes", func(w *watched) {
			w.Must(w.Client.Delete(w.Ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: alone.Namespace, Name: alone.Name}}))
			w.wantRests("PodsUnprotected")
			w.wantRests("FailedOver")
		}},
		{"the controller is gone", func(w *watched) {
			w.scale(0)
			w.wantFires("Down")
			w.scale(3)
			w.wantRests("Down")
		}},
	}...) {
		if !act.run(t, w) {
			break
		}
	}
	w.wantAnnotations()
	w.wantMetrics()
}

// act is a part of what happens on a bed.
type act struct {
	name string
	play func(*watched)
}

func (a act) run(t *testing.T, w *watched) bool {
	t.Helper()
	return t.Run(a.name, func(t *testing.T) { within := *w; within.Scenario = w.Within(t); a.play(&within) })
}

// losses are what the dashboard is about: a workload is moved, and another one cannot be.
func losses(safe bed.Workload) []act {
	return []act{
		{"a pod without another replica", func(w *watched) { w.wantFires("PodsUnprotected") }},
		{"a node crashes while a permission is missing", func(w *watched) {
			restore := w.deny(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: permissions.ClusterRole}}, "pods")
			w.Crash(w.Nodes[0])
			w.wantRefused()
			restore()
			w.wantFires("FailedOver")
			_, err := w.WaitRunning(w.Ctx, safe, w.Nodes[1:]...)
			w.Must(err)
		}},
		{"a node crashes whose volume nobody can take over", func(w *watched) {
			w.Crash(w.Nodes[3])
			w.wantFires("FailoverBlocked")
			w.wantDashboard()
			w.Return(w.Nodes[3], w.Nodes[0])
			w.wantRests("FailoverBlocked")
		}},
	}
}

// wantFires waits until an alert fires.
func (w *watched) wantFires(alert string) { w.T.Helper(); w.waitFor(alert, true, fires) }

// wantRests waits until an alert does not fire.
func (w *watched) wantRests(alert string) { w.T.Helper(); w.waitFor(alert, false, rests) }

func (w *watched) waitFor(alert string, want bool, patience time.Duration) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), patience)
	defer cancel()
	began, what := time.Now(), fmt.Sprintf("firing of %s to be %t", alert, want)
	w.Must(w.WaitFor(ctx, what, func() (bool, error) {
		got, err := w.prometheus.firing(ctx, "PiraeusHAController"+alert)
		return err == nil && got == want, err
	}))
	w.T.Logf("%s: %s after %.0f s", alert, map[bool]string{true: "fires", false: "rests"}[want], time.Since(began).Seconds())
}

// wantRefused waits until a request of a fail-over was refused.
func (w *watched) wantRefused() {
	w.T.Helper()
	const refused = `piraeus_ha_controller_failover_errors_total{code="403"} > 0`
	w.Must(w.WaitFor(w.Ctx, "a request that is refused", func() (bool, error) {
		answer, err := w.prometheus.ask(w.Ctx, refused, true, promv1.Range{End: time.Now()})
		return err == nil && !empty(answer), err
	}))
}

// deny takes the rules about a resource out of a role until it is restored.
func (w *watched) deny(role client.Object, resource string) (restore func()) {
	w.T.Helper()
	key := client.ObjectKeyFromObject(role)
	change := func(edit func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
		w.T.Helper()
		w.Must(w.Client.Get(w.T.Context(), key, role))
		switch o := role.(type) {
		case *rbacv1.Role:
			o.Rules = edit(o.Rules)
		case *rbacv1.ClusterRole:
			o.Rules = edit(o.Rules)
		}
		w.Must(w.Client.Update(w.T.Context(), role))
	}
	var before []rbacv1.PolicyRule
	change(func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		before = slices.Clone(rules)
		return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
	})
	return func() {
		w.T.Helper()
		change(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before })
	}
}

// deployAgents brings or removes the DaemonSet of 1.x.
func (w *watched) deployAgents(there bool) {
	w.T.Helper()
	labels := map[string]string{"app": "ha-controller"}
	agents := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ha-controller"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "agent", Image: "registry.example.com/piraeus-ha-controller:v1.3.1", Args: []string{"/agent"},
			}}},
		}},
	}
	if there {
		w.Must(w.Client.Create(w.Ctx, agents))
		return
	}
	w.Must(w.Client.Delete(w.Ctx, agents, client.PropagationPolicy(metav1.DeletePropagationForeground)))
}

// scale sets the number of the controller's replicas.
func (w *watched) scale(replicas int32) {
	w.T.Helper()
	var d appsv1.Deployment
	w.Must(w.Client.Get(w.Ctx, client.ObjectKey{Namespace: bed.ControllerNamespace, Name: bed.ControllerName}, &d))
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = &replicas
	w.Must(w.Client.Patch(w.Ctx, &d, patch))
}
