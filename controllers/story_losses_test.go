package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func TestAReplicaThatDRBDDemotedByForce(t *testing.T) {
	scene(t, func(w *world, p *process) {
		// A is cut off, and before the grace is over something else works on B for a while.
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.must(w.DRBD.Open("pvc-db", nodeB, false))
		w.pass(20 * time.Second)
		w.DRBD.Rejoin(nodeA)
		w.pass(5 * time.Second)
		if a, _ := w.DRBD.Replica("pvc-db", nodeA); !a.ForceIOFailures {
			t.Fatalf("A should have been demoted by force: %+v", a)
		}
		w.pass(time.Minute)
		w.wantUntouched() // B is in use
		first := w.pod("db-0")
		w.DRBD.Close("pvc-db", nodeB)
		if removed := w.untilRemoved(time.Minute, "db-0"); removed < 5*time.Second || removed > 8*time.Second {
			t.Errorf("the pod was removed after %s, want the confirmed grace", removed)
		}
		if got := w.graces("db-0")[0]; got != 10 {
			t.Errorf("the pod of a living node was deleted with a grace of %d s", got)
		}
		w.until(30*time.Second, "the replacement runs", func() bool {
			pod := w.pod("db-0")
			return pod != nil && pod.UID != first.UID && pod.Status.Phase == corev1.PodRunning
		})
		w.pass(5 * time.Minute)
		p.wantNothingLeft()
	})
}

func TestAVolumeThatIsSecondaryUnderItsPod(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.DRBD.Close("pvc-db", nodeA)
		if removed := w.untilRemoved(2*time.Minute, "db-0"); removed < 45*time.Second || removed > 50*time.Second {
			t.Errorf("the pod was removed after %s, want the known grace", removed)
		}
		if _, reason := p.said("db", nodeA); reason != failover.Demoted {
			t.Errorf("reason %q", reason)
		}
	})
}

func TestAReplicaThatIsGoneUnderItsPod(t *testing.T) {
	scene(t, func(w *world, p *process) {
		// Two disks must remain, or LINSTOR takes the quorum away.
		w.bystanders()
		w.must(w.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-x"}))
		w.pass(time.Minute)
		w.DRBD.Close("pvc-db", nodeA)
		w.pass(2 * time.Second) // the last word of the replica is that nobody uses it
		w.must(w.Linstor.RemoveReplica("pvc-db", nodeA))
		if removed := w.untilRemoved(2*time.Minute, "db-0"); removed < 45*time.Second || removed > 51*time.Second {
			t.Errorf("the pod was removed after %s, want the known grace", removed)
		}
		if _, reason := p.said("db", nodeA); reason != failover.ReplicaGone {
			t.Errorf("reason %q", reason)
		}
	})
}

// shutDown lets the cloud provider say that the node is switched off.
func (w *world) shutDown(name string) {
	w.taint(name, defaults().ShutdownTaints[0], corev1.TaintEffectNoSchedule)
}

// switchOn lets the cloud provider say so no longer.
func (w *world) switchOn(name string) { w.untaint(name, defaults().ShutdownTaints[0]) }

func (w *world) taint(name, key string, effect corev1.TaintEffect) {
	w.Helper()
	node := w.node(name)
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	w.must(w.Client().Update(w.ctx, node))
}

func (w *world) untaint(name, key string) {
	w.Helper()
	node := w.node(name)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
	w.must(w.Client().Update(w.ctx, node))
}

func TestANodeThatIsKnownToBeSwitchedOffHasNoGrace(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.SetDetectionDelay(0)
		w.Crash(nodeA)
		w.shutDown(nodeA)
		if removed := w.untilRemoved(20*time.Second, "db-0"); removed > 11*time.Second {
			// LINSTOR needs 6 s to miss the satellite, and 2.5 s more would show that it misses the others as well. Both are read
			// every second.
			t.Errorf("the pod was removed %s after the crash", removed)
		}
	})
}

