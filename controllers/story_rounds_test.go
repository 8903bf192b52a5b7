package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// withPods is a scene with so many more volumes, each with a workload that is selected: "v0" with "v0-0" and so on.
func withPods(t *testing.T, pods int, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.fill(pods)
		tell(w, p)
	})
}

// fill adds the volumes and workloads of withPods, and lets them run on A for a while.
func (w *world) fill(pods int) {
	w.Helper()
	for i := range pods {
		w.volume(volumeNumber(i))
		w.workload(volumeNumber(i), selected)
	}
	w.pass(time.Minute)
	for i := range pods {
		w.wantRunning(podNumber(i), nodeA)
	}
}

func volumeNumber(i int) string { return fmt.Sprint("v", i) }

func podNumber(i int) string { return volumeNumber(i) + "-0" }

// onB is how many of the first pods of withPods run on B.
func (w *world) onB(pods int) (n int) {
	w.Helper()
	for i := range pods {
		if w.runs(podNumber(i), nodeB) {
			n++
		}
	}
	return n
}

// traffic are the requests of the controller from now on, with the time of each.
type traffic struct {
	mu       sync.Mutex
	requests []apimodel.Request
	times    []time.Time
}

// asks lets each request of the controller take so long, and takes it down.
func (w *world) asks(each time.Duration) *traffic {
	a := &traffic{}
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if !strings.HasPrefix(r.Actor, controllerActor) {
			return 0
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.requests, a.times = append(a.requests, r), append(a.times, time.Now())
		return each
	})
	return a
}

// of returns when requests of a kind were made.
func (a *traffic) of(p permission) (times []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range a.requests {
		if needs(r) == p {
			times = append(times, a.times[i])
		}
	}
	return times
}

// ages are how long before each request of one kind the last one of another kind was made.
func (a *traffic) ages(written, read permission) (ages []time.Duration) {
	reads := a.of(read)
	for _, at := range a.of(written) {
		last := time.Time{}
		for _, r := range reads {
			if !r.After(at) {
				last = r
			}
		}
		ages = append(ages, at.Sub(last))
	}
	return ages
}

// The graces of a few volumes end a moment before those of all others, as LINSTOR has heard: that makes two or three waves of removals. Before
// each there is one list of pods, and two before what is left to detach: by one it is released, by the other its attachment is deleted.
func TestANodeWith110PodsIsDealtWithInAFewRounds(t *testing.T) {
	t.Parallel()
	const waves = 3
	pods := 110
	if underRace || testing.Short() {
		pods = 40
	}
	mass{nodes: 4, lost: 1, volumes: pods}.plays(t, defaults(), func(w *world) {
		a, did := w.asks(20*time.Millisecond), &pace{}
		w.API.OnChange(did.note)
		w.Linstor.Crash(nodeNumber(0))
		w.until(time.Minute, "all volumes are detached", func() bool { return did.detached() == pods })
		w.pass(10 * time.Second)
		for what, c := range map[string]struct {
			asked permission
			limit int
		}{
			"lists of pods":        {permission{"list", "", "pods"}, 3 * waves},
			"lists of attachments": {permission{"list", "storage.k8s.io", "volumeattachments"}, waves + 1},
			"writes of the taint":  {toTaint, waves},
			"releases":             {toRelease, waves},
			"marks":                {toMark, pods},
			"deletions of pods":    {toDelete, pods},
			"detaches":             {toDetach, pods},
		} {
			if got := len(a.of(c.asked)); got == 0 || got > c.limit {
				t.Errorf("%d %s, want 1 to %d", got, what, c.limit)
			}
		}
		if did.pods != pods {
			t.Errorf("%d pods were removed, want %d", did.pods, pods)
		}
		for _, read := range []permission{{"list", "", "pods"}, {"get", "coordination.k8s.io", "leases"}} {
			if oldest := slices.Max(a.ages(toDelete, read)); oldest > failover.ActAge {
				t.Errorf("a pod was deleted %s after the last time that the controller could %s", oldest, read)
			}
		}
	})
}

// many is how many pods a node has in these stories.
func many() int {
	if underRace || testing.Short() {
		return 8
	}
	return 30
}

