package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// In none of these stories may the controller change anything.
func TestTheControllerLeavesAlone(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		volume   func(*virtual.Volume)
		workload func(*virtual.Workload)
		tell     func(*world)
		verdict  failover.Verdict // at the end, when not empty
		reason   failover.Reason
	}{
		"a workload that runs": {tell: func(w *world) { w.pass(3 * time.Minute) }},
		"a pod that is restarted and takes longer to start than every grace": {
			tell: func(w *world) {
				w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(v *virtual.Workload) { v.StartTime = 5 * time.Minute })
				w.must(w.Client().Delete(w.ctx, w.pod("db-0")))
				w.pass(4 * time.Minute)
				if w.runs("db-0", nodeA) {
					w.Error("the pod started too early")
				}
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
			},
		},
		"a pod that takes long to stop": {
			workload: func(v *virtual.Workload) { v.StopTime = 5 * time.Minute },
			tell: func(w *world) {
				w.must(w.Client().Delete(w.ctx, w.pod("db-0"), client.GracePeriodSeconds(300)))
				w.pass(6 * time.Minute)
				w.wantRunning("db-0", nodeA)
			},
		},
		"a raw block volume that nobody opens": {
			volume: func(v *virtual.Volume) { v.Block = true },
			tell:   func(w *world) { w.pass(3 * time.Minute) },
		},
		"a volume that is read-only": {
			volume: func(v *virtual.Volume) { v.ReadOnly = true },
			tell:   func(w *world) { w.pass(3 * time.Minute) },
		},
		"a pod that mounts its volume read-only": {
			workload: func(v *virtual.Workload) { v.ReadOnly = true },
			tell:     func(w *world) { w.pass(3 * time.Minute) },
		},
		"a volume for many readers": {
			volume:   func(v *virtual.Volume) { v.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany} },
			workload: func(v *virtual.Workload) { v.ReadOnly = true },
			tell:     func(w *world) { w.pass(3 * time.Minute) },
		},
		"the client of an NFS export, even when its node crashes": {
			volume: func(v *virtual.Volume) { v.Attributes = map[string]string{nfsExport: "true"} },
			tell:   func(w *world) { w.pass(time.Minute); w.Crash(nodeA); w.pass(2 * time.Minute) },
		},
		"a satellite that stops while DRBD goes on": {
			tell: func(w *world) { w.Linstor.StopSatellite(nodeA); w.pass(3 * time.Minute) },
		},
		"a node that LINSTOR cannot reach while DRBD goes on": {
			tell: func(w *world) { w.Linstor.CutSatellite(nodeA); w.pass(3 * time.Minute) },
		},
		"a LINSTOR controller that restarts again and again": {
			tell: func(w *world) {
				for range 10 {
					w.Linstor.Restart()
					w.pass(17 * time.Second)
				}
			},
		},
		"a kubelet that is silent while its storage is well": {
			tell: func(w *world) { w.SilenceKubelet(nodeA); w.pass(3 * time.Minute) },
		},
		"all kubelets silent at once": {
			tell: func(w *world) {
				for _, node := range []string{nodeA, nodeB, nodeT} {
					w.SilenceKubelet(node)
				}
				w.pass(5 * time.Minute)
			},
		},
		"a Primary that keeps its quorum with the tie-breaker": {
			tell: func(w *world) { w.DRBD.CutLink(nodeA, nodeB); w.pass(3 * time.Minute) },
		},
		"a survivor's crash": {
			tell: func(w *world) { w.Crash(nodeB); w.pass(3 * time.Minute) },
		},
		"a resource without quorum": {
			volume:  func(v *virtual.Volume) { v.Quorum = "off" },
			tell:    func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
			verdict: failover.Blocked, reason: failover.NoQuorum,
		},
		"an exempt pod": {
			workload: func(v *virtual.Workload) { v.Annotations = map[string]string{cluster.AnnotationIgnore: ""} },
			tell:     func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
			verdict:  failover.Blocked, reason: failover.Exempt,
		},
		"a pod without an owner": {
			workload: func(v *virtual.Workload) { v.Owner = "None" },
			tell:     func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
			verdict:  failover.Blocked, reason: failover.NoOwner,
		},
		"a DaemonSet's pod": {
			workload: func(v *virtual.Workload) { v.Owner = "DaemonSet" },
			tell:     func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
			verdict:  failover.Blocked, reason: failover.NodeBound,
		},
		"a pod with a directory of its node": {
			workload: func(v *virtual.Workload) {
				v.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			},
			tell:    func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
			verdict: failover.Blocked, reason: failover.UnsafeVolume,
		},
		"a node without a survivor": {
			volume: func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA}, "" },
			tell:   func(w *world) { w.Crash(nodeA); w.pass(2 * time.Minute) },
		},
		"a node that too few witnesses miss while the API was away": {
			// The tie-breaker's satellite is silent: only the Lease could tell, and most of them are silent.
			tell: func(w *world) {
				w.bystanders()
				w.Linstor.StopSatellite(nodeT)
				for _, node := range []string{nodeB, nodeT, "node-x"} {
					w.SilenceKubelet(node)
				}
				w.Crash(nodeA)
				w.pass(4 * time.Minute) // a Lease is forgotten after five
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db", orNothing(c.volume))
				w.workload("db", selected, orNothing(c.workload))
				w.pass(time.Minute)
				w.wantRunning("db-0", nodeA)
				c.tell(w)
				w.wantUntouched()
				if verdict, reason := p.said("db", nodeA); verdict != c.verdict || reason != c.reason {
					t.Errorf("told %q because of %q, want %q because of %q", verdict, reason, c.verdict, c.reason)
				}
				if c.verdict == failover.Blocked && !p.events.has(string(c.reason), "Pod", "db-0") {
					t.Errorf("events: %+v", p.events.events)
				}
			})
		})
	}
}

func orNothing[T any](f func(*T)) func(*T) {
	if f == nil {
		return func(*T) {}
	}
	return f
}

func TestTooFewWitnessesAndASilentLeaseMakeAKnownLoss(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.bystanders()
		w.Linstor.StopSatellite(nodeT)
		w.pass(10 * time.Second)
		w.Crash(nodeA)
		w.survivorReady("db")
		if removed := w.untilRemoved(2*time.Minute, "db-0"); removed < 45*time.Second || removed > 50*time.Second {
			t.Errorf("the pod was removed after %s, want the known grace", removed)
		}
		w.until(10*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAFrozenSurvivorIsNotBelieved(t *testing.T) {
	// B's satellite says for ever what was true for a moment: A is lost and B may be promoted. The tie-breaker is still
	// connected to A, and LINSTOR loses A's satellite.
	scene(t, func(w *world, _ *process) {
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.Linstor.FreezeSatellite(nodeB)
		w.DRBD.Rejoin(nodeA)
		w.pass(2 * time.Second)
		w.Linstor.StopSatellite(nodeA)
		if a, _ := w.DRBD.Replica("pvc-db", nodeA); a.Role != drbd.Primary || !a.HasQuorum {
			t.Fatalf("A should be a healthy Primary: %+v", a)
		}
		w.pass(5 * time.Minute)
		w.wantUntouched()
	})
}

func TestARawBlockVolumeIsMovedOffADeadNode(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Block = true })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}