func TestANodeThatIsNoLongerSaidToBeSwitchedOffHasItsGraceAgain(t *testing.T) {
	sceneBehind(t, 3*time.Second, defaults(), func(w *world, _ *process) {
		w.shutDown(nodeA)
		w.pass(10 * time.Second)
		w.DRBD.Close("pvc-db", nodeA)
		w.switchOn(nodeA) // the cache has the taint for three more seconds
		if removed := w.untilRemoved(time.Minute, "db-0"); removed < 45*time.Second {
			t.Errorf("the pod was removed %s after its volume was closed", removed)
		}
	})
}

func TestQuorumThatTheNodeNeverHeardOfIsNoFence(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.unplug(nodeA)
		w.SilenceKubelet(nodeA)
		w.pass(time.Minute)
		w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropQuorum, "majority")
		w.pass(3 * time.Minute)
		if !w.DRBD.CanWrite("pvc-db", nodeA) {
			t.Fatal("A should be able to write: it has never heard of the quorum")
		}
		w.wantUntouched()
		if _, reason := p.said("db", nodeA); reason != failover.QuorumUnconfirmed {
			t.Errorf("reason %q", reason)
		}
	})
}

// Who switched the node off has switched it on again, which the cache has not seen yet.
func TestANodeThatIsNoLongerSaidToBeSwitchedOffIsBelievedToRunWhatItMay(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.lag = 4 * time.Second
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.cutOff(nodeA)
		w.pass(time.Minute)
		wantMajority(w)
		w.pass(time.Minute)
		p.wantSaid(nodeA, failover.QuorumUnconfirmed)
		w.shutDown(nodeA)
		w.pass(3 * time.Second)
		w.switchOn(nodeA)
		w.pass(time.Minute)
		w.wantWriting(nodeA)
	})
}

// The same by Kubernetes' own taint, upon which an attachment without pods would be taken off the node.
func TestANodeThatIsNoLongerOutOfServiceIsBelievedToRunWhatItMay(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.lag = 4 * time.Second
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.must(w.cordon(nodeA))
		w.cutOff(nodeA)
		w.pass(time.Minute)
		wantMajority(w)
		w.forceDelete("db-0") // its replacement waits on B for the volume
		w.pass(time.Minute)
		p.wantSaid(nodeA, failover.QuorumUnconfirmed)
		w.API.Delay(func(r apimodel.Request) time.Duration { // Kubernetes, which believes the taint at once, is slow
			if r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbDelete {
				return time.Hour
			}
			return 0
		})
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
		w.pass(3 * time.Second)
		w.untaint(nodeA, corev1.TaintNodeOutOfService)
		w.pass(time.Minute)
		if !w.DRBD.CanWrite("pvc-db", nodeA) {
			t.Fatal("A should be able to write")
		}
		if w.attachment("db", nodeA) == nil || !w.inUse("db", nodeA) {
			t.Error("the volume was taken off a node that writes it")
		}
	})
}

func TestManyVolumesOfOneNodeMoveTogether(t *testing.T) {
	names := []string{"v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12"}
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		for _, name := range names {
			w.volume(name)
			w.workload(name, selected)
		}
		w.pass(2 * time.Minute)
		w.Crash(nodeA)
		w.until(time.Minute, "all workloads run on B", func() bool {
			for _, name := range names {
				if !w.runs(name+"-0", nodeB) {
					return false
				}
			}
			return true
		})
		if left := w.node(nodeA).Status.VolumesInUse; len(left) > 0 {
			t.Errorf("the dead node still has %v in use", left)
		}
	})
}

func TestACacheThatIsBehindChangesNothingButTime(t *testing.T) {
	sceneBehind(t, 700*time.Millisecond, defaults(), func(w *world, _ *process) {
		on, other := nodeA, nodeB
		for range 4 {
			w.Crash(on)
			w.until(50*time.Second, "the workload runs on "+other, func() bool { return w.runs("db-0", other) })
			w.pass(10 * time.Second)
			w.Return(on)
			w.pass(2 * time.Minute)
			w.wantRunning("db-0", other)
			on, other = other, on
		}
		if got := len(w.removed("db-0")); got != 4 {
			t.Errorf("pod deleted %d times, want 4", got)
		}
	})
}

