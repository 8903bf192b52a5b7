package controllers

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// crowded are settings by which each act is one of many.
func crowded() Config {
	cfg := defaults()
	cfg.Few = -1
	return cfg
}

// inCrowd is scene with settings by which each act is one of many, for a pod that may have finalizers.
func inCrowd(t *testing.T, story func(w *world, p *process), finalizers ...string) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", crowded())
		p.leads(crowded())
		w.volume("db")
		w.workload("db", selected)
		w.volume("other")
		w.workload("other", nil)
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		if len(finalizers) > 0 {
			pod := w.pod("db-0")
			pod.Finalizers = finalizers
			w.must(w.API.Client("user").Update(w.ctx, pod))
		}
		story(w, p)
	})
}

// writesInCrowd are the writes of a fail-over in a crowd: a pod whose object goes with its deletion gets no condition before.
var writesInCrowd = slices.DeleteFunc(slices.Clone(writes), func(write permission) bool { return write.resource == "pods/status" })

func TestAPodInACrowdIsRemovedWithMark(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		w.detachesSlowly()
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Second)
		w.wantWrote(p, writesInCrowd)
		w.Return(nodeA)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
	})
}

// Job pods have such a finalizer: the controller of jobs counts a pod whose phase has changed, and lets it go then.
func TestAPodInACrowdThatFinalizersKeepHasItsPhaseChanged(t *testing.T) {
	inCrowd(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(30*time.Second, "the pod is being removed", func() bool { return w.pod("db-0").DeletionTimestamp != nil })
		if pod := w.pod("db-0"); pod.Status.Phase != corev1.PodFailed || !disrupted(pod) {
			t.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
		}
		if w.attachment("db", nodeA).Annotations[AnnotationFailOver] == "" {
			t.Error("the attachment has no mark")
		}
	}, "batch.kubernetes.io/job-tracking")
}

// Its kubelet may take ten seconds, in which leaders come and go and the pod's owner looks at its condition.
func TestAPodInACrowdOnALivingNodeGetsMarkAndCondition(t *testing.T) {
	inCrowd(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the pod is being removed", func() bool { return w.pod("db-0").DeletionTimestamp != nil })
		if pod := w.pod("db-0"); !disrupted(pod) || *pod.DeletionGracePeriodSeconds == 0 {
			t.Errorf("grace %d s, conditions %v", *pod.DeletionGracePeriodSeconds, pod.Status.Conditions)
		}
		if w.attachment("db", nodeA).Annotations[AnnotationFailOver] == "" {
			t.Error("the attachment has no mark")
		}
	})
}

// busy keeps acts from making such requests until free is called.
func busy(underWay *semaphore.Weighted) (free func()) {
	var all int64
	for underWay.TryAcquire(1) {
		all++
	}
	if all != crowdMarks && all != crowdRemovals {
		panic("requests are under way")
	}
	return func() { underWay.Release(all) }
}

// untilCutOff cuts node A off from all networks, until its loss is pending.
func (p *process) untilCutOff() {
	w := p.world
	w.Helper()
	w.SilenceKubelet(nodeA)
	w.Linstor.Isolate(nodeA)
	w.DRBD.Isolate(nodeA)
	w.until(time.Minute, "the loss is pending", func() bool {
		verdict, _ := p.said("db", nodeA)
		return verdict == failover.Pending
	})
}

// An act of a crowd has read by then, and waits.
func TestAPodInACrowdStaysWhoseNodeIsBackRightBeforeTheGraceHasPassed(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		first := w.pod("db-0")
		p.untilCutOff()
		looks := w.looksAtPods()
		w.pass(defaults().Settings.ConfirmedGrace - drbd.DefaultReconnectDelay - crowdAheadSmall/2)
		w.DRBD.Rejoin(nodeA)
		w.pass(drbd.DefaultReconnectDelay)
		if looks() == 0 {
			t.Error("the act has not begun to read")
		}
		w.Linstor.Rejoin(nodeA)
		w.RestoreKubelet(nodeA)
		w.pass(time.Minute)
		w.wantStill(first)
		w.wantUntouched()
		w.wantNothingLeft(p)
	})
}

