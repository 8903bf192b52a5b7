package controllers

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// unplug takes a node off the storage network; LINSTOR loses it, too. Its kubelet goes on.
func (w *world) unplug(node string) { w.Linstor.Isolate(node) }

func (w *world) plugIn(node string) { w.Linstor.Rejoin(node) }

func TestTheTaintIsSetBeforeTheFirstRemoval(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.untilRemoved(time.Minute, "db-0")
		w.mu.Lock()
		first := w.changes[0]
		w.mu.Unlock()
		node, ok := first.New.(*corev1.Node)
		if !ok || !cluster.HasTaint(node, cluster.TaintLostQuorum, corev1.TaintEffectNoSchedule) {
			t.Errorf("the first deed was %s %s %s", first.Verb, first.Kind, first.Name)
		}
	})
}

func TestANodeWithOtherHealthyVolumesIsTaintedSoftly(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeB)
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeT)
		w.untilRemoved(time.Minute, "db-0")
		if got := w.tainted(nodeA); got != corev1.TaintEffectPreferNoSchedule {
			t.Errorf("taint %q, want PreferNoSchedule", got)
		}
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.wantRunning("other-0", nodeA)
		w.DRBD.HealResourceLink("pvc-db", nodeA, nodeB)
		w.DRBD.HealResourceLink("pvc-db", nodeA, nodeT)
		w.until(time.Minute, "A is untainted", func() bool { return w.tainted(nodeA) == "" })
	})
}

// Kubernetes writes the status of a tainted node many times while it detaches and attaches there. The taint rests on none of that.
func TestTheStatusOfATaintedNodeCallsNobody(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeB)
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeT)
		w.untilRemoved(time.Minute, "db-0")
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Minute)
		var reads atomic.Int64
		w.ofController(func(r apimodel.Request) error {
			if r.Kind == "Node" && r.Verb == apimodel.VerbGet {
				reads.Add(1)
			}
			return nil
		})
		w.pass(20 * time.Second)
		usual := reads.Swap(0)
		attachDetach := w.API.Client("attachdetach-controller")
		for i := range 200 {
			var node corev1.Node
			w.must(attachDetach.Get(w.ctx, client.ObjectKey{Name: nodeA}, &node))
			node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "some", DevicePath: strconv.Itoa(i)}}
			w.must(attachDetach.Status().Update(w.ctx, &node))
			w.pass(100 * time.Millisecond)
		}
		if w.tainted(nodeA) == "" {
			t.Fatal("A is not tainted any more")
		}
		if got := reads.Load(); got > usual+1 {
			t.Errorf("the controller read nodes %d times while the status of A changed 200 times, %d times before", got, usual)
		}
	})
}

// Of two pods that are lost together one is removed later, since the API refuses that at first. Somebody has taken the taint off meanwhile,
// with its mark, without which nobody watches over it.
func TestATaintThatSomebodyTakesOffBetweenTwoRemovalsIsThereBeforeTheSecondOne(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.volume("late")
		w.workload("late", selected)
		w.pass(time.Minute)
		w.wantRunning("late-0", nodeA)
		var allowed atomic.Bool
		w.ofController(func(r apimodel.Request) error {
			if needs(r) == toDelete && r.Name == "late-0" && !allowed.Load() {
				return apierrors.NewInternalError(errors.New("broken"))
			}
			return nil
		})
		var atRemoval corev1.TaintEffect
		w.API.OnChange(func(c apimodel.Change) {
			if strings.HasPrefix(c.Actor, controllerActor) && c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && c.Name == "late-0" {
				atRemoval = w.tainted(nodeA)
			}
		})
		w.Crash(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.until(10*time.Second, "its replacement runs on B", func() bool { return w.runs("db-0", nodeB) })
		node := w.node(nodeA)
		node.Spec.Taints = nil
		delete(node.Annotations, cluster.AnnotationKeepAway)
		w.must(w.API.Client("user").Update(w.ctx, node))
		allowed.Store(true)
		w.untilRemoved(10*time.Second, "late-0")
		if atRemoval != corev1.TaintEffectNoSchedule {
			t.Errorf("when the second pod was removed the node had the taint %q, want NoSchedule", atRemoval)
		}
		w.until(20*time.Second, "the second workload runs on B", func() bool { return w.runs("late-0", nodeB) })
	})
}

