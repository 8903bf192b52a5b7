package controllers

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// takesLong lets the first such request of the controller take so long. The returned function waits until it is made.
func (w *world) takesLong(write permission, d time.Duration) (untilMade func()) {
	var made atomic.Bool
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == write && !made.Swap(true) {
			return d
		}
		return 0
	})
	return func() {
		w.Helper()
		w.until(time.Minute, "the controller wants to "+write.String(), made.Load)
	}
}

// controllerTakes lets each request of the controller take a while.
func (w *world) controllerTakes(d time.Duration) {
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if strings.HasPrefix(r.Actor, controllerActor) {
			return d
		}
		return 0
	})
}

// edit lets the user change a pod.
func (w *world) edit(name string, change func(*corev1.Pod)) {
	w.Helper()
	pod := w.pod(name)
	change(pod)
	w.must(w.API.Client("user").Update(w.ctx, pod))
}

// addPod creates a pod on node A that uses the volume "db".
func (w *world) addPod(name string, labels map[string]string) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
	w.must(w.Client().Create(w.ctx, pod))
}

// atDeletion calls f when the controller has deleted its first pod.
func (w *world) atDeletion(f func()) {
	var once sync.Once
	w.API.OnChange(func(c apimodel.Change) {
		if strings.HasPrefix(c.Actor, controllerActor) && c.Verb == apimodel.VerbDelete && c.Kind == "Pod" {
			once.Do(f)
		}
	})
}

// What a removal rests on may change while a write before it is under way: it is read again, then.
func TestAPodStaysWhereWhatItsRemovalRestsOnChangesMeanwhile(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"it is no longer selected": func(w *world) { w.edit("db-0", func(pod *corev1.Pod) { pod.Labels = nil }) },
		"it was exempted": func(w *world) {
			w.edit("db-0", func(pod *corev1.Pod) { pod.Annotations = map[string]string{cluster.AnnotationIgnore: "true"} })
		},
		"its node is back": func(w *world) { w.Return(nodeA) },
	} {
		for _, write := range []permission{toTaint, toMark} {
			t.Run(name+" before the controller could "+write.String(), func(t *testing.T) {
				scene(t, func(w *world, p *process) {
					before := w.pod("db-0")
					untilMade := w.takesLong(write, 12*time.Second)
					w.Crash(nodeA)
					untilMade()
					w.pass(time.Second)
					change(w)
					w.pass(30 * time.Second)
					w.wantStill(before)
					w.Return(nodeA)
					w.pass(3 * time.Minute)
					w.wantStill(before)
					if len(w.pod("db-0").Labels) > 0 { // else the mark stays: the cache of pods does not know who uses the volume
						w.wantNothingLeft(p) // of what was written too late
					}
				})
			})
		}
	}
}

// pause sets the annotation that pauses fail-over on the Deployment, or takes it away.
func (w *world) pause(paused bool) {
	w.Helper()
	deployment := read[appsv1.Deployment](w, "ha-controller", "piraeus-ha-controller")
	deployment.Annotations = nil
	if paused {
		deployment.Annotations = map[string]string{cluster.AnnotationPause: "true"}
	}
	w.must(w.Client().Update(w.ctx, deployment))
}

// nextLookTakes lets the next look at the pods of node A take so long, and calls f when it has begun.
func (w *world) nextLookTakes(d time.Duration, f func()) (untilBegun func()) {
	var begun atomic.Bool
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if !strings.HasPrefix(r.Actor, controllerActor) || r.Verb != apimodel.VerbList || r.Node != nodeA || begun.Swap(true) {
			return 0
		}
		f()
		return d
	})
	return func() {
		w.Helper()
		w.until(time.Minute, "the controller looks at the pods of node A", begun.Load)
	}
}

