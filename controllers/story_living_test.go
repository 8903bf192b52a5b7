package controllers

import (
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// graces returns the grace of each deletion of the pod by the controller.
func (w *world) graces(name string) []int64 {
	var graces []int64
	for _, c := range w.did(apimodel.VerbDelete, "Pod") {
		if c.Name == name {
			graces = append(graces, *c.GracePeriodSeconds)
		}
	}
	return graces
}

func TestALivingNodeLosesItsStorageNetwork(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		other := w.pod("other-0")
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.untilRemoved(10*time.Second, "db-0")
		if got := w.graces("db-0")[0]; got != 10 {
			t.Errorf("the pod of a living node was deleted with a grace of %d s, want 10", got)
		}
		// Its process hangs in a write, so that it does not stop within the grace.
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.wantStill(other)
		w.DRBD.Rejoin(nodeA)
		w.until(time.Minute, "A takes pods again", func() bool { return w.tainted(nodeA) == "" })
		if a, _ := w.DRBD.Replica("pvc-db", nodeA); a.Open != 0 {
			t.Errorf("the device on A is still open: %+v", a)
		}
		if w.DRBD.Diverged("pvc-db") {
			t.Error("the data has diverged")
		}
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeB)
	})
}

// A kubelet that lives writes its list again, every ten seconds or when it changes: also between the release of a volume and the
// moment at which Kubernetes looks at the list. Unless it is released again, Kubernetes notices only after a minute that the
// attachment is gone.
func TestAKubeletThatClaimsAReleasedVolumeOnceMoreHoldsNothingUp(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.API.Delay(attachesLate)
		claimed := w.claimsAgain(nodeA, 2)
		w.DRBD.Isolate(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.until(30*time.Second, "the attachment is deleted", func() bool { return w.attachment("db", nodeA) == nil })
		w.until(3*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if n := claimed(); n != 2 {
			t.Errorf("the volume was claimed %d times, want 2", n)
		}
		w.DRBD.Rejoin(nodeA)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
		p.wantTimedOnce()
	})
}

// The next release does not wait until LINSTOR answers about another volume of the node.
func TestAVolumeThatIsClaimedOnceMoreDoesNotWaitForLinstorsWordOnAnother(t *testing.T) {
	withPods(t, 2, func(w *world, p *process) {
		claimed := w.claimsAgain(nodeA, 2)
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Name == podNumber(1) {
				return 25 * time.Second // its volume stays lost
			}
			return attachesLate(r)
		})
		answer := func() {}
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Name == "csi-"+volumeNumber(0)+"-"+nodeA && strings.HasPrefix(c.Actor, controllerActor) {
				answer = w.hangsOn("pvc-" + volumeNumber(1))
			}
		})
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the attachment is deleted", func() bool { return w.attachment(volumeNumber(0), nodeA) == nil })
		w.until(25*time.Second, "the workload runs on B", func() bool { return w.runs(podNumber(0), nodeB) })
		if n := claimed(); n == 0 {
			t.Error("the volume was not claimed again")
		}
		answer()
		w.until(2*time.Minute, "the other one runs on B", func() bool { return w.runs(podNumber(1), nodeB) })
		w.DRBD.Rejoin(nodeA)
		w.pass(10 * time.Minute) // until everything is read again
		w.wantNothingLeft(p)
	})
}

// attachesLate has Kubernetes look at what a node has in use a moment later only.
func attachesLate(r apimodel.Request) time.Duration {
	if r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbGet && r.Kind == "Node" {
		return 100 * time.Millisecond
	}
	return 0
}

// claimsAgain has the kubelet of a node claim a volume again, so many times, as soon as it was released. It counts how often it has.
func (w *world) claimsAgain(node string, times int) (claimed func() int) {
	n := 0
	w.API.OnChange(func(c apimodel.Change) {
		if c.Actor != controllerActor+"one" || c.Kind != "Node" || c.Name != node || !c.Status || n == times {
			return
		}
		n++
		written := c.New.(*corev1.Node).DeepCopy()
		written.Status.VolumesInUse = c.Old.(*corev1.Node).Status.VolumesInUse
		written.ResourceVersion = ""
		w.must(w.Client().Status().Update(w.ctx, written))
	})
	return func() int { return n }
}

