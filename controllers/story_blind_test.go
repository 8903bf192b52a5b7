package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// linstorOnT is a scene whose LINSTOR runs in a pod on T. When that is deleted it ends at once, another one runs ten seconds later, and
// its pod is there meanwhile.
func linstorOnT(t *testing.T, cfg Config, tell func(w *world, p *process), change ...func(*corev1.Pod)) {
	t.Helper()
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.linstorPod("linstor-1", nodeT, change...)
		w.API.OnChange(func(c apimodel.Change) {
			if strings.HasPrefix(c.Actor, controllerActor) && c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && isLinstor(c.Old.(*corev1.Pod)) {
				go w.Linstor.Stop()
				w.linstorPod(c.Name+"x", nodeT, change...)
				time.AfterFunc(10*time.Second, w.Linstor.Start)
			}
		})
		w.pass(10 * time.Second)
		tell(w, p)
	})
}

// restarts returns when pods of LINSTOR were deleted.
func (w *world) restarts() []time.Duration {
	var at []time.Duration
	for _, c := range w.did(apimodel.VerbDelete, "Pod") {
		if isLinstor(c.Old.(*corev1.Pod)) {
			at = append(at, c.Time.Sub(w.started))
		}
	}
	return at
}

// asksForPools returns how often LINSTOR was asked for its storage pools.
func (w *world) asksForPools() int { return w.Linstor.Requests()[linstorsim.KindStoragePools] }

// blindNodes is the metric of that name.
func blindNodes(p *process) float64 { return p.counted()["piraeus_ha_controller_linstor_blind_nodes"] }

func TestABlindLinstorIsRestartedAndTheWorkloadIsMoved(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, p *process) {
		w.Linstor.LoseConnector()
		w.pass(10 * time.Minute)
		w.wantUntouched()
		w.Crash(nodeA)
		deleted := w.until(45*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
		if deleted < 20*time.Second {
			t.Errorf("LINSTOR's pod was deleted %s after the crash: the kubelet must be silent for 20 s, 10 s of them between two answers", deleted)
		}
		if got := w.pod("db-0"); got == nil || got.DeletionTimestamp != nil {
			t.Error("a pod was moved by the words of a blind LINSTOR")
		}
		moved := w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		t.Logf("LINSTOR's pod deleted %s after the crash, workload runs %s later", deleted, moved)
		w.pass(5 * time.Minute)
		if got := w.restarts(); len(got) != 1 {
			t.Errorf("pods of LINSTOR were deleted at %v, want once", got)
		}
		if told := p.events.reasons("Pod", "linstor-1"); len(told) != 1 || told[0] != string(failover.LinstorBlind) {
			t.Errorf("LINSTOR's pod is told %v", told)
		}
		if told := p.events.reasons("Pod", "linstor-1x"); len(told) > 0 {
			t.Errorf("the new pod of LINSTOR is told %v", told)
		}
		if got := blindNodes(p); got != 0 {
			t.Errorf("LINSTOR is still blind for %v nodes", got)
		}
		if w.silenced(nodeT) {
			t.Error("pods are kept away from the node of LINSTOR, which lives")
		}
	})
}

// Without the selector nobody restarts LINSTOR. The pods on the lost node are told why they stay.
func TestThatLinstorIsBlindIsSaid(t *testing.T) {
	linstorOnT(t, defaults(), func(w *world, p *process) {
		before := w.pod("db-0")
		w.Linstor.LoseConnector()
		w.pass(10 * time.Second)
		w.Crash(nodeA)
		w.pass(time.Minute)
		notes := p.events.notes(failover.LinstorBlind, "db-0")
		if len(notes) != 1 || !containsAll(notes[0], []string{"has no connection", "restart", "--recover-pod-selector"}) {
			t.Fatalf("a minute later the pod is told %q: %v", notes, p.events.events)
		}
		if got := blindNodes(p); got != 3 {
			t.Errorf("LINSTOR is blind for %v nodes by the metric, want 3", got)
		}
		w.pass(30 * time.Minute)
		w.wantStill(before)
		if told := p.events.reasons("Pod", "db-0"); len(told) > 2 || len(p.events.notes(failover.LinstorBlind, "db-0")) != 1 {
			t.Errorf("half an hour later the pod has been told %v", told)
		}
		w.wantUntouched()
		w.Linstor.Restart()
		w.until(2*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if got := blindNodes(p); got != 0 {
			t.Errorf("LINSTOR is still blind for %v nodes", got)
		}
	})
}

func TestALinstorThatIsNotProvenBlindIsLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(*world)
		// most is how often LINSTOR may be asked for its storage pools in five minutes.
		most int
	}{
		"no kubelet is silent": {lose: func(w *world) { w.Linstor.LoseConnector() }},
		"it sees the node":     {lose: func(w *world) { w.SilenceKubelet(nodeA) }, most: 10},
		"it has a connection to a node that it wrongly calls ONLINE": {
			lose: func(w *world) { w.Linstor.FreezeSatellite(nodeA); w.Crash(nodeA) }, most: 10,
		},
		"it misses the node": {lose: func(w *world) { w.Linstor.CutSatellite(nodeA); w.SilenceKubelet(nodeA) }},
		"it is away":         {lose: func(w *world) { w.Linstor.LoseConnector(); w.SilenceKubelet(nodeA); w.Linstor.Stop() }},
		"the kubelet is heard of again before": {lose: func(w *world) {
			w.Linstor.LoseConnector()
			w.SilenceKubelet(nodeA)
			w.until(time.Minute, "LINSTOR is asked", func() bool { return w.asksForPools() > 0 })
			w.pass(8 * time.Second)
			w.RestoreKubelet(nodeA)
		}, most: 1000},
		"most kubelets are silent": {lose: func(w *world) {
			w.Linstor.LoseConnector()
			w.SilenceKubelet(nodeA)
			w.SilenceKubelet(nodeB)
		}, most: 10},
	} {
		t.Run(name, func(t *testing.T) {
			linstorOnT(t, recovering(), func(w *world, _ *process) {
				tc.lose(w)
				w.pass(5 * time.Minute)
				if got := w.restarts(); len(got) > 0 {
					t.Errorf("pods of LINSTOR were deleted at %v", got)
				}
				if got := w.asksForPools(); got > tc.most {
					t.Errorf("LINSTOR was asked for its storage pools %d times", got)
				}
			})
		})
	}
}

