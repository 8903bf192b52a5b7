package controllers

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// toCondition is the permission that the condition of a pod needs, and its phase.
var toCondition = permission{"patch", "", "pods/status"}

// rightBefore calls f when the first such request of the controller arrives, before it has any effect.
func (w *world) rightBefore(write permission, f func()) (arrived *atomic.Bool) {
	arrived = new(atomic.Bool)
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == write && !arrived.Swap(true) {
			f()
		}
		return 0
	})
	return arrived
}

// The controller has listed the pods of the node, and a user edits one before the deletion of it arrives.
func TestAPodThatChangesBeforeItsDeletionGoesInTheNextReconcile(t *testing.T) {
	for _, write := range []permission{toTaint, toMark, toDelete} {
		t.Run("right before the controller could "+write.String(), func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				var changed time.Time
				var deletions atomic.Int64
				w.API.Fail(func(r apimodel.Request) error {
					if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == toDelete {
						deletions.Add(1)
					}
					return nil
				})
				w.rightBefore(write, func() {
					changed = time.Now()
					w.edit("db-0", func(pod *corev1.Pod) { pod.Annotations = map[string]string{"example.com/changed": "yes"} })
				})
				w.Crash(nodeA)
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				removed := w.did(apimodel.VerbDelete, "Pod")
				if len(removed) != 1 || deletions.Load() != 2 {
					w.Fatalf("%d deletions were sent, and %d accepted, want 2 and 1", deletions.Load(), len(removed))
				}
				if removed[0].Old.GetAnnotations()["example.com/changed"] == "" {
					w.Error("the pod was deleted before it was changed")
				}
				if late := removed[0].Time.Sub(changed); late > 2*time.Second {
					w.Errorf("the pod was deleted %s after its change, want it in the next reconcile", late)
				}
			})
		})
	}
}

// Nobody selected the pod that starts on the node. The other pod need not stay for it, but the volume does.
func TestAVolumeStaysWithAPodThatStartsBeforeTheDeletionOfAnother(t *testing.T) {
	for _, write := range []permission{toTaint, toMark, toDelete} {
		t.Run("right before the controller could "+write.String(), func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				before := w.pod("db-0").UID
				w.rightBefore(write, func() { w.addPod("guest", nil) })
				w.Crash(nodeA)
				w.pass(20 * time.Second)
				if removed := w.removed("db-0"); len(removed) != 1 || removed[0] != before {
					w.Errorf("deleted were %v, want %s", removed, before)
				}
				w.pass(2 * time.Minute)
				if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
					w.Error("the volume was taken from the node under the pod")
				}
				w.forceDelete("guest")
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// A user takes the pod out of fail-over between the live read and the deletion.
func TestAPodThatIsTakenOutOfFailOverDuringTheActStays(t *testing.T) {
	crash := func(w *world) { w.Crash(nodeA) }
	lose := func(w *world) { w.DRBD.Isolate(nodeA) } // the kubelet is up, so that the pod gets the condition first
	for name, change := range map[string]func(*corev1.Pod){
		"its label is removed": func(pod *corev1.Pod) { pod.Labels = nil },
		"its label says otherwise": func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"linstor.csi.linbit.com/on-storage-lost": "ignore"}
		},
		"it is exempted": func(pod *corev1.Pod) { pod.Annotations = map[string]string{cluster.AnnotationIgnore: "true"} },
	} {
		for _, tc := range []struct {
			write permission
			node  string
			loss  func(*world)
		}{
			{toTaint, "dead", crash},
			{toMark, "dead", crash},
			{toDelete, "dead", crash},
			{toTaint, "running", lose},
			{toMark, "running", lose},
			{toCondition, "running", lose},
			{toDelete, "running", lose},
		} {
			t.Run(name+" right before the controller could "+tc.write.String()+" of a "+tc.node+" node", func(t *testing.T) {
				scene(t, func(w *world, _ *process) {
					before := w.pod("db-0")
					arrived := w.rightBefore(tc.write, func() { w.edit("db-0", change) })
					tc.loss(w)
					w.until(time.Minute, "the controller wants to "+tc.write.String(), arrived.Load)
					w.pass(2 * time.Minute)
					w.wantStill(before)
					if disrupted(w.pod("db-0")) {
						w.Error("the pod that stays has the condition")
					}
					if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
						w.Error("the volume was taken from the node under the pod")
					}
				})
			})
		}
	}
}

// A finalizer keeps a pod that was deleted by force. Its owner waits until the pod has ended, and no kubelet is left to report that.
func TestThePhaseOfAPodThatAFinalizerKeepsIsWrittenInTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		dies bool // otherwise the process goes on
	}{
		"the leader dies before it can write the phase": {dies: true},
		"the API refuses the first patch":               {},
	} {
		t.Run(name, func(t *testing.T) {
			pair(t, defaults(), func(w *world, first, second *process) {
				w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"} })
				lost := w.pod("db-0").UID
				var once sync.Once
				unwritten := make(chan struct{})
				var dead atomic.Bool
				w.API.Fail(func(r apimodel.Request) error {
					if r.Actor != controllerActor+first.name {
						return nil
					}
					if dead.Load() {
						return errDead
					}
					var err error
					if needs(r) == toCondition && w.pod("db-0").DeletionTimestamp != nil {
						once.Do(func() {
							if err = errors.New("the API is busy"); tc.dies {
								dead.Store(true)
								first.end()
							}
							close(unwritten)
						})
					}
					return err
				})
				w.Crash(nodeA)
				<-unwritten
				if tc.dies {
					w.pass(12 * time.Second)
					second.leads()
				}
				w.until(10*time.Second, "the pod has ended", func() bool { return w.pod("db-0").Status.Phase == corev1.PodFailed })
				if pod := w.pod("db-0"); pod.UID != lost || !disrupted(pod) {
					w.Errorf("pod %s has ended without the condition: %v", pod.UID, pod.Status.Conditions)
				}
				w.pass(time.Minute)
				if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
					w.Error("the volume was taken from the node under the pod")
				}
				w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = nil })
				w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// A process sets the condition and ends before it deletes the pod, and the volume works again.
func TestAConditionThatAProcessLeftIsTakenBack(t *testing.T) {
	scene(t, func(w *world, p *process) {
		pod := w.pod("db-0")
		condition := p.parts.node.disruption(failover.Decision{Reason: failover.QuorumLost, Message: "gone"})
		w.must(p.parts.node.patchStatus(w.ctx, pod.DeepCopy(), "", map[string]any{"conditions": condition}))
		w.until(30*time.Second, "the condition is taken back", func() bool { return !cluster.Disrupted(w.pod("db-0")) })
		w.wantStill(pod)
	})
}