// Kubernetes detaches what nobody waits for in its own time.
func TestAReleasedVolumeIsLookedAtForAMinuteAtMost(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.must(w.cordon(nodeB))
		w.must(w.cordon(nodeT))
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the attachment is deleted", func() bool { return w.attachment("db", nodeA) == nil })
		looks := w.looksAtPods()
		w.pass(detachUnnoticed)
		if looks() == 0 {
			t.Error("nobody has looked whether the kubelet claims the volume again")
		}
		looks = w.looksAtPods()
		w.pass(2 * time.Minute)
		if got := looks(); got > 0 {
			t.Errorf("the pods of the node were listed %d times after a minute", got)
		}
		if verdict, reason := p.said("db", nodeA); verdict != "" {
			t.Errorf("still told %s: %s", verdict, reason)
		}
	})
}

func TestADetachedVolumeIsLeftAloneWhereNoneIsReleased(t *testing.T) {
	cfg := defaults()
	cfg.FastDetach = false
	sceneWith(t, virtual.Options{}, cfg, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the attachment is deleted", func() bool { return w.attachment("db", nodeA) == nil })
		looks := w.looksAtPods()
		w.pass(time.Second)
		if got := looks(); got > 0 {
			t.Errorf("the pods of the node were listed %d times", got)
		}
	})
}

// looksAtPods counts from now on how often the controller lists the pods of a node past its cache.
func (w *world) looksAtPods() (count func() int64) {
	var looks atomic.Int64
	w.API.Fail(func(r apimodel.Request) error {
		if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbList && r.Node != "" {
			looks.Add(1)
		}
		return nil
	})
	return looks.Load
}

func TestAPodWhoseOtherVolumeIsWritableIsNeverForced(t *testing.T) {
	storyOfTwoVolumes := func(w *world) {
		w.volume("wal")
		w.workload("both", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db", "data-wal"} })
	}
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		storyOfTwoVolumes(w)
		w.pass(2 * time.Minute)
		w.wantRunning("both-0", nodeA)
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeB)
		w.DRBD.CutResourceLink("pvc-db", nodeA, nodeT)
		w.untilRemoved(30*time.Second, "both-0")
		w.pass(3 * time.Minute)
		if pod := w.pod("both-0"); pod == nil || pod.DeletionTimestamp == nil {
			t.Fatalf("the pod should be stuck: its process hangs and can write the other volume: %+v", pod)
		}
		if got := w.graces("both-0"); len(got) != 1 || got[0] != 10 {
			t.Errorf("graces of the deletions: %v, want one of 10 s", got)
		}
		if got := p.events.notes(failover.StuckOnNode, "both-0"); len(got) != 1 {
			t.Errorf("told %d times that it is stuck, want once: %v", len(got), p.events.reasons("Pod", "both-0"))
		}
		if got := w.nodePatches(); got > 3 {
			t.Errorf("the node was written %d times in three minutes", got)
		}
		if w.attachment("wal", nodeA) == nil || w.attachment("db", nodeA) == nil {
			t.Error("a volume was detached under a pod that holds it")
		}
	})
}

func TestAPodThatIsTerminatingAlreadyIsFinished(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		first := w.pod("db-0")
		w.Crash(nodeA)
		w.must(w.Client().Delete(w.ctx, first.DeepCopy(), client.GracePeriodSeconds(3600)))
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestTwoPodsOnOneClaimBothGoBeforeTheAttachment(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.workload("second", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db"} })
		w.pass(time.Minute)
		w.wantRunning("second-0", nodeA)
		w.Crash(nodeA)
		w.until(40*time.Second, "both run on B", func() bool { return w.runs("db-0", nodeB) && w.runs("second-0", nodeB) })
	})
}

// ended leaves a pod listed on a node that used the volume "db" and has ended. It is bound only then: no kubelet starts it.
func (w *world) ended(name, node string, labels map[string]string) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	pod.Spec.Volumes = []corev1.Volume{claimVolume("data-db", false)}
	w.must(w.Client().Create(w.ctx, pod))
	pod.Status.Phase = corev1.PodFailed
	w.must(w.Client().Status().Update(w.ctx, pod))
	pod.Spec.NodeName = node
	w.must(w.Client().Update(w.ctx, pod))
}

// A pod that has ended holds nothing, as the attach/detach controller sees it. Kubernetes lists it until somebody deletes it.
func TestAPodThatHasEndedKeepsNoOtherOnItsClaim(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.ended("job", nodeA, nil)
		w.Crash(nodeA)
		w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if w.pod("job") == nil {
			t.Error("the pod that has ended was removed")
		}
	})
}

// The kubelet of B has rejected a pod, which has never run. Its volume stays where it is: nobody waits for it there.
func TestAPodThatHasEndedWaitsForNoVolume(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.ended("rejected", nodeB, selected)
		w.must(w.cordon(nodeA))
		w.must(w.cordon(nodeB)) // the replacement stays pending
		w.Crash(nodeA)
		w.forceDelete("db-0")
		w.pass(2 * time.Minute)
		if w.attachment("db", nodeA) == nil {
			t.Error("the attachment was deleted for a pod that has ended")
		}
	})
}