// noneIsPlacedOnA fails the story as soon as a pod is bound to A, which is lost.
func (w *world) noneIsPlacedOnA() {
	w.API.OnChange(func(c apimodel.Change) {
		if c.Kind == "Pod" && c.Actor == virtual.ActorScheduler && !c.Status && c.New.(*corev1.Pod).Spec.NodeName == nodeA {
			w.Errorf("pod %s was placed on the lost node", c.Name)
		}
	})
}

// wantRemovedOnce fails the story unless each of the first pods of withPods was removed just once.
func (w *world) wantRemovedOnce(pods int) {
	w.Helper()
	for i := range pods {
		if got := len(w.removed(podNumber(i))); got != 1 {
			w.Errorf("pod %s was removed %d times, want once", podNumber(i), got)
		}
	}
}

// slow is the pod of withPods that one thing or another holds up.
const slow = 3

// aims tells whether a request of the controller of that kind is for the slow pod or its attachment.
func aims(r apimodel.Request, kind permission) bool {
	return strings.HasPrefix(r.Actor, controllerActor) && needs(r) == kind &&
		(r.Name == podNumber(slow) || r.Name == "csi-"+volumeNumber(slow)+"-"+nodeA)
}

func TestAWebhookThatTakesTenSecondsForOnePodHoldsUpNoOther(t *testing.T) {
	for _, write := range []permission{toMark, toDelete} {
		t.Run(write.String(), func(t *testing.T) {
			withPods(t, many(), func(w *world, p *process) {
				w.noneIsPlacedOnA()
				var first atomic.Bool
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if aims(r, write) && !first.Swap(true) {
						return 10 * time.Second
					}
					return 0
				})
				w.Crash(nodeA)
				w.until(30*time.Second, "the first pod is removed", func() bool { return len(w.did(apimodel.VerbDelete, "Pod")) > 0 })
				w.until(9*time.Second, "all others run on B", func() bool { return w.onB(many()) >= many()-1 })
				removed := slices.DeleteFunc(w.did(apimodel.VerbDelete, "Pod"), func(c apimodel.Change) bool { return c.Name == podNumber(slow) })
				took := removed[len(removed)-1].Time.Sub(removed[0].Time)
				if len(removed) < many()-1 || took > 3*time.Second {
					t.Errorf("%d pods were removed, the last one %s after the first", len(removed), took)
				}
				w.until(20*time.Second, "all run on B", func() bool { return w.onB(many()) == many() })
				w.wantRemovedOnce(many())
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(p)
			})
		})
	}
}

func TestALinstorResourceWhoseListHangsHoldsUpNoOther(t *testing.T) {
	withPods(t, many(), func(w *world, p *process) {
		answer := w.hangsOn("pvc-" + volumeNumber(slow))
		w.Crash(nodeA)
		w.until(18*time.Second, "all others run on B", func() bool { return w.onB(many()) >= many()-1 })
		w.pass(30 * time.Second)
		if got := len(w.removed(podNumber(slow))); got > 0 {
			t.Errorf("the pod was removed without a word of LINSTOR on its volume")
		}
		answer()
		w.until(30*time.Second, "the last one runs on B", func() bool { return w.onB(many()) == many() })
		w.wantRemovedOnce(many())
		w.Return(nodeA)
		w.pass(10 * time.Minute) // until everything is read again
		w.wantNothingLeft(p)
	})
}

// hangsOn has LINSTOR answer nothing about the replicas of a resource until answer is called.
func (w *world) hangsOn(resource string) (answer func()) {
	answers := make(chan struct{})
	w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/"+resource+"/resources") && !slices.Contains(r.URL.Query()["resources"], resource) {
			return false
		}
		select {
		case <-answers:
			return false
		case <-r.Context().Done():
			return true
		}
	})
	return func() { close(answers) }
}

// What every decision needs of LINSTOR is asked for again where one request is never answered.
func TestOneRequestThatIsNeverAnsweredHoldsNothingUp(t *testing.T) {
	for _, path := range []string{"/v1/nodes", "/v1/controller/properties", "/v1/resource-groups"} {
		t.Run(path, func(t *testing.T) {
			withPods(t, 3, func(w *world, _ *process) {
				w.Crash(nodeA)
				w.pass(13500 * time.Millisecond)
				var lost atomic.Bool
				w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != path || lost.Swap(true) {
						return false
					}
					<-r.Context().Done()
					return true
				})
				w.until(5*time.Second, "all run on B", func() bool { return w.onB(3) == 3 })
				if !lost.Load() {
					t.Error("LINSTOR was not asked")
				}
			})
		})
	}
}