func TestADryRunOnlySaysWhatItWouldDo(t *testing.T) {
	cfg := defaults()
	cfg.DryRun = true
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		w.wantUntouched()
		if !p.events.has(string(failover.DryRun), "Pod", "db-0") {
			t.Errorf("events: %+v", p.events.events)
		}
	})
}

func TestAPauseHoldsFailOverUntilItEnds(t *testing.T) {
	cfg := defaults()
	cfg.PauseDeployment = types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
	inWorld(t, virtual.Options{}, func(w *world) {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: cfg.PauseDeployment.Namespace, Name: cfg.PauseDeployment.Name, Annotations: map[string]string{cluster.AnnotationPause: ""},
		}}
		w.must(w.Client().Create(w.ctx, deployment))
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		w.wantUntouched()
		if _, reason := p.said("db", nodeA); reason != failover.Paused {
			t.Errorf("reason %q", reason)
		}
		deployment.Annotations = nil
		w.must(w.Client().Update(w.ctx, deployment))
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// Nothing would follow from what is read for a fail-over while it is paused, which may be for days.
func TestNobodyIsAskedForAFailOverThatIsPaused(t *testing.T) {
	cfg := defaults()
	pausable(&cfg)
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.addDeployment()
		w.pause(true)
		w.pass(time.Second)
		looks := w.looksAtPods()
		w.Crash(nodeA)
		w.pass(5 * time.Minute)
		if got := looks(); got > 0 {
			t.Errorf("the pods of the node were listed %d times", got)
		}
		if _, reason := p.said("db", nodeA); reason != failover.Paused {
			t.Errorf("said %s, want Paused", reason)
		}
		w.pause(false)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if looks() == 0 {
			t.Error("the pods of the node were not listed for the fail-over either")
		}
	})
}

func TestTheGuardHoldsAndOpensByItself(t *testing.T) {
	scene(t, func(w *world, p *process) {
		// LINSTOR loses the tie-breaker's satellite along with A: two of three nodes.
		w.Linstor.CutSatellite(nodeT)
		w.pass(10 * time.Second)
		w.Crash(nodeA)
		w.pass(110 * time.Second) // two minutes since T was cut off
		w.wantUntouched()
		if _, reason := p.said("db", nodeA); reason != failover.GuardTripped {
			t.Errorf("reason %q", reason)
		}
		w.Linstor.RestoreSatellite(nodeT)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAPodThatReturnsToTheSameNodeAndAttachment(t *testing.T) {
	cfg := defaults()
	cfg.DisableNodeTaints = true
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(v *virtual.Workload) { v.Nodes = []string{nodeA} })
		w.pass(time.Minute)
		first := w.pod("db-0")
		w.DRBD.Close("pvc-db", nodeA) // nobody writes, and nobody could
		w.until(2*time.Minute, "the replacement runs on A", func() bool {
			pod := w.pod("db-0")
			return w.runs("db-0", nodeA) && pod.UID != first.UID
		})
		w.pass(5 * time.Minute)
		if a, _ := w.DRBD.Replica("pvc-db", nodeA); a.Role != drbd.Primary {
			t.Fatalf("A should be Primary again: %+v", a)
		}
		p.wantNothingLeft()
		if lost := p.parts.node.reports.lost(); len(lost) > 0 {
			t.Errorf("the guard still counts %v as lost", lost)
		}
	})
}

func TestAMarkGoesWhenTheWorkloadIsWellWithTheSameAttachment(t *testing.T) {
	cfg := defaults()
	cfg.DisableNodeTaints = true
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(v *virtual.Workload) { v.Nodes = []string{nodeA} })
		w.pass(time.Minute)
		// The attach/detach controller is slower than owner and scheduler.
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbDelete {
				return apierrors.NewTooManyRequests("later", 1)
			}
			return nil
		})
		attachment := w.attachment("db", nodeA)
		w.DRBD.Close("pvc-db", nodeA)
		w.untilRemoved(2*time.Minute, "db-0")
		if w.attachment("db", nodeA).Annotations[cluster.AnnotationFailOver] == "" {
			t.Error("the attachment is not marked")
		}
		w.until(time.Minute, "the replacement runs on A", func() bool { return w.runs("db-0", nodeA) })
		w.pass(time.Minute)
		if got := w.attachment("db", nodeA); got == nil || got.UID != attachment.UID {
			t.Fatalf("not the same attachment: %+v", got)
		}
		p.wantNothingLeft()
	})
}