func TestAPodThatMayNotGoKeepsTheOthersOnItsClaim(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.workload("second", nil, func(v *virtual.Workload) { v.Claims = []string{"data-db"} })
		w.pass(time.Minute)
		w.wantRunning("second-0", nodeA)
		w.Crash(nodeA)
		w.pass(3 * time.Minute)
		w.wantUntouched()
		if verdict, reason := p.said("db", nodeA); verdict != failover.Blocked || reason != failover.SharedVolume {
			t.Errorf("told %s: %s", verdict, reason)
		}
		if !p.events.has(string(failover.SharedVolume), "Pod", "db-0") || p.events.has(string(failover.SharedVolume), "Pod", "second-0") {
			t.Errorf("events: %+v", p.events.events)
		}
	})
}

func TestAPodThatWaitsForTheVolumeOfOneThatIsNotSelectedIsTold(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("holder", nil, func(v *virtual.Workload) { v.Claims, v.Nodes = []string{"data-db"}, []string{nodeA} })
		w.pass(time.Minute)
		w.workload("db", selected, func(v *virtual.Workload) { v.Nodes = []string{nodeB} })
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(3 * time.Minute)
		w.wantUntouched()
		var told []string
		for _, e := range p.events.events {
			if e.kind == "Pod" && e.name == "db-0" && e.reason == string(failover.NotSelected) {
				told = append(told, e.note)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0], "which pod default/holder-0 on node "+nodeA+" uses") {
			t.Errorf("told %q", told)
		}
	})
}

func TestASameNamedPodThatAppearsDuringTheActSurvives(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var fresh *corev1.Pod
		w.API.OnChange(func(c apimodel.Change) {
			if c.Actor != controllerActor+"one" || c.Kind != "VolumeAttachment" || c.Verb != apimodel.VerbPatch || fresh != nil {
				return
			}
			// Between the controller's last look and its deletion the pod is replaced.
			old := w.pod("db-0")
			fresh = old.DeepCopy()
			fresh.ObjectMeta = metav1.ObjectMeta{
				Namespace: old.Namespace, Name: old.Name, Labels: maps.Clone(old.Labels), OwnerReferences: old.OwnerReferences,
			}
			fresh.Spec.NodeName = nodeB
			if err := w.Client().Delete(w.ctx, old.DeepCopy(), client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
			if err := w.Client().Create(w.ctx, fresh); err != nil {
				t.Error(err)
			}
		})
		w.Crash(nodeA)
		w.until(40*time.Second, "the replacement runs on B", func() bool { return w.runs("db-0", nodeB) })
		if got := w.pod("db-0").UID; fresh == nil || got != fresh.UID {
			t.Errorf("the replacement was replaced: %s", got)
		}
		if removed := w.removed("db-0"); len(removed) != 0 {
			t.Errorf("pods deleted: %v, want none", removed)
		}
	})
}

func TestAFinalizerThatStaysIsNoTightLoop(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(v *virtual.Workload) { v.Finalizers = []string{"test/keep"} })
		w.pass(time.Minute)
		requests := 0
		w.Crash(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == controllerActor+"one" && r.Kind == "Pod" && r.Verb != apimodel.VerbGet && r.Verb != apimodel.VerbList {
				requests++
			}
			return nil
		})
		w.pass(50 * time.Second)
		if p.events.has(string(failover.HeldByFinalizer), "Pod", "db-0") {
			t.Error("an Event calls the pod held after less than a minute")
		}
		w.pass(20 * time.Second)
		if !p.events.has(string(failover.HeldByFinalizer), "Pod", "db-0") {
			t.Error("no Event says what keeps the pod after a minute")
		}
		w.pass(2 * time.Minute)
		if got := p.events.notes(failover.HeldByFinalizer, "db-0"); len(got) != 1 {
			t.Errorf("told %d times what keeps the pod, want once", len(got))
		}
		if requests > 0 {
			t.Errorf("%d more writes to a pod that only its finalizer keeps", requests)
		}
		// After six minutes the attach/detach controller detaches by itself.
		if len(w.did(apimodel.VerbDelete, "VolumeAttachment")) > 0 {
			t.Error("the volume was detached while the pod object is there")
		}
		if !w.inUse("db", nodeA) {
			t.Error("the volume was released while the pod object is there")
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		w.must(w.Client().Patch(w.ctx, w.pod("db-0"), patch))
		w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(v *virtual.Workload) { v.Finalizers = nil })
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}