func TestAPodInACrowdIsAskedToStopWhoseKubeletIsBackRightBeforeTheGraceHasPassed(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		p.untilCutOff()
		w.pass(defaults().Settings.ConfirmedGrace - crowdAheadSmall/2)
		w.RestoreKubelet(nodeA)
		w.untilRemoved(time.Second, "db-0")
		if got := w.graces("db-0"); got[0] != 10 {
			t.Errorf("the pod of a living kubelet was deleted with a grace of %d s, want 10", got[0])
		}
	})
}

// What is left is Kubernetes' work for a while.
func TestADetachedVolumeInACrowdIsNotLookedAtBeforeItsRestIsOver(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		w.must(w.cordon(nodeB))
		w.must(w.cordon(nodeT))
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == virtual.ActorAttacher {
				return errDead // so that the attachment stays
			}
			return nil
		})
		w.Crash(nodeA)
		w.until(time.Minute, "the attachment is deleted", func() bool {
			va := w.attachment("db", nodeA)
			return va != nil && va.DeletionTimestamp != nil
		})
		w.pass(10 * time.Second)
		var rest time.Duration
		w.until(10*time.Second, "it was just looked at", func() bool {
			result, err := p.parts.failover.Reconcile(w.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "db"}})
			w.must(err)
			rest = max(rest, result.RequeueAfter)
			return rest > retryAct
		})
	})
}

func (w *world) untilMarked() {
	w.Helper()
	w.until(2*time.Minute, "the attachment is marked", func() bool {
		return w.attachment("db", nodeA).Annotations[AnnotationFailOver] != ""
	})
}

// answersSlowlyForPods lets the controller wait for a minute for each pod that it asks for by name.
func (w *world) answersSlowlyForPods() {
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbGet && r.Kind == "Pod" {
			return time.Minute
		}
		return 0
	})
}

// What a removal rests on may change while it waits for its turn: it is read again, then.
func TestWhatChangesWhileARemovalInACrowdWaits(t *testing.T) {
	deselect := func(w *world) {
		pod := w.pod("db-0")
		pod.Labels = nil
		w.must(w.API.Client("user").Update(w.ctx, pod))
	}
	for name, change := range map[string]func(w *world){
		"the pod is no longer selected": deselect,
		"the pod was exempted": func(w *world) {
			pod := w.pod("db-0")
			pod.Annotations = map[string]string{AnnotationIgnore: "true"}
			w.must(w.API.Client("user").Update(w.ctx, pod))
		},
		"the node is back": func(w *world) {
			w.Return(nodeA)
			w.pass(10 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(w *world, p *process) {
				free := busy(p.parts.failover.crowd.removals)
				before := w.pod("db-0")
				w.Crash(nodeA)
				w.untilMarked()
				w.pass(2 * crowdPatience)
				change(w)
				free()
				w.pass(10 * time.Second)
				if pod := w.pod("db-0"); pod == nil || pod.UID != before.UID || pod.DeletionTimestamp != nil {
					t.Errorf("the pod was removed: %v", pod)
				}
			})
		})
	}
}

// Nothing is removed before its attachment is marked and its turn has come, however long that takes.
func TestARemovalInACrowdWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		requests func(c *crowd) *semaphore.Weighted
		marks    int // by the end of the wait
	}{
		"for its turn": {func(c *crowd) *semaphore.Weighted { return c.removals }, 1},
		"for its mark": {func(c *crowd) *semaphore.Weighted { return c.marks }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(w *world, p *process) {
				free := busy(tc.requests(p.parts.failover.crowd))
				w.Crash(nodeA)
				w.pass(2 * time.Minute)
				if len(w.removed("db-0")) > 0 {
					t.Error("the pod was removed meanwhile")
				}
				if got := len(w.did(apimodel.VerbPatch, "VolumeAttachment")); got != tc.marks {
					t.Errorf("the attachment was marked %d times", got)
				}
				free()
				w.until(10*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// Neither is an attachment marked by what was read before the wait for the turn, where nothing newer can be read.
func TestAnAttachmentInACrowdIsNotMarkedByAnOldReading(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.marks)
		w.Crash(nodeA)
		w.pass(20 * time.Second)
		w.Return(nodeA)
		w.pass(8 * time.Second)
		w.answersSlowlyForPods()
		free()
		w.pass(10 * time.Second)
		if got := len(w.did(apimodel.VerbPatch, "VolumeAttachment")); got > 0 {
			t.Errorf("the attachment was marked %d times", got)
		}
	})
}

// The reading begins a moment before the grace has passed. What else takes time before the mark may make it too old for all that comes.
func TestWhatWasReadForARemovalInACrowdServesForAWhile(t *testing.T) {
	for name, tc := range map[string]struct {
		taintTakes time.Duration
		want       int32 // how often the attachment is read until the pod is deleted
	}{
		"nothing is read again where the taint is quick": {crowdReread - crowdAheadSmall - 2*crowdGather, 1},
		"and once more where it is slow":                 {crowdReread - crowdAheadSmall + 2*crowdGather, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(w *world, _ *process) {
				var reads atomic.Int32
				w.API.Fail(func(r apimodel.Request) error {
					if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbGet && r.Kind == "VolumeAttachment" {
						reads.Add(1)
					}
					return nil
				})
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
						return tc.taintTakes
					}
					return 0
				})
				w.Crash(nodeA)
				w.untilRemoved(30*time.Second, "db-0")
				if got := reads.Load(); got != tc.want {
					t.Errorf("the attachment was read %d times, want %d", got, tc.want)
				}
			})
		})
	}
}