// lastDeed plays the loss of the second node, alone or together with the first one, for whose pods a webhook takes ten seconds. It returns
// how long after the crash the last volume of the second one was detached.
func lastDeed(t *testing.T, together bool) (took time.Duration) {
	t.Helper()
	const volumes = 5
	mass{nodes: 8, lost: 2, volumes: volumes}.plays(t, defaults(), func(w *world) {
		var detached atomic.Int32
		w.API.OnChange(func(c apimodel.Change) {
			if c.Verb == apimodel.VerbDelete && c.Kind == "VolumeAttachment" && strings.HasPrefix(c.Name, "csi-1-") {
				detached.Add(1)
			}
		})
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == toDelete && strings.HasPrefix(r.Name, "0-") {
				return 10 * time.Second
			}
			return 0
		})
		if together {
			w.Linstor.Crash(nodeNumber(0))
		}
		w.Linstor.Crash(nodeNumber(1))
		took = w.until(time.Minute, "the volumes of the second node are detached", func() bool { return detached.Load() == volumes })
	})
	return took
}

func TestANodeWithASlowWebhookHoldsUpNoOtherNode(t *testing.T) {
	t.Parallel()
	alone, together := lastDeed(t, false), lastDeed(t, true)
	if t.Logf("alone %s, together %s", alone, together); together > alone+200*time.Millisecond {
		t.Errorf("a node took %s, and %s where another was lost at the same time", alone, together)
	}
}

func TestAPodWithTwoLostVolumesIsRemovedOnceAndBothMove(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.volume("wal")
		w.workload("both", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db", "data-wal"} })
		w.pass(time.Minute)
		w.wantRunning("both-0", nodeA)
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("both-0", nodeB) })
		if got := len(w.removed("both-0")); got != 1 {
			t.Errorf("the pod was removed %d times, want once", got)
		}
		if got := p.events.count(EventForceDeleted, "both-0"); got != 1 {
			t.Errorf("the pod was told %d times of its removal, want once", got)
		}
		for _, volume := range []string{"db", "wal"} {
			if w.inUse(volume, nodeA) || w.attachment(volume, nodeA) != nil || w.attachment(volume, nodeB) == nil {
				t.Errorf("volume %s has not moved", volume)
			}
			moved := "volume " + volume + " failed over from node node-a to node node-b "
			if texts := p.events.texts(); !slices.ContainsFunc(texts, func(text string) bool {
				return strings.Contains(text, moved) && strings.Contains(text, "after the first sign of the loss")
			}) {
				t.Errorf("no Event says how long the fail-over of volume %s took: %q", volume, texts)
			}
		}
		begun, completed := p.shown("failovers_total reason=NodeUnreachable"), p.shown("failovers_completed_total reason=NodeUnreachable")
		if begun != 2 || completed != 2 {
			t.Errorf("%g fail-overs of volumes were begun and %g completed, want 2 of both", begun, completed)
		}
		if got := p.shown("pods_deleted_total mode=Force"); got != 1 {
			t.Errorf("%g pods were counted as deleted, want 1", got)
		}
		w.Return(nodeA)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
	})
}

// The API server says for how long it wants to be spared. (By then client-go has made the request again by itself.)
func TestAWriteThatTheAPIIsTooBusyForIsMadeAgain(t *testing.T) {
	const spared = 4
	for _, write := range writes {
		t.Run(write.String(), func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.detachesSlowly()
				var mu sync.Mutex
				var rejected, again time.Time
				w.ofController(func(r apimodel.Request) error {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case needs(r) != write:
					case rejected.IsZero():
						rejected = time.Now()
						return apierrors.NewTooManyRequests("too busy", spared)
					case again.IsZero():
						again = time.Now()
					}
					return nil
				})
				w.Crash(nodeA)
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				w.pass(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				if waited := again.Sub(rejected); again.IsZero() || waited > (spared+1)*time.Second {
					t.Errorf("made again %s after it was rejected, want at most %d s", waited, spared)
				}
				if got := len(w.removed("db-0")); got != 1 {
					t.Errorf("the pod was removed %d times, want once", got)
				}
				if !w.told(p, "too busy") {
					t.Error("neither the log nor an Event says why it was late")
				}
			})
		})
	}
}

