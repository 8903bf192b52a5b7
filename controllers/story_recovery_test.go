package controllers

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// linstorLabels are those of LINSTOR's own pods in the stories.
var linstorLabels = map[string]string{"app.kubernetes.io/component": "linstor-controller"}

func isLinstor(pod *corev1.Pod) bool {
	return labels.SelectorFromSet(linstorLabels).Matches(labels.Set(pod.Labels)) || attaches(pod)
}

// auditRecovery: never by force, never off a node that was heard of lately, never one that nothing replaces at once.
func (w *world) auditRecovery(c apimodel.Change, pod *corev1.Pod) {
	at := time.Since(w.started)
	if c.GracePeriodSeconds != nil {
		w.Errorf("after %s: pod %s of LINSTOR was deleted with a grace of %d s of the controller's own", at, pod.Name, *c.GracePeriodSeconds)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Kind != "ReplicaSet" {
		w.Errorf("after %s: pod %s of LINSTOR was deleted and nothing replaces it", at, pod.Name)
	}
	if pod.DeletionTimestamp != nil {
		w.Errorf("after %s: pod %s of LINSTOR was deleted again", at, pod.Name)
	}
}

// recovering are default settings with LINSTOR's own pods selected.
func recovering() Config {
	cfg := defaults()
	cfg.RecoverSelector = labels.SelectorFromSet(linstorLabels)
	return cfg
}

// linstorPod adds a pod of LINSTOR on a node.
func (w *world) linstorPod(name, node string, change ...func(*corev1.Pod)) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: linstorLabels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "linstor", UID: "replicaset", Controller: new(true),
		}},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Spec.NodeName = node
	for _, f := range change {
		f(pod)
	}
	w.must(w.Client().Create(w.ctx, pod))
}

// linstorOnA is a scene whose LINSTOR runs in a pod on A: the crash of A ends it, and when the pod is deleted, a
// replacement takes ten seconds to start on the first node that takes pods.
func linstorOnA(t *testing.T, cfg Config, tell func(w *world, p *process), change ...func(*corev1.Pod)) {
	t.Helper()
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.linstorPod("linstor-1", nodeA, change...)
		w.API.OnChange(func(c apimodel.Change) {
			if !strings.HasPrefix(c.Actor, controllerActor) || c.Verb != apimodel.VerbDelete || c.Kind != "Pod" || c.Name != "linstor-1" {
				return
			}
			for _, taint := range w.node(nodeA).Spec.Taints {
				if taint.Effect == corev1.TaintEffectNoSchedule && taint.Key != cluster.TaintLostQuorum {
					time.AfterFunc(10*time.Second, w.Linstor.Start)
					return
				}
			}
			w.Error("the replacement of LINSTOR's pod is placed on the dead node again")
		})
		w.pass(10 * time.Second)
		tell(w, p)
	})
}

func (w *world) crashWithLinstor() {
	w.Linstor.Stop()
	w.Crash(nodeA)
}

func (w *world) silenced(node string) bool {
	w.Helper()
	return cluster.HasTaint(w.node(node), cluster.TaintNodeSilent, corev1.TaintEffectNoSchedule)
}

func TestLinstorItselfWasOnTheNodeThatCrashed(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, p *process) {
		w.crashWithLinstor()
		deleted := w.until(25*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
		if deleted < 10*time.Second {
			t.Errorf("LINSTOR's pod was deleted %s after the crash: its kubelet had not been silent for 20 s", deleted)
		}
		running := w.until(time.Minute-deleted, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		t.Logf("LINSTOR's pod deleted %s after the crash, workload runs %s later", deleted, running)
		if got := len(w.removed("linstor-1")); got != 1 {
			t.Errorf("LINSTOR's pod was deleted %d times, want once", got)
		}
		if !p.events.has(string(failover.LinstorGone), "Pod", "linstor-1") {
			t.Errorf("no Event says why LINSTOR's pod was deleted: %+v", p.events.events)
		}
		w.until(time.Minute, "Kubernetes' own taint has taken over", func() bool { return !w.silenced(nodeA) })
		w.Return(nodeA)
		w.until(2*time.Minute, "the node takes pods again", func() bool { return len(w.node(nodeA).Spec.Taints) == 0 })
	})
}

func TestAStuckLinstorOnALivingNodeIsLeftAlone(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		w.Linstor.Stop()
		w.pass(5 * time.Minute)
		w.wantUntouched()
	})
}