// Somebody else may have deleted it already.
func TestAPodInACrowdWithoutAnAttachment(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.marks)
		defer free()
		w.Crash(nodeA)
		w.pass(5 * time.Second)
		va := w.attachment("db", nodeA)
		w.must(w.API.Client("user").Delete(w.ctx, va))
		w.until(time.Minute, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		w.until(time.Minute, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
	})
}

func TestAPodInACrowdThatIsGoneWhenItsTurnComes(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		crowd := p.parts.failover.crowd
		free := busy(crowd.removals)
		w.Crash(nodeA)
		w.untilMarked()
		w.pass(2 * crowdPatience)
		w.forceDelete("db-0")
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Kind == "VolumeAttachment" && crowd.afterRemovals(c.Time, c.Time) > 0 {
				t.Error("other detaches wait for one that they take for a removal")
			}
		})
		free()
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if len(w.graces("db-0")) > 0 {
			t.Error("a pod of that name was deleted")
		}
		if w.told(p, "panic") {
			t.Error("the process panicked")
		}
	})
}

// Others would wait for it.
func TestADetachInACrowdIsNoRemoval(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		w.API.Delay(func(r apimodel.Request) time.Duration {
			now := time.Now()
			if strings.HasPrefix(r.Actor, controllerActor) && r.Kind == "VolumeAttachment" && len(w.removed("db-0")) > 0 &&
				p.parts.failover.crowd.afterRemovals(now, now) > 0 {
				t.Error("it counts as one")
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// A thousand others are still to be removed.
func TestNothingIsAskedForAPodInACrowdThatHasEndedBeforeOthersHave(t *testing.T) {
	const lag, others = 700 * time.Millisecond, 600 * time.Millisecond
	sceneBehind(t, lag, crowded(), func(w *world, p *process) {
		var ended time.Time
		var asked []string
		w.API.OnChange(func(c apimodel.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && ended.IsZero() {
				ended = c.Time
				time.AfterFunc(others, p.parts.failover.crowd.remove(failover.Input{}).end)
			}
		})
		w.API.Delay(func(r apimodel.Request) time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if strings.HasPrefix(r.Actor, controllerActor) && r.Kind == "Pod" && !ended.IsZero() && time.Since(ended) < others {
				asked = append(asked, string(r.Verb))
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(asked) > 0 {
			t.Errorf("asked for pods: %v", asked)
		}
	})
}

// LINSTOR, the attachment and the pods were asked a moment ago, for the removal. Where the pod is known to be gone with its deletion
// nothing is read again before the release, while that is fresh.
func TestADetachInACrowdRestsOnTheConfirmationOfTheRemoval(t *testing.T) {
	for name, tc := range map[string]struct {
		waits            time.Duration // for the removals of others
		before           func(*world)  // the deletion of the pod
		attachment, pods bool          // are read again
	}{
		"right after it":     {},
		"not a second later": {waits: 1500 * time.Millisecond, attachment: true, pods: true},
		"but for the pods where it has changed since":         {before: func(w *world) { w.annotate("db-0") }, pods: true},
		"but for the pods where somebody else has deleted it": {before: func(w *world) { w.endPod("db-0") }, pods: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(w *world, p *process) {
				var mu sync.Mutex
				var deleted, released, detached, attachment, pods bool
				w.API.OnChange(func(c apimodel.Change) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case c.Verb == apimodel.VerbDelete && c.Kind == "Pod":
						deleted = true
						time.AfterFunc(tc.waits, p.parts.failover.crowd.remove(failover.Input{}).end)
					case c.Kind == "Node" && c.Status && strings.HasPrefix(c.Actor, controllerActor):
						released = true
					case c.Verb == apimodel.VerbDelete && c.Kind == "VolumeAttachment":
						detached = true
					}
				})
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if !strings.HasPrefix(r.Actor, controllerActor) {
						return 0
					}
					if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && tc.before != nil {
						tc.before(w)
						tc.before = nil
					}
					mu.Lock()
					defer mu.Unlock()
					if deleted && (r.Verb == apimodel.VerbGet || r.Verb == apimodel.VerbList) {
						attachment = attachment || r.Kind == "VolumeAttachment" && !detached
						pods = pods || r.Kind == "Pod" && !released
					}
					return 0
				})
				w.Crash(nodeA)
				w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				mu.Lock()
				defer mu.Unlock()
				if attachment != tc.attachment || pods != tc.pods {
					t.Errorf("the attachment was read again: %t, the pods before the release: %t", attachment, pods)
				}
			})
		})
	}
}