// Who pauses fail-over relies on it from then on, also where a round has asked before whether it is paused, and is still looking.
func TestAPauseThatIsSetDuringALookHoldsUpWhatWouldFollowFromIt(t *testing.T) {
	cfg := defaults()
	pausable(&cfg)
	const looks = 2 * haltAge // by then no answer from before the pause serves any more
	for name, story := range map[string]func(w *world){
		"the removal of the pod": func(w *world) {
			before := w.pod("db-0")
			untilBegun := w.nextLookTakes(looks, func() { w.pause(true) })
			w.Crash(nodeA)
			untilBegun()
			w.pass(time.Minute)
			w.wantStill(before)
			w.wantUntouched()
		},
		"the release and the detach of its volume": func(w *world) {
			var untilBegun func()
			w.atDeletion(func() { untilBegun = w.nextLookTakes(looks, func() { w.pause(true) }) })
			w.Crash(nodeA)
			w.untilRemoved(time.Minute, "db-0")
			untilBegun()
			w.pass(time.Minute)
			if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
				w.Error("the volume was taken from the node while fail-over was paused")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
				w.addDeployment()
				story(w)
				if _, reason := p.said("db", nodeA); reason != failover.Paused {
					t.Errorf("said %s, want Paused", reason)
				}
				w.pause(false)
				w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// A pod that nobody selected comes to the volume: the pod of the volume stays with it.
func TestAPodThatComesToTheVolumeMeanwhileKeepsTheOthers(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		untilMade := w.takesLong(toTaint, 3*time.Second)
		w.Crash(nodeA)
		untilMade()
		w.addPod("guest", nil)
		w.pass(time.Minute)
		if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
			t.Error("the volume was taken from the node under the pod")
		}
	})
}

// A kubelet that is heard of again is asked first.
func TestAKubeletThatReturnsMeanwhileIsAskedToStopThePod(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		untilMade := w.takesLong(toTaint, 4*time.Second)
		w.unplug(nodeA)
		w.DRBD.Isolate(nodeA)
		w.SilenceKubelet(nodeA)
		untilMade()
		w.pass(time.Second)
		w.RestoreKubelet(nodeA)
		w.until(time.Minute, "the pod is being removed", func() bool { return len(w.graces("db-0")) > 0 })
		if got := w.graces("db-0"); got[0] != 10 {
			t.Errorf("deleted with graces %v, want the kubelet to be given 10 s first", got)
		}
	})
}

func TestAPodThatIsGoneMeanwhileNeedsNoDeletion(t *testing.T) {
	scene(t, func(w *world, p *process) {
		untilMade := w.takesLong(toTaint, 3*time.Second)
		w.Crash(nodeA)
		untilMade()
		w.must(w.cordon(nodeA)) // the taint that keeps the replacement away is under way
		w.forceDelete("db-0")
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if got := w.graces("db-0"); len(got) > 0 {
			t.Errorf("pods of that name were deleted with graces %v", got)
		}
		if w.told(p, "panic") {
			t.Error("the process panicked")
		}
	})
}

// Somebody else may have deleted it already. Kubernetes notices that at its next verification, after a minute at most.
func TestAPodWithoutAnAttachmentIsRemoved(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.pass(5 * time.Second)
		w.must(w.Client().Delete(w.ctx, w.attachment("db", nodeA)))
		w.untilRemoved(30*time.Second, "db-0")
		w.until(90*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if got := len(w.removed("db-0")); got != 1 {
			t.Errorf("the pod was removed %d times, want once", got)
		}
	})
}

// Nothing is left to do then, nor to be told.
func TestAVolumeThatKubernetesHasDetachedMeanwhileIsLeftAlone(t *testing.T) {
	scene(t, func(w *world, p *process) {
		untilMade := w.takesLong(toTaint, 5*time.Second)
		w.Crash(nodeA)
		untilMade()
		w.must(w.cordon(nodeA))
		w.forceDelete("db-0")
		w.must(w.Client().Delete(w.ctx, w.attachment("db", nodeA)))
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Minute)
		if w.told(p, string(failover.NotSelected), "db") {
			t.Error("it is told that nobody selected what was moved")
		}
		if verdict, reason := p.said("db", nodeA); verdict != "" {
			t.Errorf("still told %s: %s", verdict, reason)
		}
	})
}

