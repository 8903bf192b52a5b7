package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// forecastOf returns what the process foretells for a pod with one volume.
func forecastOf(w *world, p *process, pod string) forecast.Row {
	w.Helper()
	report := p.parts.forecaster.Forecast(w.ctx, forecast.Question{Namespace: "default"})
	i := slices.IndexFunc(report.Volumes, func(r forecast.Row) bool { return r.Pod == pod })
	if i < 0 {
		w.Fatalf("no volume of pod %s is known: %+v", pod, report)
	}
	return report.Volumes[i]
}

// A forecast is worth what comes true: whatever is wrong with a workload, the pod moves after its node is lost exactly
// if that was foreseen.
func TestForecastsComeTrue(t *testing.T) {
	t.Parallel()
	const nodeC = "node-c"
	disks := func(nodes ...string) func(*virtual.Volume) {
		return func(v *virtual.Volume) { v.Diskful, v.TieBreaker = nodes, "" }
	}
	quorum := func(value string) func(*virtual.Volume) { return func(v *virtual.Volume) { v.Quorum = value } }
	hostPath := corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}
	cases := map[string]struct {
		volume   []func(*virtual.Volume)
		workload func(*virtual.Workload)
		before   func(*world)
		want     failover.Outlook
		reason   failover.Reason
	}{
		"two disks and a tie-breaker": {want: failover.Protected, reason: failover.PrimaryHealthy},
		"three disks": {
			volume: []func(*virtual.Volume){disks(nodeA, nodeB, nodeC)}, want: failover.Protected, reason: failover.PrimaryHealthy,
		},
		"two disks alone": {
			volume: []func(*virtual.Volume){disks(nodeA, nodeB), quorum("majority")}, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"one disk": {
			volume: []func(*virtual.Volume){disks(nodeA), quorum("majority")}, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"quorum all": {
			volume: []func(*virtual.Volume){disks(nodeA, nodeB, nodeC), quorum("all")}, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"quorum 2 of 3": {
			volume: []func(*virtual.Volume){disks(nodeA, nodeB, nodeC), quorum("2")}, want: failover.Protected, reason: failover.PrimaryHealthy,
		},
		"quorum off":      {volume: []func(*virtual.Volume){quorum("off")}, want: failover.Unprotected, reason: failover.NoQuorum},
		"an exempt pod":   {workload: exempt, want: failover.Unprotected, reason: failover.Exempt},
		"an unsafe pod":   {workload: func(x *virtual.Workload) { x.Volumes = []corev1.Volume{hostPath} }, want: failover.Unprotected, reason: failover.UnsafeVolume},
		"a DaemonSet's":   {workload: func(x *virtual.Workload) { x.Owner = "DaemonSet" }, want: failover.Unprotected, reason: failover.NodeBound},
		"a read-only pod": {workload: func(x *virtual.Workload) { x.ReadOnly = true }, want: failover.Protected, reason: failover.VolumeUnused},
		"the other disk is lost already": {
			before: func(w *world) { w.Crash(nodeB) }, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"the tie-breaker is lost already": {
			before: func(w *world) { w.Crash(nodeT) }, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"one of three disks is lost already": {
			volume: []func(*virtual.Volume){disks(nodeA, nodeB, nodeC)}, before: func(w *world) { w.Crash(nodeC) },
			want: failover.Unprotected, reason: failover.NoSurvivor,
		},
		"a volume of its own that goes with it": {
			workload: func(x *virtual.Workload) { x.Ephemeral = []string{"scratch"} }, want: failover.Protected, reason: failover.PrimaryHealthy,
		},
		"survivor and tie-breaker have lost each other": {
			before: func(w *world) { w.DRBD.CutLink(nodeB, nodeT) }, want: failover.Unprotected, reason: failover.NoSurvivor,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			cfg.MaxLostNodes = failover.Limit{Percent: true, Value: 100}
			inWorld(t, virtual.Options{}, func(w *world) {
				w.must(w.AddNode(w.ctx, nodeC))
				// Enough nodes that live on for Leases to be believed.
				for _, spare := range []string{"spare-1", "spare-2", "spare-3"} {
					w.must(w.AddNode(w.ctx, spare))
				}
				p := w.startProcess("one", cfg)
				p.leads()
				w.volume("db", c.volume...)
				w.workload("db", selected, func(x *virtual.Workload) {
					x.Nodes = []string{nodeA, nodeB, nodeC}
					if c.workload != nil {
						c.workload(x)
					}
				})
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
				if c.before != nil {
					c.before(w)
					// What no event announces is known with the next resync.
					w.pass(11 * time.Minute)
				}
				if f := forecastOf(w, p, "db-0"); f.Verdict != c.want || f.Reason != c.reason {
					t.Errorf("the forecast is %s (%s: %s), want %s (%s)", f.Verdict, f.Reason, f.Message, c.want, c.reason)
				}
				if report := p.parts.forecaster.Forecast(w.ctx, forecast.Question{Namespace: "default"}); report.Verdict != c.want {
					t.Errorf("the forecast is %s of all pods, want %s: %s", report.Verdict, c.want, report.Message)
				}
				w.countProtection(p)
				if n := unprotected(t, p, failover.NoSurvivor); n != 0 && c.want == failover.Protected {
					t.Errorf("%g pods are counted as without a survivor, want none", n)
				}
				w.Crash(nodeA)
				w.pass(3 * time.Minute)
				if moved := len(w.removed("db-0")) > 0; moved != (c.want == failover.Protected) {
					t.Errorf("the pod was moved: %t; its Events: %v", moved, p.events.reasons("Pod", "db-0"))
				}
			})
		})
	}
}

func exempt(x *virtual.Workload) { x.Annotations = map[string]string{cluster.AnnotationIgnore: ""} }

// The leader counts each unprotected pod once, and forgets those that are protected again.
func TestUnprotectedPodsAreCounted(t *testing.T) {
	scene(t, func(w *world, p *process) {
		count := func(reason failover.Reason) float64 {
			w.countProtection(p)
			return unprotected(t, p, reason)
		}
		if n := count(failover.NoSurvivor); n != 0 {
			t.Errorf("%g pods without survivor, want none", n)
		}
		w.Crash(nodeB)
		w.until(11*time.Minute, "the pod is known to be unprotected", func() bool { return count(failover.NoSurvivor) == 1 })
		w.Return(nodeB)
		w.until(11*time.Minute, "the pod is known to be protected again", func() bool { return count(failover.NoSurvivor) == 0 })
		w.Linstor.Stop()
		w.pass(time.Minute)
		if n := count(failover.LinstorStale); n != 1 {
			t.Errorf("%g pods are unprotected because LINSTOR is away, want 1", n)
		}
	})
}

// countProtection counts how the pods are protected as the leader does, and shares nothing with it that either changes.
func (w *world) countProtection(p *process) {
	w.Helper()
	of := p.parts.protection
	h := of.helpers
	counts := &Protection{
		shared: of.shared, survey: of.survey, halt: of.halt,
		helpers: &helpers{shared: h.shared, selector: h.selector, told: make(map[types.UID]bool)},
		waiting: &waiting{shared: h.shared, told: make(map[types.UID]bool)},
	}
	w.must(counts.count(w.ctx))
}

func unprotected(t *testing.T, p *process, reason failover.Reason) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.parts.protection.metrics.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "piraeus_ha_controller_unprotected_pods" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == string(reason) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric piraeus_ha_controller_unprotected_pods of reason %s", reason)
	return 0
}

// Where no other node could run the pod, that is foreseen by what the cache has of it: it is trimmed.
func TestNoNodeIsForeseenWhereNoneCouldRunThePod(t *testing.T) {
	t.Parallel()
	tainted := func(w *world, name string, effect corev1.TaintEffect) {
		node := w.node(name)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: effect})
		w.must(w.Client().Update(w.ctx, node))
	}
	closed := func(w *world) { tainted(w, nodeB, corev1.TaintEffectNoSchedule); w.must(w.cordon(nodeT)) }
	affinity := func(zone string) func(*world) {
		return func(w *world) {
			node := w.node(nodeB)
			node.Labels = map[string]string{"zone": zone}
			w.must(w.Client().Update(w.ctx, node))
			pv := read[corev1.PersistentVolume](w, "", "db")
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}}
			w.must(w.Client().Update(w.ctx, pv))
		}
	}
	for name, c := range map[string]struct {
		before   func(*world)
		tolerant bool
		message  string // empty where the pod is protected
	}{
		"every node is open":                {before: func(*world) {}},
		"the other disk's node is cordoned": {before: func(w *world) { w.must(w.cordon(nodeB)) }},
		"the other nodes are closed":        {before: closed, message: "1 because it is cordoned, 1 because the pod does not tolerate its taint dedicated"},
		"the pod tolerates every taint":     {before: closed, tolerant: true},
		"the pod tolerates that all others are cordoned": {
			before: func(w *world) { w.must(w.cordon(nodeB)); w.must(w.cordon(nodeT)) }, tolerant: true,
		},
		"all others are cordoned": {
			before: func(w *world) { w.must(w.cordon(nodeB)); w.must(w.cordon(nodeT)) }, message: "2 because it is cordoned",
		},
		"other nodes are only avoided":                 {before: func(w *world) { tainted(w, nodeB, corev1.TaintEffectPreferNoSchedule); w.must(w.cordon(nodeT)) }},
		"the volume's node affinity leaves a node":     {before: affinity("a")},
		"the volume's node affinity leaves no node":    {before: affinity("b"), message: "2 because the node affinity of volume db rules it out"},
		"the node that is left has no satellite":       {before: func(w *world) { closed(w); w.without("node-x") }, message: "LINSTOR has no replica of volume db there"},
		"the node that is left gets a replica at once": {before: func(w *world) { closed(w); w.must(w.AddNode(w.ctx, "node-x")) }},
		"the node that is left takes no replica": {before: func(w *world) {
			closed(w)
			w.must(w.AddNode(w.ctx, "node-x"))
			w.must(w.Linstor.SetNodeProperty("node-x", linstorsim.PropAutoplaceTarget, "False"))
		}, message: "LINSTOR has no replica of volume db there"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", cfg)
				p.leads()
				w.volume("db")
				w.workload("db", selected, func(x *virtual.Workload) { x.Tolerant = c.tolerant })
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
				c.before(w)
				w.pass(2 * time.Minute)
				f := forecastOf(w, p, "db-0")
				if c.message == "" && f.Verdict != failover.Protected {
					t.Errorf("the forecast is %s (%s: %s), want it protected", f.Verdict, f.Reason, f.Message)
				}
				if c.message != "" && (f.Verdict != failover.Unprotected || f.Reason != failover.NoReadyNode || !strings.Contains(f.Message, c.message)) {
					t.Errorf("the forecast is %s (%s: %s), want NoReadyNode with %q", f.Verdict, f.Reason, f.Message, c.message)
				}
			})
		})
	}
}

// without adds a node to Kubernetes alone.
func (w *world) without(name string) {
	w.must(w.Client().Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}