// A LINSTOR that goes blind again and again is restarted once in ten minutes.
func TestABlindLinstorIsRestartedOnceInTenMinutes(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, _ *process) {
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeA)
		for range 35 * 60 {
			w.pass(time.Second)
			if !w.Linstor.Blind() && w.Linstor.ConnectionStatus(nodeA) == linstorsim.Online {
				w.Linstor.LoseConnector()
			}
		}
		at := w.restarts()
		if len(at) != 4 {
			t.Errorf("pods of LINSTOR were deleted at %v, want four times in 35 minutes", at)
		}
		for i := range max(len(at)-1, 0) {
			if apart := at[i+1] - at[i]; apart < failover.BlindRetry {
				t.Errorf("the deletions %d and %d were %s apart", i, i+1, apart)
			}
		}
	})
}

// The leader before may have restarted LINSTOR a moment ago, of which the next one knows only that the pod is young.
func TestANewLeaderLeavesAYoungPodOfLinstorAlone(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, p *process) {
		view := w.newView(recovering())
		w.Linstor.LoseConnector()
		w.pass(time.Minute)
		p.stops()
		next := w.startProcessOn("two", recovering(), view)
		next.leads()
		w.pass(time.Minute)
		w.SilenceKubelet(nodeA)
		w.pass(5 * time.Minute)
		if got := w.restarts(); len(got) > 0 {
			t.Errorf("pods of LINSTOR were deleted at %v", got)
		}
		w.until(5*time.Minute, "LINSTOR's pod is deleted", func() bool { return len(w.restarts()) > 0 })
		// That it waits was told for the same reason.
		notes := next.events.notes(failover.LinstorBlind, "linstor-1")
		if len(notes) != 2 || !strings.Contains(notes[0], "may have been restarted") || !strings.Contains(notes[1], "only a restart") {
			t.Errorf("LINSTOR's pod is told %q, want that it waits and that it is deleted", notes)
		}
	})
}

func TestWhatKeepsThePodOfABlindLinstor(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   func(*corev1.Pod)
		cfg   func(*Config)
		world func(*world)
		want  failover.Reason
	}{
		"no ReplicaSet owns it": {
			pod:  func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "StatefulSet" },
			want: failover.NoOwner,
		},
		"nobody owns it": {
			pod:  func(pod *corev1.Pod) { pod.OwnerReferences = nil },
			want: failover.NoOwner,
		},
		"it has a volume of LINSTOR": {
			pod: func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "db", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-other"},
				}}}
			},
			want: failover.NeedsStorage,
		},
		"its own node's kubelet is the silent one": {
			world: func(w *world) { w.SilenceKubelet(nodeT); w.RestoreKubelet(nodeA) },
			want:  failover.LinstorBlind,
		},
		"as many nodes are silent as may be": {
			cfg:  func(cfg *Config) { cfg.MaxLostNodes = failover.Limit{} },
			want: failover.GuardTripped,
		},
		"a dry run": {
			cfg:  func(cfg *Config) { cfg.DryRun = true },
			want: failover.DryRun,
		},
		"a Deployment that cannot be read may say that all is paused": {
			cfg: pausable, world: (*world).hideDeployment, want: failover.Paused,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := recovering()
			if tc.cfg != nil {
				tc.cfg(&cfg)
			}
			var change []func(*corev1.Pod)
			if tc.pod != nil {
				change = append(change, tc.pod)
			}
			linstorOnT(t, cfg, func(w *world, p *process) {
				w.Linstor.LoseConnector()
				w.SilenceKubelet(nodeA)
				if tc.world != nil {
					tc.world(w)
				}
				w.until(time.Minute, "an Event tells why", func() bool { return p.events.has(string(tc.want), "Pod", "linstor-1") })
				w.pass(20 * time.Second)
				w.wantUntouched()
				if got := p.events.reasons("Pod", "linstor-1"); len(got) != 1 {
					t.Errorf("Events of LINSTOR's pod: %q, want one", got)
				}
			}, change...)
		})
	}
}

