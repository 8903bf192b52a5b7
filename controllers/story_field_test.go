package controllers

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// These are faults that were seen in clusters of users, or with real kubelets and a real LINSTOR.

// kubeletDies ends the kubelet of a node and its containers, while the kernel serves DRBD.
func (w *world) kubeletDies(node, volume string) {
	w.SilenceKubelet(node)
	w.DRBD.Close("pvc-"+volume, node)
}

func TestAKubeletDiesWithItsContainersWhileTheKernelLives(t *testing.T) {
	for name, satellite := range map[string]func(*world){
		"and its satellite lives": func(*world) {},
		"and its satellite, too":  func(w *world) { w.Linstor.StopSatellite(nodeA) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.kubeletDies(nodeA, "db")
				satellite(w)
				took := w.until(90*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				if took < 45*time.Second {
					t.Errorf("it has moved after %s, want the known grace to pass", took)
				}
				if graces := w.graces("db-0"); len(graces) == 0 || graces[0] != 0 {
					t.Errorf("graces %v, want a removal by force: no kubelet is there to answer", graces)
				}
				if _, reason := p.said("db", nodeA); reason != "" && reason != failover.NodeUnreachable {
					t.Errorf("reason %s", reason)
				}
			})
		})
	}
}

func TestAPodThatOpensItsVolumeAgainIsLeftAlone(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.kubeletDies(nodeA, "db")
		w.pass(30 * time.Second)
		w.must(w.DRBD.Open("pvc-db", nodeA, false))
		w.pass(5 * time.Minute)
		w.wantUntouched()
	})
}

// reportsLate has the kubelet of a node report for a while that volumes are in use which are free: it does so with each node status.
func (w *world) reportsLate(node string, d time.Duration) {
	until := time.Now().Add(d)
	w.API.OnChange(func(c apimodel.Change) {
		if c.Actor != "kubelet/"+node || c.Kind != "Node" || !c.Status || time.Now().After(until) {
			return
		}
		written := c.New.(*corev1.Node).DeepCopy()
		written.Status.VolumesInUse, written.ResourceVersion = c.Old.(*corev1.Node).Status.VolumesInUse, ""
		w.must(w.Client().Status().Update(w.ctx, written))
	})
}

// The pod of a living node that fails its IO closes the device when it stops, and the replica is no longer Primary.
func TestAFailoverGoesOnUnderItsFirstReasonWithoutASecondGrace(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.must(w.DRBD.SetOption("pvc-db", "on-no-quorum", "io-error"))
		w.DRBD.Isolate(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.reportsLate(nodeA, 10*time.Second)
		w.until(30*time.Second, "the pod is gone", func() bool { pod := w.pod("db-0"); return pod == nil || pod.Spec.NodeName != nodeA })
		took := w.until(30*time.Second, "the attachment is deleted", func() bool { return w.attachment("db", nodeA) == nil })
		if took > 2*time.Second {
			t.Errorf("the volume was detached %s after its pod was gone", took)
		}
		p.events.mu.Lock()
		defer p.events.mu.Unlock()
		for _, e := range p.events.events {
			if e.reason == EventForceDetached && !strings.Contains(e.note, string(failover.QuorumLost)) {
				t.Errorf("the detach has another reason: %s", e.note)
			}
		}
	})
}

// The API server counts our deletion from the first one, and has its pod end a second later. A kubelet does not shorten a stop that is under way.
func TestAPodThatStoppedSlowlyBeforeTheLossIsGivenItsGraceSinceOurDeletion(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(wl *virtual.Workload) { wl.StopTime = 10 * time.Minute })
		w.must(w.Client().Delete(w.ctx, w.pod("db-0"), client.GracePeriodSeconds(600)))
		w.pass(time.Minute)
		w.DRBD.Isolate(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		ours := time.Now()
		w.until(time.Minute, "it is removed by force", func() bool { return slices.Contains(w.graces("db-0"), 0) })
		if took := time.Since(ours); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("it was removed by force %s after our first deletion, want 10s", took)
		}
	})
}

func TestAnInterruptionThatEndsBeforeTheGraceIsReportedOnceWhereWritesHaveFailed(t *testing.T) {
	for option, want := range map[string]int{"io-error": 1, "suspend-io": 0} {
		t.Run(option, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.must(w.DRBD.SetOption("pvc-db", "on-no-quorum", option))
				w.Linstor.SetDefinitionProperty("pvc-db", "DrbdOptions/Resource/on-no-quorum", option)
				w.pass(2 * time.Minute)
				w.DRBD.Isolate(nodeA)
				w.survivorReady("db")
				w.pass(2 * time.Second)
				w.DRBD.Rejoin(nodeA)
				w.pass(10 * time.Second)
				w.DRBD.Isolate(nodeA) // so soon that it is the same interruption to its reader
				w.survivorReady("db")
				w.pass(2 * time.Second)
				w.DRBD.Rejoin(nodeA)
				w.pass(time.Minute)
				w.wantRunning("db-0", nodeA)
				if told := p.events.reasons("Pod", "db-0"); len(told) != want {
					t.Errorf("events of the pod: %v, want %d", told, want)
				}
			})
		})
	}
}

func TestAPodWhoseClaimHasNoVolumeIsReported(t *testing.T) {
	scene(t, func(w *world, p *process) {
		pv := read[corev1.PersistentVolume](w, "", "db")
		before := pv.DeepCopy()
		pv.Status.Phase = corev1.VolumeReleased // its claim was deleted
		w.must(w.Client().Status().Patch(w.ctx, pv, client.MergeFrom(before)))
		w.pass(3 * time.Minute)
		if got := p.events.reasons("Pod", "db-0"); !slices.Equal(got, []string{string(failover.OtherVolumeUnavailable)}) {
			t.Errorf("events of the pod: %v", got)
		}
	})
}