// consistencyGroup is a world with two volumes of one resource on A, and the pods that use them.
func consistencyGroup(t *testing.T, tell func(*world, *process), pods func(*world)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("first", func(v *virtual.Volume) { v.Handle, v.Count = "pvc-group/0", 2 })
		w.volume("second", func(v *virtual.Volume) { v.Handle = "pvc-group/1" })
		pods(w)
		w.pass(time.Minute)
		tell(w, p)
	})
}

// groupOfOne has both volumes in the hands of the pod "both-0".
func groupOfOne(t *testing.T, tell func(*world, *process)) {
	t.Helper()
	consistencyGroup(t, func(w *world, p *process) {
		w.wantRunning("both-0", nodeA)
		tell(w, p)
	}, func(w *world) {
		w.workload("both", selected, func(v *virtual.Workload) { v.Claims = []string{"data-first", "data-second"} })
	})
}

// groupOfTwo has each in the hands of a pod of its own.
func groupOfTwo(t *testing.T, second map[string]string, tell func(*world, *process)) {
	t.Helper()
	consistencyGroup(t, func(w *world, p *process) {
		w.wantRunning("one-0", nodeA)
		w.wantRunning("two-0", nodeA)
		tell(w, p)
	}, func(w *world) {
		w.workload("one", selected, func(v *virtual.Workload) { v.Claims = []string{"data-first"} })
		w.workload("two", second, func(v *virtual.Workload) { v.Claims = []string{"data-second"} })
	})
}

func TestThePodsOfAConsistencyGroupMoveTogether(t *testing.T) {
	groupOfTwo(t, selected, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(30*time.Second, "both run on B", func() bool { return w.runs("one-0", nodeB) && w.runs("two-0", nodeB) })
	})
}

// The first one's replacement would promote the resource, and then nothing shows any more that the second one has lost it.
func TestAPodOfAConsistencyGroupWaitsForTheOtherOne(t *testing.T) {
	groupOfTwo(t, selected, func(w *world, _ *process) {
		var first time.Time
		w.ofController(func(r apimodel.Request) error {
			if needs(r) != toDelete || r.Name != "two-0" || !first.IsZero() && time.Since(first) > 4*time.Second {
				return nil
			}
			if first.IsZero() {
				first = time.Now()
			}
			return apierrors.NewTooManyRequests("a webhook", 1)
		})
		w.Crash(nodeA)
		w.until(time.Minute, "both run on B", func() bool { return w.runs("one-0", nodeB) && w.runs("two-0", nodeB) })
	})
}

func TestAPodThatMayNotGoKeepsTheOthersOfItsConsistencyGroup(t *testing.T) {
	groupOfTwo(t, map[string]string{"app": "two"}, func(w *world, p *process) {
		one, two := w.pod("one-0"), w.pod("two-0")
		w.Crash(nodeA)
		w.pass(3 * time.Minute)
		w.wantStill(one)
		w.wantStill(two)
		if _, reason := p.said("first", nodeA); reason != failover.SharedVolume {
			t.Errorf("said %s, want %s", reason, failover.SharedVolume)
		}
		w.label("two-0")
		w.until(time.Minute, "both run on B", func() bool { return w.runs("one-0", nodeB) && w.runs("two-0", nodeB) })
	})
}

func TestAConsistencyGroupMovesAsOne(t *testing.T) {
	groupOfOne(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("both-0", nodeB) })
	})
}