// Only the LINSTOR controller is restarted, not what is selected beside it.
func TestABlindLinstorTakesNoOtherPodWithIt(t *testing.T) {
	cfg := recovering()
	cfg.RecoverSelector, _ = labels.Parse("app.kubernetes.io/component in (linstor-controller,linstor-csi-controller)")
	linstorOnT(t, cfg, func(w *world, _ *process) {
		w.linstorPod("csi-1", nodeT, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{cluster.ComponentLabel: "linstor-csi-controller"}
		})
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeA)
		w.until(time.Minute, "LINSTOR's pod is deleted", func() bool { return len(w.restarts()) > 0 })
		w.pass(time.Minute)
		if got := w.removed("csi-1"); len(got) > 0 {
			t.Error("the CSI controller's pod was deleted too")
		}
	})
}

// A kubelet has been silent for long, and LINSTOR sees its node. Another falls silent under a LINSTOR that has gone blind since: it is asked
// at once. Where none does, that is found out when it is asked again.
func TestALinstorThatGoesBlindLaterIsFoundOut(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(*world)
		most time.Duration
	}{
		"another kubelet falls silent": {func(w *world) { w.Crash(nodeA) }, 33 * time.Second},
		"none does":                    {func(*world) {}, 42 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			linstorOnT(t, recovering(), func(w *world, _ *process) {
				for _, node := range []string{"node-x", "node-y", "node-z"} {
					w.must(w.AddNode(w.ctx, node))
				}
				w.pass(time.Minute)
				w.SilenceKubelet("node-x")
				w.pass(5 * time.Minute)
				asked := w.asksForPools()
				w.until(time.Minute, "LINSTOR is asked", func() bool { return w.asksForPools() > asked })
				w.Linstor.LoseConnector()
				tc.lose(w)
				after := w.until(2*time.Minute, "LINSTOR's pod is deleted", func() bool { return len(w.restarts()) > 0 })
				if after > tc.most {
					t.Errorf("LINSTOR's pod was deleted after %s, want at most %s", after, tc.most)
				}
			})
		})
	}
}

// A kubelet was silent for just long enough for LINSTOR to be asked. It has been known to be blind since, when a node crashes.
func TestALinstorThatHasBeenBlindForLongIsRestartedOnceANodeCrashes(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, p *process) {
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeB)
		w.until(time.Minute, "LINSTOR is asked", func() bool { return w.asksForPools() > 0 })
		w.pass(8 * time.Second)
		w.RestoreKubelet(nodeB)
		w.pass(20 * time.Minute)
		if got := w.restarts(); len(got) > 0 || blindNodes(p) != 3 {
			t.Fatalf("LINSTOR is blind for %v nodes, and its pods were deleted at %v, want three and never", blindNodes(p), got)
		}
		w.Crash(nodeA)
		deleted := w.until(45*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.restarts()) > 0 })
		t.Logf("LINSTOR's pod is deleted %s after the crash", deleted)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// The API rejects the deletion: it is tried again, not ten minutes later.
func TestABlindLinstorIsRestartedAlthoughTheAPIRejectsThatAtFirst(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, _ *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" {
				return errors.New("no")
			}
			return nil
		})
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeA)
		w.pass(time.Minute)
		w.API.Fail(nil)
		w.until(5*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.restarts()) > 0 })
	})
}

// Nobody knows which of several pods answers.
func TestAllPodsOfABlindLinstorAreDeletedByOneLook(t *testing.T) {
	linstorOnT(t, recovering(), func(w *world, _ *process) {
		w.linstorPod("linstor-2", nodeB)
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeA)
		w.until(time.Minute, "LINSTOR's pods are deleted", func() bool { return len(w.restarts()) > 0 })
		w.pass(time.Minute)
		if got := w.restarts(); len(got) != 2 || got[1]-got[0] > time.Second {
			t.Errorf("pods of LINSTOR were deleted at %v, want two by one look", got)
		}
	})
}

// The node's kubelet is heard of again right before it has been silent for long enough, and the cache does not know yet.
func TestABlindLinstorIsRestartedByTheLeaseOfNow(t *testing.T) {
	sceneBehind(t, 3*time.Second, recovering(), func(w *world, _ *process) {
		w.linstorPod("linstor-1", nodeT)
		w.pass(time.Minute)
		w.Linstor.LoseConnector()
		w.SilenceKubelet(nodeA)
		w.until(time.Minute, "LINSTOR is asked", func() bool { return w.asksForPools() > 0 })
		w.pass(9 * time.Second)
		w.RestoreKubelet(nodeA)
		w.pass(time.Minute)
		if got := w.restarts(); len(got) > 0 {
			t.Errorf("pods of LINSTOR were deleted at %v", got)
		}
	})
}