func TestASilentKubeletUnderAnAnsweringLinstorIsLeftAlone(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		w.SilenceKubelet(nodeA)
		w.pass(5 * time.Minute)
		w.wantUntouched()
	})
}

func TestAPodThatLinstorNeedsGoesWhenLinstorItselfLivesElsewhere(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(25*time.Second, "the pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
	})
}

// A kubelet is heard of again when it has nearly been silent for long enough, and the cache does not know yet.
func TestAKubeletThatIsHeardOfAgainIsNotTakenForSilent(t *testing.T) {
	sceneBehind(t, 3*time.Second, recovering(), func(w *world, p *process) {
		w.linstorPod("linstor-1", nodeA)
		w.pass(time.Minute)
		w.Linstor.Stop()
		w.SilenceKubelet(nodeA)
		silent := func() bool { return p.kubelets.Node(nodeA).LeaseSilence > 18*time.Second }
		w.until(40*time.Second, "the cache has been without a renewal for nearly long enough", silent)
		w.RestoreKubelet(nodeA)
		w.pass(time.Minute)
		w.wantUntouched()
	})
}

// Nothing is done for LINSTOR's pods by default.
func TestNoPodOfLinstorIsSelectedByDefault(t *testing.T) {
	linstorOnA(t, defaults(), func(w *world, _ *process) {
		w.crashWithLinstor()
		w.pass(5 * time.Minute)
		w.wantUntouched()
	})
}

func TestWhatKeepsAPodOfLinstor(t *testing.T) {
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
		"it has a volume of LINSTOR": {
			pod: func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "db", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-other"},
				}}}
			},
			want: failover.NeedsStorage,
		},
		"no other node may run it": {
			pod:  func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": nodeA} },
			want: failover.NoReadyNode,
		},
		"all other nodes are closed": {
			world: func(w *world) {
				w.must(w.cordon(nodeB))
				w.must(w.cordon(nodeT))
			},
			want: failover.NoReadyNode,
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
		"its node cannot be tainted": {
			world: func(w *world) {
				w.API.Fail(func(r apimodel.Request) error {
					if r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
						return errors.New("no")
					}
					return nil
				})
			},
			want: failover.KeepAwayFailed,
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
			linstorOnA(t, cfg, func(w *world, p *process) {
				if tc.world != nil {
					tc.world(w)
				}
				w.crashWithLinstor()
				w.until(45*time.Second, "an Event tells why", func() bool { return p.events.has(string(tc.want), "Pod", "linstor-1") })
				w.pass(20 * time.Second)
				w.wantUntouched()
				if got := p.events.reasons("Pod", "linstor-1"); len(got) != 1 {
					t.Errorf("Events of LINSTOR's pod: %q, want one", got)
				}
			}, change...)
		})
	}
}

// LINSTOR and most kubelets fall silent together: it may be the API that does not hear them.
func TestWhileMostKubeletsAreSilentLinstorIsLeftAlone(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		w.crashWithLinstor()
		w.SilenceKubelet(nodeB)
		w.pass(3 * time.Minute)
		w.wantUntouched()
		w.RestoreKubelet(nodeB)
		w.until(time.Minute, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
	})
}

func TestWhereNodesMayNotBeTaintedLinstorWaitsForKubernetesOwnTaint(t *testing.T) {
	cfg := recovering()
	cfg.DisableNodeTaints = true
	linstorOnA(t, cfg, func(w *world, p *process) {
		w.crashWithLinstor()
		w.until(30*time.Second, "an Event tells why nothing happens", func() bool {
			return p.events.has(string(failover.KeepAwayFailed), "Pod", "linstor-1")
		})
		w.wantUntouched()
		w.until(time.Minute, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if w.nodePatches() != 0 {
			t.Errorf("%d nodes were patched", w.nodePatches())
		}
	})
}

// A replacement that tolerates everything may come to the dead node again. It gets the time that another one had.
func TestAPodOfLinstorThatComesBackToTheDeadNodeIsNoTightLoop(t *testing.T) {
	cfg := recovering()
	linstorOnA(t, cfg, func(w *world, _ *process) {
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && isLinstor(c.Old.(*corev1.Pod)) {
				w.linstorPod(c.Name+"x", nodeA)
			}
		})
		w.crashWithLinstor()
		w.pass(2 * time.Minute)
		count := 0
		for _, c := range w.did(apimodel.VerbDelete, "Pod") {
			if isLinstor(c.Old.(*corev1.Pod)) {
				count++
			}
		}
		if count < 2 || count > 6 {
			t.Errorf("%d pods of LINSTOR were deleted in two minutes, want one every 20 s", count)
		}
	})
}