// What is known of the pod that was removed says nothing of others.
func TestAVolumeInACrowdStaysWhereAnotherPodHasComeToTheNode(t *testing.T) {
	for name, tc := range map[string]struct {
		disabled bool // so that no taint keeps the replacement away
		lag      time.Duration
		comes    func(*world)
	}{
		"while the removals of others were waited for":                       {comes: func(w *world) { w.placeOnA("late", "db") }},
		"which was placed there as nothing kept it away":                     {disabled: true},
		"which was placed there and of which the cache does not know so far": {disabled: true, lag: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := crowded()
			cfg.DisableNodeTaints = tc.disabled
			sceneBehind(t, tc.lag, cfg, func(w *world, p *process) {
				var once sync.Once
				w.API.OnChange(func(c apimodel.Change) {
					if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" {
						once.Do(func() {
							time.AfterFunc(300*time.Millisecond, p.parts.failover.crowd.remove(failover.Input{}).end)
							if tc.comes != nil {
								time.AfterFunc(100*time.Millisecond, func() { tc.comes(w) })
							}
						})
					}
				})
				w.Crash(nodeA)
				w.until(30*time.Second, "the pod is removed", func() bool { return p.events.has(EventForceDeleted, "Pod", "db-0") })
				w.pass(2 * time.Second)
				if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
					t.Error("the volume was taken from the node under the pod")
				}
			})
		})
	}
}

// The node may be back by the time that the removals of others are over.
func TestAVolumeInACrowdWhoseNodeIsBackBeforeItsDetachStays(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		w.detachesSlowly()
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" {
				time.AfterFunc(1500*time.Millisecond, p.parts.failover.crowd.remove(failover.Input{}).end)
			}
		})
		w.Crash(nodeA)
		w.until(30*time.Second, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
		w.Return(nodeA)
		w.pass(20 * time.Second)
		for _, c := range w.did(apimodel.VerbDelete, "VolumeAttachment") {
			t.Errorf("the attachment was deleted at %s", c.Time)
		}
	})
}

// What Kubernetes has to do for a thousand volumes takes long, and each look at one of them costs it time.
func TestADetachedVolumeInACrowdIsLeftToKubernetesForAWhile(t *testing.T) {
	inCrowd(t, func(w *world, _ *process) {
		var detached time.Time
		looks := 0
		w.API.OnChange(func(c apimodel.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c.Verb == apimodel.VerbDelete && c.Kind == "VolumeAttachment" { // by whom ever
				detached = c.Time
			}
		})
		w.API.Delay(func(r apimodel.Request) time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.Actor == virtual.ActorAttacher {
				return time.Minute
			}
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbList && r.Kind == "Pod" && !detached.IsZero() && time.Since(detached) > batchWait {
				looks++ // that was not asked for before
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(30*time.Second, "the volume is detached", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !detached.IsZero()
		})
		w.pass(4 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if looks > 0 {
			t.Errorf("looked %d times at the pods within 4 s", looks)
		}
	})
}

// annotate changes a pod in something that nobody looks at.
func (w *world) annotate(name string) {
	pod := w.pod(name)
	pod.Annotations = map[string]string{"example.com/changed": ""}
	w.must(w.API.Client("user").Update(w.ctx, pod))
}

// endPod deletes a pod by force.
func (w *world) endPod(name string) {
	w.must(w.API.Client("user").Delete(w.ctx, w.pod(name), client.GracePeriodSeconds(0)))
}

// placeOnA creates a selected pod on node A that uses a volume.
func (w *world) placeOnA(name, volume string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: w.pod(volume + "-0").Labels}}
	pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-"+volume, false)}
	w.must(w.API.Client("user").Create(w.ctx, pod))
}