func TestAVolumeWhoseNodeIsBackBeforeItsDetachStays(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.detachesSlowly()
		// The look before the detach takes until the node is back.
		w.atDeletion(func() {
			w.Return(nodeA)
			w.API.Fail(func(r apimodel.Request) error {
				if r.Actor == controllerActor+p.name && needs(r) == (permission{"list", "", "pods"}) {
					return errDead
				}
				return nil
			})
			time.AfterFunc(10*time.Second, func() { w.API.Fail(nil) })
		})
		w.Crash(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.pass(30 * time.Second)
		for _, c := range w.did(apimodel.VerbDelete, "VolumeAttachment") {
			t.Errorf("the attachment was deleted at %s", c.Time)
		}
	})
}

// What is known of the pod that was removed says nothing of others.
func TestAVolumeStaysWhereAnotherPodHasComeToTheNode(t *testing.T) {
	for name, tc := range map[string]struct {
		disabled bool // so that no taint keeps the replacement away
		lag      time.Duration
		comes    func(*world)
	}{
		"when the first one was removed":                                     {comes: func(w *world) { w.addPod("late", selected) }},
		"which was placed there as nothing kept it away":                     {disabled: true},
		"which was placed there and of which the cache does not know so far": {disabled: true, lag: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			cfg.DisableNodeTaints = tc.disabled
			sceneBehind(t, tc.lag, cfg, func(w *world, p *process) {
				w.controllerTakes(5 * time.Millisecond) // what follows a deletion at once comes before the next look
				if tc.comes != nil {
					w.atDeletion(func() { tc.comes(w) })
				}
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

// Job pods have such a finalizer: the controller of jobs counts a pod whose phase has changed, and lets it go then.
func TestAPodThatFinalizersKeepHasItsPhaseChanged(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"} })
		w.Crash(nodeA)
		w.until(30*time.Second, "the pod is being removed", func() bool { return w.pod("db-0").DeletionTimestamp != nil })
		if pod := w.pod("db-0"); pod.Status.Phase != corev1.PodFailed || !disrupted(pod) {
			t.Errorf("phase %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
		}
		w.wantMarked("db")
		w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = nil })
		w.until(10*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func (w *world) wantMarked(volume string) {
	w.Helper()
	if va := w.attachment(volume, nodeA); va == nil || va.Annotations[cluster.AnnotationFailOver] == "" {
		w.Errorf("the attachment of %s has no mark: %v", volume, va)
	}
}

// The object of any other pod goes with its deletion, and nobody would read what it says.
func TestAPodThatGoesWithItsDeletionGetsNoCondition(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if got := w.did(apimodel.VerbPatch, "Pod"); len(got) > 0 {
			t.Errorf("the pod was written %d times before its deletion", len(got))
		}
	})
}

// Its kubelet may take ten seconds, in which leaders come and go and the pod's owner looks at its condition.
func TestAPodOnALivingNodeGetsMarkAndCondition(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the pod is being removed", func() bool { return w.pod("db-0").DeletionTimestamp != nil })
		pod := w.pod("db-0")
		if !disrupted(pod) || pod.Status.Phase != corev1.PodRunning || *pod.DeletionGracePeriodSeconds != 10 {
			t.Errorf("grace %d s, phase %s, conditions %v", *pod.DeletionGracePeriodSeconds, pod.Status.Phase, pod.Status.Conditions)
		}
		w.wantMarked("db")
	})
}

// Somebody may add a finalizer right before the deletion, with which the pod does not end.
func TestAPodThatDoesNotEndWithItsDeletionIsLookedAtAgain(t *testing.T) {
	scene(t, func(w *world, p *process) {
		var once sync.Once
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == toDelete {
				once.Do(func() { w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/late"} }) })
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(100*time.Second, "it is told that a finalizer holds the pod for a minute", func() bool {
			return p.events.has(string(failover.HeldByFinalizer), "Pod", "db-0")
		})
		if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
			t.Error("the volume was taken from the node under the pod")
		}
	})
}

func TestAVolumeIsReleasedWhenTheLastOfTwoPodsIsGone(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.workload("second", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db"} })
		w.pass(time.Minute)
		w.wantRunning("second-0", nodeA)
		w.Crash(nodeA)
		w.until(30*time.Second, "both run on B", func() bool { return w.runs("db-0", nodeB) && w.runs("second-0", nodeB) })
		w.mu.Lock()
		defer w.mu.Unlock()
		released := slices.IndexFunc(w.changes, func(c apimodel.Change) bool { return c.Kind == "Node" && c.Status })
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

// A detach that the attacher does not get to is Kubernetes' part, and each look at it would cost the API as much as the act did.
func TestADetachThatDoesNotEndIsLookedAtMoreAndMoreRarely(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Actor == virtual.ActorAttacher && r.Kind == "VolumeAttachment" {
				return errDead // so that the attachment stays
			}
			return nil
		})
		w.Crash(nodeA)
		w.until(30*time.Second, "the attachment is deleted", func() bool {
			va := w.attachment("db", nodeA)
			return va != nil && va.DeletionTimestamp != nil
		})
		w.pass(10 * time.Second)
		var looks atomic.Int64
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbList && r.Kind == "Pod" && r.Node != "" {
				looks.Add(1)
			}
			return 0
		})
		const watched = 30 * time.Second
		w.pass(watched)
		// The verdict may change once and be looked at for that.
		if got, limit := looks.Load(), int64(watched/retryLimit)+2; got == 0 || got > limit {
			t.Errorf("looked %d times at the pods within %s, want 1 to %d", got, watched, limit)
		}
	})
}