// The taint of a leader that is gone is taken off by the next one, also where it does not look after LINSTOR's pods.
func TestTheTaintOfASilentNodeGoesWithItsCause(t *testing.T) {
	linstorOnA(t, defaults(), func(w *world, _ *process) {
		for _, node := range []string{nodeA, nodeB} {
			tainted := w.node(node)
			tainted.Spec.Taints = append(tainted.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
			if node == nodeA {
				w.SilenceKubelet(nodeA)
				w.pass(25 * time.Second)
				tainted.ResourceVersion = w.node(node).ResourceVersion
			}
			w.must(w.Client().Update(w.ctx, tainted))
		}
		w.until(5*time.Second, "the taint is off the node whose kubelet is heard of", func() bool { return !w.silenced(nodeB) })
		if !w.silenced(nodeA) {
			t.Error("the taint is off the node whose kubelet is silent")
		}
		w.RestoreKubelet(nodeA)
		w.until(15*time.Second, "the taint is off the node whose kubelet is heard of again", func() bool { return !w.silenced(nodeA) })
	})
}

// A policy keeps the taint of a former leader on another node. That must not keep LINSTOR away.
func TestATaintThatStaysOnAnotherNodeKeepsNoPodOfLinstor(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		tainted := w.node(nodeB)
		tainted.Spec.Taints = append(tainted.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
		w.must(w.Client().Update(w.ctx, tainted))
		w.API.Fail(func(r apimodel.Request) error {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbPatch && r.Kind == "Node" && r.Name == nodeB {
				return errors.New("a policy forbids it")
			}
			return nil
		})
		w.crashWithLinstor()
		w.until(25*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
		w.API.Fail(nil)
		w.until(retryLimit+time.Second, "the taint is off the other node", func() bool { return !w.silenced(nodeB) })
	})
}

// The API takes its time to keep pods away from the node: by then the kubelet and LINSTOR may be back.
func TestLinstorsPodIsLookedAtAgainAfterATaintThatTookLong(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, p *process) {
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
				return 9 * time.Second
			}
			return 0
		})
		w.Linstor.Stop()
		w.SilenceKubelet(nodeA)
		w.until(30*time.Second, "A is silent", func() bool { return len(p.kubelets.Silent(20*time.Second, time.Hour)) > 0 })
		w.pass(5 * time.Second)
		w.RestoreKubelet(nodeA)
		w.Linstor.Start()
		w.pass(time.Minute)
		if got := w.removed("linstor-1"); len(got) > 0 {
			t.Error("LINSTOR's pod was deleted by what was known 15 s before")
		}
		if w.silenced(nodeA) {
			t.Error("pods are still kept away from A")
		}
	})
}

// What is read of the node counts from when it was asked for, however long LINSTOR takes to show that it is away.
func TestLinstorsPodIsNotDeletedByWhatWasReadLongAgo(t *testing.T) {
	for name, tc := range map[string]struct {
		takes   time.Duration
		deleted bool
	}{
		"the nodes are listed within a second":   {time.Second, true},
		"the nodes are listed in three seconds":  {3 * time.Second, true},
		"the nodes are listed in twelve seconds": {12 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			linstorOnA(t, recovering(), func(w *world, _ *process) {
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbList && r.Kind == "Node" {
						return tc.takes
					}
					return 0
				})
				w.crashWithLinstor()
				w.pass(45 * time.Second)
				if deleted := len(w.removed("linstor-1")) > 0; deleted != tc.deleted {
					t.Errorf("LINSTOR's pod was deleted: %t, want %t", deleted, tc.deleted)
				}
			})
		})
	}
}