// A move is not announced that a gate forbids when its time comes.
func TestNoMoveIsAnnouncedThatAGateForbids(t *testing.T) {
	cfg := defaults()
	pausable(&cfg)
	cfg.Settings.ConfirmedGrace, cfg.Settings.UnanimousGrace = 2*time.Minute, 2*time.Minute
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.addDeployment()
		w.pause(true)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(90 * time.Second)
		if got := p.events.reasons("Pod", "db-0"); !slices.Equal(got, []string{string(failover.Paused)}) {
			t.Errorf("events of the pod: %v, want that fail-over is paused", got)
		}
	})
}

// The CSI driver lets DRBD accept two Primaries for raw block that several nodes may use.
func TestASharedVolumeIsDetachedFromALivingNodeOnlyOnceItIsNotInUse(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Linstor.SetDefinitionProperty("pvc-db", "DrbdOptions/Net/allow-two-primaries", "yes")
		w.pass(2 * time.Minute)
		w.DRBD.Isolate(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.forceDelete("db-0") // an impatient user; its process hangs in a write
		w.pass(30 * time.Second)
		if w.attachment("db", nodeA) == nil {
			t.Error("the volume was detached while it is in use on the node")
		}
		if calls := w.did(apimodel.VerbDelete, "VolumeAttachment"); len(calls) > 0 {
			t.Errorf("%d attachments were deleted", len(calls))
		}
	})
}

func TestASharedVolumeOfAnUnreachableNodeWaitsForTheKnownGrace(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Linstor.SetDefinitionProperty("pvc-db", "DrbdOptions/Net/allow-two-primaries", "yes")
		w.pass(2 * time.Minute)
		w.Crash(nodeA)
		took := w.until(90*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if took < 45*time.Second {
			t.Errorf("it has moved after %s", took)
		}
	})
}

// The pod may have a finalizer: without the deletion it must not count as ended.
func TestAPodWhoseDeletionIsRejectedIsAsItWasOnceItsNodeHasTheStorageBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*virtual.Workload){
		"without a finalizer": func(*virtual.Workload) {},
		"with a finalizer":    func(w *virtual.Workload) { w.Finalizers = []string{"example.com/keeps"} },
	} {
		for cut, lose := range map[string]struct{ away, back func(*world) }{
			"its node is cut off": {
				func(w *world) { w.DRBD.Isolate(nodeA); w.Linstor.CutSatellite(nodeA); w.SilenceKubelet(nodeA) },
				func(w *world) { w.DRBD.Rejoin(nodeA); w.Linstor.RestoreSatellite(nodeA); w.RestoreKubelet(nodeA) },
			},
			"its DRBD is cut off": {func(w *world) { w.DRBD.Isolate(nodeA) }, func(w *world) { w.DRBD.Rejoin(nodeA) }},
		} {
			t.Run(name+", "+cut, func(t *testing.T) {
				inWorld(t, virtual.Options{}, func(w *world) {
					p := w.startProcess("one", defaults())
					p.leads()
					w.volume("db")
					w.workload("db", selected, change)
					w.pass(time.Minute)
					w.API.Fail(func(r apimodel.Request) error {
						if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbDelete && r.Kind == "Pod" {
							return errors.New("rejected by a webhook")
						}
						return nil
					})
					lose.away(w)
					w.pass(40 * time.Second)
					lose.back(w)
					w.pass(time.Minute)
					w.wantRunning("db-0", nodeA)
					if pod := w.pod("db-0"); disrupted(pod) || pod.Status.Phase != corev1.PodRunning {
						t.Errorf("the pod is left as %s with the conditions %v", pod.Status.Phase, pod.Status.Conditions)
					}
				})
			})
		}
	}
}

// Kubernetes would evict every pod of the node.
func TestAnAnnotationCannotGiveATaintTheEffectNoExecute(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(30*time.Second, "the node is tainted", func() bool { return w.tainted(nodeA) != "" })
		node := w.node(nodeA)
		before := node.DeepCopy()
		text := node.Annotations[cluster.AnnotationKeepAway]
		node.Annotations[cluster.AnnotationKeepAway] = strings.ReplaceAll(text, string(w.tainted(nodeA)), string(corev1.TaintEffectNoExecute))
		node.Spec.Taints = nil
		w.must(w.Client().Patch(w.ctx, node, client.MergeFrom(before)))
		for range 300 {
			w.pass(time.Second)
			if w.tainted(nodeA) == corev1.TaintEffectNoExecute {
				w.Fatal("the node is tainted with NoExecute")
			}
		}
	})
}

// The clock of the leader that wrote it was behind.
func TestATaintIsRenewedWhileItsCauseLastsWhateverItsExpirySays(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.DRBD.Isolate(nodeA)
		w.until(30*time.Second, "the node is tainted", func() bool { return w.tainted(nodeA) != "" })
		p.stops()
		node := w.node(nodeA)
		before := node.DeepCopy()
		var note map[string]any
		w.must(json.Unmarshal([]byte(node.Annotations[cluster.AnnotationKeepAway]), &note))
		note["expires"] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		text, err := json.Marshal(note)
		w.must(err)
		node.Annotations[cluster.AnnotationKeepAway] = string(text)
		w.must(w.Client().Patch(w.ctx, node, client.MergeFrom(before)))
		w.startProcess("two", defaults()).leads()
		for range 600 {
			w.pass(time.Second)
			if w.tainted(nodeA) == "" {
				w.Fatal("the taint was removed while the node has no storage")
			}
		}
	})
}