func TestTheTaintGoesWhenTheNodeIsBack(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.until(time.Minute, "A is untainted", func() bool {
			return w.tainted(nodeA) == "" && w.node(nodeA).Annotations[cluster.AnnotationKeepAway] == ""
		})
		if !p.events.has(EventNodeRegained, "Node", nodeA) {
			t.Errorf("events: %v", p.events.reasons("Node", nodeA))
		}
	})
}

func TestTheTaintIsHandedToKubernetesAndTakenBack(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.unplug(nodeA)
		w.SilenceKubelet(nodeA)
		w.until(time.Minute, "A is tainted", func() bool { return w.tainted(nodeA) != "" })
		w.until(2*time.Minute, "Kubernetes' own taint has taken over", func() bool {
			return cluster.HasTaint(w.node(nodeA), corev1.TaintNodeUnreachable, "") && w.tainted(nodeA) == ""
		})
		w.RestoreKubelet(nodeA)
		w.until(time.Minute, "A is tainted again, since its storage is still lost", func() bool {
			return !cluster.HasTaint(w.node(nodeA), corev1.TaintNodeUnreachable, "") && w.tainted(nodeA) == corev1.TaintEffectNoSchedule
		})
		w.plugIn(nodeA)
		w.until(2*time.Minute, "A is untainted", func() bool {
			return w.tainted(nodeA) == "" && w.node(nodeA).Annotations[cluster.AnnotationKeepAway] == ""
		})
	})
}

func TestTheTaintStaysAsLongAsItsCause(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.unplug(nodeA)
		w.until(time.Minute, "A is tainted", func() bool { return w.tainted(nodeA) != "" })
		for range 12 {
			w.pass(time.Minute)
			if w.tainted(nodeA) == "" {
				t.Fatal("the taint is gone although the node has not come back")
			}
		}
		if got := w.nodePatches(); got > 6 {
			t.Errorf("the node was written %d times in twelve minutes", got)
		}
	})
}

func TestAnotherLeaderRenewsAnExpiredTaintWhileItsCauseLasts(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		first, second := w.startProcess("one", cfg), w.startProcess("two", cfg)
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.unplug(nodeA)
		w.until(time.Minute, "A is tainted", func() bool { return w.tainted(nodeA) != "" })
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		first.stops()
		w.pass(11 * time.Minute)
		if w.tainted(nodeA) == "" {
			t.Fatal("somebody has removed the taint")
		}
		second.leads()
		w.pass(11 * time.Minute)
		if w.tainted(nodeA) == "" {
			t.Fatal("the taint is gone although the node has not come back")
		}
		w.plugIn(nodeA)
		w.until(2*time.Minute, "A is untainted", func() bool {
			return w.tainted(nodeA) == "" && w.node(nodeA).Annotations[cluster.AnnotationKeepAway] == ""
		})
	})
}

func TestAForeignTaintWithTheSameKeyIsLeftAlone(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		node := w.node(nodeA)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: corev1.TaintEffectNoSchedule})
		w.must(w.Client().Update(w.ctx, node))
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.pass(5 * time.Minute)
		if w.tainted(nodeA) != corev1.TaintEffectNoSchedule || w.node(nodeA).Annotations[cluster.AnnotationKeepAway] != "" {
			t.Errorf("the foreign taint was changed: %v, %v", w.node(nodeA).Spec.Taints, w.node(nodeA).Annotations)
		}
	})
}

func TestNoTaintIsSetWhereThatIsSwitchedOff(t *testing.T) {
	cfg := defaults()
	cfg.DisableNodeTaints = true
	sceneWith(t, virtual.Options{}, cfg, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.untilRemoved(time.Minute, "db-0")
		w.pass(time.Minute)
		if w.tainted(nodeA) != "" {
			t.Error("the node is tainted")
		}
	})
}