func TestAConsistencyGroupIsNeverForcedOffALivingNode(t *testing.T) {
	// DRBD reports one score for all volumes: 0 says nothing about each of them.
	groupOfOne(t, func(w *world, p *process) {
		w.DRBD.Isolate(nodeA)
		w.pass(2 * time.Minute)
		if got := w.graces("both-0"); slices.Contains(got, 0) || len(got) == 0 {
			t.Errorf("graces of the deletions: %v", got)
		}
		if !p.events.has(string(failover.StuckOnNode), "Pod", "both-0") {
			t.Errorf("events: %v", p.events.reasons("Pod", "both-0"))
		}
		// The taint and the old pod go at the same moment, so that the replacement could as well return to A.
		w.must(w.cordon(nodeA))
		w.DRBD.Rejoin(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("both-0", nodeB) })
	})
}

// Who says that the machine is off as soon as it is must not wait for Kubernetes, which calls its node Ready for most of a minute.
func TestAPodOfANodeThatIsOutOfServiceMovesBeforeKubernetesMissesTheNode(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
		w.until(17*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		moved := w.pod("db-0").UID
		w.pass(3 * time.Minute)
		if now := w.pod("db-0"); now.UID != moved || now.DeletionTimestamp != nil {
			t.Error("the replacement was removed")
		}
	})
}

// declaredOff is a scene in which somebody takes a node out of service that was lost long ago, and of which nobody knows what it runs.
func declaredOff(t *testing.T, tell func(w *world, p *process), edits ...func(*virtual.Workload)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected, edits...)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(time.Minute)
		wantMajority(w)
		w.pass(time.Minute)
		p.wantSaid(nodeA, failover.QuorumUnconfirmed)
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
		tell(w, p)
	})
}

// Kubernetes never deletes a pod that tolerates the taint, not even once it has missed the node.
func TestAPodThatToleratesOutOfServiceMovesWithoutKubernetes(t *testing.T) {
	declaredOff(t, func(w *world, _ *process) {
		w.until(30*time.Second, "the controller has removed the pod", func() bool { return len(w.removed("db-0")) > 0 })
	}, func(x *virtual.Workload) { x.Tolerant = true })
}

// Kubernetes ends the pods of such a node that are being deleted, and deletes none.
func TestAPodOfANodeThatIsOutOfServiceForNewPodsOnlyMoves(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoSchedule)
		w.until(17*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// Nobody took the taint off when the node was back: it says nothing of a node that is lost later.
func TestANodeThatOnceWasOutOfServiceIsBelievedToRunWhatItMay(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected, func(x *virtual.Workload) { x.Tolerant = true })
		w.pass(time.Minute)
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
		w.pass(10 * time.Minute)
		w.cutOff(nodeA)
		w.pass(time.Minute)
		wantMajority(w)
		w.pass(2 * time.Minute)
		p.wantSaid(nodeA, failover.QuorumUnconfirmed)
		w.wantWriting(nodeA)
		if note := p.events.note(string(failover.QuorumUnconfirmed), "Pod", "db-0"); !strings.Contains(note, "once that taint is taken off") {
			t.Errorf("nobody is told that the taint is old: %q", note)
		}
		w.Crash(nodeA) // a person has switched it off
		w.untaint(nodeA, corev1.TaintNodeOutOfService)
		w.pass(time.Second)
		w.taint(nodeA, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
		w.until(30*time.Second, "a person who says so again is believed", func() bool { return len(w.removed("db-0")) > 0 })
	})
}

// Where the loss is known only when Kubernetes has missed the node as well, its garbage collector of pods ends them.
func TestPodsOfANodeThatIsOutOfServiceAreLeftToKubernetes(t *testing.T) {
	declaredOff(t, func(w *world, p *process) {
		w.until(30*time.Second, "the controller leaves the pod to Kubernetes", func() bool {
			verdict, reason := p.said("db", nodeA)
			return verdict == failover.Blocked && reason == failover.OutOfService
		})
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if deleted := w.did(apimodel.VerbDelete, "Pod"); len(deleted) > 0 {
			t.Errorf("the controller deleted %d pods", len(deleted))
		}
	})
}