// addFinalizer adds one to a pod, if it is there.
func (w *world) addFinalizer(name string) {
	if pod := w.pod(name); pod != nil {
		pod.Finalizers = []string{"example.com/late"}
		if err := w.API.Client("user").Update(w.ctx, pod); err != nil {
			w.Error(err)
		}
	}
}

// Somebody may add a finalizer right before the deletion, with which the pod does not end.
func TestAPodInACrowdThatDoesNotEndWithItsDeletionIsLookedAtAgain(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbDelete && r.Kind == "Pod" {
				w.addFinalizer(r.Name)
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(80*time.Second, "it is told that a finalizer holds the pod for a minute", func() bool {
			return p.events.has(string(failover.HeldByFinalizer), "Pod", "db-0")
		})
		if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
			t.Error("the volume was taken from the node under the pod")
		}
	})
}

// Nothing is left to do then, nor to be told.
func TestAVolumeInACrowdThatKubernetesHasDetachedWhenItsTurnComes(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.removals)
		w.Crash(nodeA)
		w.untilMarked()
		w.pass(2 * crowdPatience)
		w.forceDelete("db-0")
		w.must(w.API.Client("user").Delete(w.ctx, w.attachment("db", nodeA)))
		w.until(time.Minute, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		free()
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if w.told(p, string(failover.NotSelected), "db") {
			t.Error("it is told that nobody selected what was moved")
		}
	})
}

// A kubelet that is heard of while a removal by force waits for its turn is asked first.
func TestAKubeletThatReturnsWhileARemovalInACrowdWaits(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.removals)
		w.unplug(nodeA)
		w.DRBD.Isolate(nodeA)
		w.SilenceKubelet(nodeA)
		w.untilMarked()
		w.pass(4 * time.Second)
		w.RestoreKubelet(nodeA)
		w.pass(2 * time.Second)
		free()
		w.until(time.Minute, "the pod is being removed", func() bool { return len(w.graces("db-0")) > 0 })
		if got := w.graces("db-0"); got[0] == 0 {
			t.Errorf("deleted with graces %v, want the kubelet to be asked first", got)
		}
	})
}

// Others wait for the turn, and what takes so long counts for nothing when it is there.
func TestARemovalInACrowdWhosePodIsReadSlowly(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.removals)
		w.answersSlowlyForPods()
		w.Crash(nodeA)
		w.pass(25 * time.Second)
		free()
		w.until(10*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// What is old before it is used is read again in the turn.
func TestARemovalInACrowdWhoseConfirmationIsOldIsTriedAgainInItsTurn(t *testing.T) {
	for name, slow := range map[string]func(r apimodel.Request) bool{
		"the pods are read slowly": func(r apimodel.Request) bool { return r.Verb == apimodel.VerbList && r.Kind == "Pod" },
		"the node is read slowly":  func(r apimodel.Request) bool { return r.Verb == apimodel.VerbGet && r.Kind == "Node" },
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, func(w *world, p *process) {
				free := busy(p.parts.failover.crowd.removals)
				w.Crash(nodeA)
				w.untilMarked()
				w.pass(2 * crowdPatience)
				var once sync.Once
				var read atomic.Int32
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbList && r.Kind == "Pod" {
						read.Add(1)
					}
					if strings.HasPrefix(r.Actor, controllerActor) && slow(r) {
						once.Do(func() { <-time.After(3 * time.Second) }) // who asks does not get to giving up
					}
					return 0
				})
				free()
				w.until(10*time.Second, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
				if read.Load() < 2 {
					t.Error("the pod was removed by what was old")
				}
			})
		})
	}
}