func TestNothingIsRemovedFromANodeThatCannotBeTainted(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, r.Name, errors.New("no"))
			}
			return nil
		})
		w.Crash(nodeA)
		w.pass(40 * time.Second)
		w.wantUntouched()
		if verdict, reason := p.said("db", nodeA); verdict != failover.Blocked || reason != failover.KeepAwayFailed {
			t.Errorf("told %s: %s", verdict, reason)
		}
		if got := p.events.reasons("Pod", "db-0"); len(got) != 1 {
			t.Errorf("Events of the pod: %v, want one", got)
		}
		w.must(w.cordon(nodeA)) // then nothing need be tainted
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAReplacementOnTheLostNodeIsRemovedMoreAndMoreRarely(t *testing.T) {
	for name, shutDown := range map[string]bool{"a dead node": false, "a node that was shut down": true} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(w *virtual.Workload) { w.Tolerant = true })
				w.Crash(nodeA)
				if shutDown {
					w.shutDown(nodeA)
				}
				w.untilRemoved(time.Minute, "db-0")
				w.pass(20 * time.Minute)
				var stays []time.Duration
				removed := w.did(apimodel.VerbDelete, "Pod")
				for i, c := range removed[1:] {
					stays = append(stays, c.Time.Sub(removed[i].Time).Round(time.Second))
				}
				if len(stays) < 4 || len(stays) > 20 {
					t.Fatalf("the replacements stayed %v", stays)
				}
				for i, stay := range stays[1:] {
					// The clock of one whose volume was detached meanwhile begins with its new attachment.
					if stay < stays[i]-30*time.Second {
						t.Errorf("one replacement stayed %s, the next one %s", stays[i], stay)
					}
				}
				if last := stays[len(stays)-1]; last < 4*time.Minute {
					t.Errorf("after 20 minutes one stays %s", last)
				}
				w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(w *virtual.Workload) { w.Nodes = []string{nodeB} })
				w.until(6*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// ourTaints are the taints of a node that the controller sets, with the mark of the one.
func (w *world) ourTaints(node string) (taints []corev1.Taint, mark string) {
	w.Helper()
	n := w.node(node)
	for _, taint := range n.Spec.Taints {
		if taint.Key == cluster.TaintLostQuorum || taint.Key == cluster.TaintNodeSilent {
			taints = append(taints, taint)
		}
	}
	return taints, n.Annotations[cluster.AnnotationKeepAway]
}

// A leader that has tainted nodes is replaced by one of a dry run. That one leaves them as they are, though their causes are gone and nobody
// renews them. Its successor that acts takes them off.
func TestADryRunLeavesTheTaintsOfAFormerLeaderAlone(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		dry := defaults()
		dry.DryRun = true
		first, second, third := w.startProcess("one", defaults()), w.startProcess("two", dry), w.startProcess("three", defaults())
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.unplug(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		first.stops()
		silent := w.node(nodeT)
		silent.Spec.Taints = append(silent.Spec.Taints, corev1.Taint{Key: cluster.TaintNodeSilent, Effect: corev1.TaintEffectNoSchedule})
		w.must(w.Client().Update(w.ctx, silent))
		lost, mark := w.ourTaints(nodeA)
		if len(lost) != 1 || mark == "" {
			t.Fatalf("node A has our taints %v and the mark %q, want one of a lost volume", lost, mark)
		}
		w.plugIn(nodeA)
		second.leads()
		w.pass(taintExpiry + 5*time.Minute)
		if taints, now := w.ourTaints(nodeA); !slices.Equal(taints, lost) || now != mark {
			t.Errorf("a dry run has written node A: %v, %s; it had %v, %s", taints, now, lost, mark)
		}
		if !w.silenced(nodeT) {
			t.Error("a dry run has taken the taint of a silent node off")
		}
		second.stops()
		third.leads()
		w.until(time.Minute, "all nodes are untainted", func() bool {
			taints, mark := w.ourTaints(nodeA)
			return len(taints) == 0 && mark == "" && !w.silenced(nodeT)
		})
	})
}