// Its user takes the label off the pod after it was listed.
func TestLinstorsPodStaysIfItIsNotSelectedAnyMoreWhenItIsDeleted(t *testing.T) {
	linstorOnA(t, recovering(), func(w *world, _ *process) {
		var changed atomic.Bool
		w.ofController(func(r apimodel.Request) error {
			if r.Verb != apimodel.VerbDelete || r.Name != "linstor-1" || changed.Swap(true) {
				return nil
			}
			pod := w.pod("linstor-1")
			pod.Labels = nil
			w.must(w.Client().Update(w.ctx, pod))
			return nil
		})
		w.crashWithLinstor()
		w.until(time.Minute, "LINSTOR's pod is to be deleted", changed.Load)
		w.pass(time.Minute)
		if got := w.removed("linstor-1"); len(got) > 0 {
			t.Error("a pod was deleted that was not selected any more")
		}
	})
}

// The CSI controller was on the node too, and something else waits for a volume. A driver that starts before LINSTOR has its nodes back
// would take them all for CONNECTED for a minute.
func TestLinstorAndItsCSIControllerWereOnTheNodeThatCrashed(t *testing.T) {
	cfg := recovering()
	var err error
	if cfg.RecoverSelector, err = labels.Parse(cluster.ComponentLabel + " in (linstor-controller," + cluster.AttacherComponent + ")"); err != nil {
		t.Fatal(err)
	}
	slow := virtual.Options{Linstor: linstorsim.Options{SyncDuration: 4 * time.Second}}
	sceneWith(t, slow, cfg, func(w *world, p *process) {
		w.linstorPod("linstor-1", nodeA)
		w.linstorPod("csi-1", nodeA, func(pod *corev1.Pod) {
			pod.Labels = map[string]string{cluster.ComponentLabel: cluster.AttacherComponent}
			pod.OwnerReferences[0].UID = "other replicaset"
		})
		w.must(w.AddVolume(w.ctx, virtual.Volume{Name: "new", Diskful: []string{nodeB, nodeT}}))
		w.API.OnChange(func(c apimodel.Change) {
			if !strings.HasPrefix(c.Actor, controllerActor) || c.Verb != apimodel.VerbDelete || c.Kind != "Pod" {
				return
			}
			switch c.Name {
			case "linstor-1":
				time.AfterFunc(10*time.Second, w.Linstor.Start)
			case "csi-1":
				if got := w.Linstor.ConnectionStatus(nodeB); got != linstorsim.Online {
					w.Errorf("the CSI controller's pod was deleted while %s is %q", nodeB, got)
				}
				time.AfterFunc(3*time.Second, w.StartAttacher)
			}
		})
		w.pass(10 * time.Second)
		w.StopAttacher()
		w.crashWithLinstor()
		w.AddWorkload(virtual.Workload{Name: "new-0", Claims: []string{"data-new"}, Nodes: []string{nodeB}})
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if len(w.removed("csi-1")) != 1 {
			t.Error("the CSI controller's pod was not deleted once")
		}
		if !p.events.has(string(failover.LinstorFirst), "Pod", "csi-1") {
			t.Errorf("no Event says what the CSI controller's pod waits for: %+v", p.events.events)
		}
	})
}

// What cannot be done for one of LINSTOR's pods or for a taint keeps none of the other pods from being replaced.
func TestOneWriteHoldsUpNoOtherPodOfLinstor(t *testing.T) {
	for name, hinder := range map[string]func(w *world){
		"where the deletion of another pod is denied": func(w *world) {
			w.ofController(func(r apimodel.Request) error {
				if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Name == "affinity-1" {
					return errors.New("denied by a policy")
				}
				return nil
			})
		},
		"where the deletion of another pod is denied late": func(w *world) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Name == "affinity-1" {
					return 15 * time.Second
				}
				return 0
			})
			w.ofController(func(r apimodel.Request) error {
				if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Name == "affinity-1" {
					return errors.New("denied by a policy")
				}
				return nil
			})
		},
		"where taking a taint off another node hangs": func(w *world) {
			node := w.node(nodeB)
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
			w.must(w.Client().Update(w.ctx, node))
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbPatch && r.Kind == "Node" && r.Name == nodeB {
					return time.Minute
				}
				return 0
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			linstorOnA(t, recovering(), func(w *world, _ *process) {
				w.linstorPod("affinity-1", nodeA, func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" })
				w.pass(10 * time.Second)
				hinder(w)
				w.crashWithLinstor()
				w.until(90*time.Second, "LINSTOR's controller is replaced", func() bool { return len(w.removed("linstor-1")) == 1 })
			})
		})
	}
}