// A later leader must know whose the detach is, whatever happened while the removal waited for its turn.
func TestAPodInACrowdIsNotRemovedWithoutAMark(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		free := busy(p.parts.failover.crowd.removals)
		w.Crash(nodeA)
		w.untilMarked()
		w.pass(2 * crowdPatience)
		va := w.attachment("db", nodeA)
		delete(va.Annotations, AnnotationFailOver)
		w.must(w.API.Client("user").Update(w.ctx, va))
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && w.attachment("db", nodeA).Annotations[AnnotationFailOver] == "" {
				t.Error("the pod was removed without a mark")
			}
		})
		free()
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestTwoPodsOnOneClaimAreRemovedInACrowd(t *testing.T) {
	inCrowd(t, func(w *world, _ *process) {
		w.workload("second", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db"} })
		w.pass(time.Minute)
		w.wantRunning("second-0", nodeA)
		w.Crash(nodeA)
		w.until(30*time.Second, "both run on B", func() bool { return w.runs("db-0", nodeB) && w.runs("second-0", nodeB) })
		w.mu.Lock()
		defer w.mu.Unlock()
		released := slices.IndexFunc(w.changes, func(c apimodel.Change) bool {
			return c.Kind == "Node" && c.Status && strings.HasPrefix(c.Actor, controllerActor)
		})
		for _, pod := range []string{"db-0", "second-0"} {
			gone := slices.IndexFunc(w.changes, func(c apimodel.Change) bool {
				return c.Verb == apimodel.VerbDelete && c.Kind == "Pod" && c.Name == pod
			})
			if gone < 0 || released < gone {
				t.Errorf("the volume was released (change %d) before pod %s was gone (change %d)", released, pod, gone)
			}
		}
	})
}

func TestTheLeaderIsKilledAtEachStepInACrowd(t *testing.T) {
	for i, write := range writesInCrowd {
		for _, before := range []bool{true, false} {
			name := "after it could " + write.String()
			if before {
				name = "before it may " + write.String()
			}
			t.Run(name, func(t *testing.T) {
				pair(t, crowded(), func(w *world, first, second *process) {
					killed := w.dies(first, write, before)
					w.Crash(nodeA)
					w.until(40*time.Second, "the first leader is killed", killed)
					w.pass(12 * time.Second)
					done := writesInCrowd[:i+1]
					if before {
						done = writesInCrowd[:i]
					}
					w.wantWrote(first, done)
					second.leads(crowded())
					w.wantMovedCleanly(40*time.Second, second)
				})
			})
		}
	}
}

// What Kubernetes does about the first volumes that are detached would keep the API from removing the last pods.
func TestAllPodsAreRemovedBeforeVolumesAreDetached(t *testing.T) {
	t.Parallel()
	mass{nodes: 9, lost: 3, volumes: 40, apiTime: 20 * time.Millisecond}.plays(t, defaults(), func(w *world) {
		var did []string
		w.API.OnChange(func(c apimodel.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c.Verb == apimodel.VerbDelete && (c.Kind == "Pod" || c.Kind == "VolumeAttachment") {
				did = append(did, c.Kind)
			}
		})
		for i := range 3 {
			w.Linstor.Crash(nodeNumber(i))
		}
		w.until(time.Minute, "all volumes are detached", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(did) == 2*3*40
		})
		early := 0 // by the few acts before they were many
		slices.Reverse(did)
		for _, kind := range did[slices.Index(did, "Pod"):] {
			if kind == "VolumeAttachment" {
				early++
			}
		}
		if early > crowdFew {
			t.Errorf("%d volumes were detached before the last pod was removed", early)
		}
	})
}

// While the removals of a crowd wait for their turn, a pod that nobody selected comes to the volume: the pod of the volume stays with it.
func TestAPodThatComesToTheVolumeOfACrowd(t *testing.T) {
	inCrowd(t, func(w *world, p *process) {
		before := w.pod("db-0")
		free := busy(p.parts.failover.crowd.removals)
		w.Crash(nodeA)
		w.untilMarked()
		w.pass(2 * crowdPatience)
		guest := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guest"}}
		guest.Spec.NodeName, guest.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
		w.must(w.Client().Create(w.ctx, guest))
		w.pass(3 * time.Second)
		free()
		w.pass(time.Minute)
		w.wantStill(before)
		if _, reason := p.said("db", nodeA); reason != failover.SharedVolume {
			t.Errorf("said %s, want SharedVolume", reason)
		}
	})
}