// The condition is a courtesy: the pod goes without it, and the log or an Event says what is missing.
func TestAPodThatFinalizersKeepGoesWithoutItsCondition(t *testing.T) {
	for name, cut := range map[string]func(w *world){
		"by force":     func(w *world) { w.Crash(nodeA) },
		"with a grace": func(w *world) { w.DRBD.Isolate(nodeA) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				missing := permission{"patch", "", "pods/status"}
				w.revoke(missing)
				w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/keep"} })
				cut(w)
				w.until(30*time.Second, "the pod is being removed", func() bool { return w.pod("db-0").DeletionTimestamp != nil })
				if pod := w.pod("db-0"); disrupted(pod) {
					t.Errorf("conditions %v", pod.Status.Conditions)
				}
				if !w.told(p, missing.verb, missing.resource) {
					t.Error("neither the log nor an Event names what is missing")
				}
				w.pass(15 * time.Second)
				w.edit("db-0", func(pod *corev1.Pod) { pod.Finalizers = nil })
				w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

func TestAPanicInARequestOfARoundEndsThatRequestOnly(t *testing.T) {
	for _, write := range []permission{toMark, toDelete} {
		t.Run(write.String(), func(t *testing.T) {
			withPods(t, many(), func(w *world, p *process) {
				const panics = 20
				var left atomic.Int32
				left.Store(panics)
				w.API.Fail(func(r apimodel.Request) error {
					if aims(r, write) && left.Add(-1) >= 0 {
						panic("a bug")
					}
					return nil
				})
				w.Crash(nodeA)
				w.until(30*time.Second, "all others run on B", func() bool { return w.onB(many()) >= many()-1 })
				if len(w.removed(podNumber(slow))) > 0 || left.Load() == panics {
					t.Errorf("%d of %d panics have not come, and the pod was removed", left.Load(), panics)
				}
				left.Store(0)
				w.until(30*time.Second, "all run on B", func() bool { return w.onB(many()) == many() })
				w.wantRemovedOnce(many())
				if !w.told(p, "a bug", "panic", volumeNumber(slow)) {
					t.Error("the log does not tell of the panic")
				}
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(p)
			})
		})
	}
}

// A webhook takes so long that no round waits for its answer, which is a denial.
func TestAWriteThatIsDeniedAfterItsRoundIsTold(t *testing.T) {
	for _, write := range writes {
		t.Run(write.String(), func(t *testing.T) {
			cfg := defaults()
			cfg.FastDetach = write != toDetach // or Kubernetes detaches what was released meanwhile, and nobody misses the write
			sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if strings.HasPrefix(r.Actor, controllerActor) && needs(r) == write {
						return 3 * time.Second
					}
					return 0
				})
				w.ofController(func(r apimodel.Request) error {
					if needs(r) == write {
						return errors.New("admission webhook denied the request")
					}
					return nil
				})
				w.Crash(nodeA)
				w.until(40*time.Second, "it is told", func() bool { return w.told(p, "denied the request") })
				w.API.Fail(nil)
				w.API.Delay(nil)
				w.until(2*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				if got := len(w.removed("db-0")); got != 1 {
					t.Errorf("the pod was removed %d times, want once", got)
				}
			})
		})
	}
}

func TestTheLeaderIsKilledAtEachStepOfManyPods(t *testing.T) {
	t.Parallel()
	for name, at := range moments() {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				first, second := w.startProcess("one", defaults()), w.startProcess("two", defaults())
				first.leads()
				w.fill(many())
				w.noneIsPlacedOnA()
				untilKilled := w.dies(first, writes[at.number], at.before)
				w.Crash(nodeA)
				untilKilled()
				w.pass(12 * time.Second)
				w.wantWrote(first, at.done())
				second.leads()
				w.until(40*time.Second, "all run on B", func() bool { return w.onB(many()) == many() })
				w.wantRemovedOnce(many())
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(second)
			})
		})
	}
}