// An ephemeral volume goes with its pod, and may do so while a round is about to delete the pod, or its attachment. A request may be answered
// after its round.
func TestNothingIsRememberedOfAVolumeThatIsDeletedDuringARound(t *testing.T) {
	for name, c := range map[string]struct {
		slow permission
		took time.Duration
		ours bool // nobody else deletes the pod
	}{
		"while its pod is deleted":                             {slow: toDelete, took: 800 * time.Millisecond},
		"while its pod is deleted, longer than a round":        {slow: toDelete, took: 1700 * time.Millisecond, ours: true},
		"while its attachment is deleted":                      {slow: toDetach, took: 800 * time.Millisecond},
		"while its attachment is deleted, longer than a round": {slow: toDetach, took: 1700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				isMade := w.takesLong(c.slow, c.took)
				w.Crash(nodeA)
				isMade()
				user := w.API.Client("user")
				w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(db *virtual.Workload) { db.Gone = true })
				if pod := w.pod("db-0"); pod != nil && !c.ours {
					w.must(user.Delete(w.ctx, pod, client.GracePeriodSeconds(0)))
				}
				if va := w.attachment("db", nodeA); va != nil {
					w.must(user.Delete(w.ctx, va))
				}
				w.must(user.Delete(w.ctx, read[corev1.PersistentVolume](w, "", "db")))
				w.pass(10 * time.Second)
				if lines := (&Memory{p.parts}).Lines(); len(lines) > 0 {
					t.Errorf("the controller remembers: %s", strings.Join(lines, "; "))
				}
				p.parts.node.reports.each(func(node, volume string, report volumeReport) {
					if report.verdict == failover.Lost || report.verdict == failover.Blocked {
						t.Errorf("volume %s is counted on node %s: %v", volume, node, report.verdict)
					}
				})
			})
		})
	}
}
