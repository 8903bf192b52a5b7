package controllers

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// intruder is a pod on A that uses the volume "db" and is not selected.
func intruder() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "intruder"},
		Spec: corev1.PodSpec{NodeName: nodeA, Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db"},
		}}}},
	}
}

func TestATaintThatTakesItsTimeIsFollowedByAnotherLook(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		before := w.pod("db-0")
		var once sync.Once
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor != controllerActor+"one" || r.Verb != apimodel.VerbPatch || r.Kind != "Node" {
				return 0
			}
			once.Do(func() { time.AfterFunc(time.Second, func() { w.DRBD.Rejoin(nodeA) }) })
			return 3 * time.Second
		})
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.pass(40 * time.Second)
		w.wantStill(before)
	})
}

func TestATaintThatTakesItsTimeEndsNoPod(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var once sync.Once
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor != controllerActor+"one" || r.Verb != apimodel.VerbPatch || r.Kind != "Node" {
				return 0
			}
			once.Do(func() { time.AfterFunc(time.Second, w.Linstor.Stop) })
			return 3 * time.Second
		})
		w.Crash(nodeA)
		w.pass(40 * time.Second)
		if phase := w.pod("db-0").Status.Phase; phase != corev1.PodRunning {
			t.Errorf("the pod's phase was set to %s by a word of LINSTOR that was 3 s old", phase)
		}
	})
}

// A pod is removed by what LINSTOR says of all its volumes, and none of that may be old by then.
func TestAnOldWordOnAnotherVolumeOfAPodRemovesNothing(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.startProcess("one", defaults()).leads()
		w.volume("db")
		w.volume("wal")
		w.workload("both", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db", "data-wal"} })
		w.pass(time.Minute)
		before := w.pod("both-0")
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Kind == "VolumeAttachment" {
				return 1200 * time.Millisecond
			}
			return 0
		})
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(4 * time.Second) // of the grace; the definition is read again when that is over
		var mu sync.Mutex
		var begun time.Time
		w.Linstor.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			ofDB := strings.HasSuffix(r.URL.Path, "/resource-definitions/pvc-db")
			if ofDB && begun.IsZero() {
				begun = time.Now()
			}
			// LINSTOR answers once on the other volume, and then no more.
			silent := !begun.IsZero() && time.Since(begun) > 500*time.Millisecond &&
				(strings.HasPrefix(r.URL.Path, "/v1/view/resources") || strings.HasSuffix(r.URL.Path, "/pvc-wal/resources"))
			mu.Unlock()
			switch {
			case silent:
				rw.WriteHeader(http.StatusInternalServerError)
				return true
			case ofDB:
				select {
				case <-time.After(1500 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
			return false
		})
		w.pass(30 * time.Second)
		if len(w.did(apimodel.VerbPatch, "VolumeAttachment")) == 0 {
			t.Fatal("no fail-over has begun")
		}
		w.wantStill(before)
	})
}

// An API server that takes its time makes a fail-over slower, never impossible.
func TestASlowAPIMakesAFailOverSlower(t *testing.T) {
	every := func(takes time.Duration) func(apimodel.Request) time.Duration {
		return func(apimodel.Request) time.Duration { return takes }
	}
	lists := func(r apimodel.Request) time.Duration {
		if r.Verb == apimodel.VerbList && r.Kind == "Pod" {
			return 5 * time.Second
		}
		return 0
	}
	gets := func(r apimodel.Request) time.Duration {
		if r.Verb == apimodel.VerbGet {
			return 1500 * time.Millisecond
		}
		return 0
	}
	for name, tc := range map[string]struct {
		delay func(apimodel.Request) time.Duration
		limit time.Duration
	}{
		"every request takes 0.7 s": {every(700 * time.Millisecond), 30 * time.Second},
		"every request takes 1.5 s": {every(1500 * time.Millisecond), 50 * time.Second},
		"every request takes 2.5 s": {every(2500 * time.Millisecond), 75 * time.Second},
		"a list of pods takes 5 s":  {lists, 40 * time.Second},
		"a GET takes 1.5 s":         {gets, 40 * time.Second},
		"a list of pods takes 5 s, and a GET 1.5 s": {
			func(r apimodel.Request) time.Duration { return lists(r) + gets(r) }, 40 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			pausable(&cfg)
			sceneWith(t, virtual.Options{}, cfg, func(w *world, _ *process) {
				w.addDeployment()
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if strings.HasPrefix(r.Actor, controllerActor) {
						return tc.delay(r)
					}
					return 0
				})
				w.Crash(nodeA)
				crashed := time.Now()
				for !w.runs("db-0", nodeB) && time.Since(crashed) < 2*time.Minute {
					w.pass(200 * time.Millisecond)
				}
				if took := time.Since(crashed); took > tc.limit {
					w.Errorf("moved in %s, want at most %s", took, tc.limit)
				}
				w.API.Delay(nil) // before the story may fail: no request is left then
				w.pass(20 * time.Second)
			})
		})
	}
}

func TestAConditionThatTakesItsTimeHoldsNothingUp(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var asked time.Time
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor != controllerActor+"one" || r.Verb != apimodel.VerbPatch || r.Kind != "Pod" {
				return 0
			}
			asked = time.Now()
			return 3 * time.Second
		})
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if deleted := w.did(apimodel.VerbDelete, "Pod"); len(deleted) == 0 || asked.IsZero() {
			t.Error("the pod was not deleted")
		}
	})
}

func TestAProcessThatStoodStillLooksAgain(t *testing.T) {
	for name, returns := range map[string]bool{"A is well again": true, "A is still cut off": false} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				before := w.pod("db-0")
				var once sync.Once
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Kind == "Pod" {
						once.Do(func() {
							if returns {
								w.DRBD.Rejoin(nodeA)
							}
							<-time.After(3 * time.Second) // no deadline ends this
						})
					}
					return 0
				})
				w.DRBD.SetDetectionDelay(0)
				w.DRBD.Isolate(nodeA)
				if returns {
					w.pass(40 * time.Second)
					w.wantStill(before)
					return
				}
				w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

func TestAReleaseThatTakesItsTimeIsFollowedByAnotherLook(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var once sync.Once
		w.API.Delay(func(r apimodel.Request) time.Duration {
			switch {
			case r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbDelete:
				return time.Hour // Kubernetes is not quicker here
			case r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Kind == "Node" && r.Status:
				once.Do(func() { time.AfterFunc(time.Second, w.Linstor.Stop) })
				return 3 * time.Second
			}
			return 0
		})
		w.Crash(nodeA)
		w.pass(time.Minute)
		if deleted := w.did(apimodel.VerbDelete, "VolumeAttachment"); len(deleted) > 0 {
			t.Errorf("attachments were deleted by a word of LINSTOR that was 3 s old: %d", len(deleted))
		}
	})
}

// The API server may reject a write for so long that it rests on something old when it could be sent again.
func TestAWriteThatCouldNotBeSentInTimeFollowsAnotherConfirmation(t *testing.T) {
	for name, late := range map[string]apimodel.Request{
		"the mark of an attachment":     {Verb: apimodel.VerbPatch, Kind: "VolumeAttachment"},
		"the deletion of a pod":         {Verb: apimodel.VerbDelete, Kind: "Pod"},
		"the deletion of an attachment": {Verb: apimodel.VerbDelete, Kind: "VolumeAttachment"},
	} {
		{
			t.Run(name, func(t *testing.T) {
				scene(t, func(w *world, _ *process) {
					var rejected, asked atomic.Bool
					w.API.Fail(func(r apimodel.Request) error {
						if !strings.HasPrefix(r.Actor, controllerActor) {
							return nil
						}
						is := r.Verb == late.Verb && r.Kind == late.Kind
						if is && !rejected.Swap(true) {
							return errors.New("the API is busy")
						}
						if is && !asked.Load() {
							t.Error("it was sent again by the same confirmation")
						}
						if rejected.Load() && (r.Verb == apimodel.VerbGet || r.Verb == apimodel.VerbList) && r.Kind == late.Kind {
							asked.Store(true)
						}
						return nil
					})
					w.Crash(nodeA)
					w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
					if !rejected.Load() {
						t.Error("nothing was rejected")
					}
				})
			})
		}
	}
}

// What was read for the removal of the pod serves the detach as well only while it is recent, and nothing that comes later.
func TestADetachByAnOldWordOfLinstorDoesNotHappen(t *testing.T) {
	for name, tc := range map[string]struct {
		removal, release time.Duration
	}{
		"where the removal took its time":        {removal: 1200 * time.Millisecond},
		"where removal and release took theirs":  {removal: 800 * time.Millisecond, release: 1300 * time.Millisecond},
		"where the release took all of the time": {release: 2100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				var once sync.Once
				w.API.Delay(func(r apimodel.Request) time.Duration {
					switch {
					case r.Actor != controllerActor+"one":
						return 0
					case r.Verb == apimodel.VerbDelete && r.Kind == "Pod":
						once.Do(func() { time.AfterFunc(tc.removal/2, w.Linstor.Stop) })
						return tc.removal
					case r.Verb == apimodel.VerbPatch && r.Kind == "Node" && r.Status:
						return tc.release
					}
					return 0
				})
				w.Crash(nodeA)
				w.pass(time.Minute)
				if deleted := w.did(apimodel.VerbDelete, "Pod"); len(deleted) == 0 {
					t.Fatal("the pod was not removed")
				}
				if deleted := w.did(apimodel.VerbDelete, "VolumeAttachment"); len(deleted) > 0 {
					t.Errorf("the attachment was deleted: %v", deleted[0].Time)
				}
			})
		})
	}
}

// What is left after a detach is Kubernetes' part. Each step of that calls for a look, which is not worth a question each time.
func TestNobodyIsAskedWhileADetachComesToItsEnd(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var mu sync.Mutex
		var detached time.Time
		asked := 0
		w.API.Delay(func(r apimodel.Request) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbDelete:
				return time.Hour // Kubernetes is not quicker here
			case r.Actor == virtual.ActorAttacher && r.Kind == "VolumeAttachment":
				return 3 * time.Second
			case r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbDelete && r.Kind == "VolumeAttachment":
				detached = time.Now()
			case r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbList && time.Since(detached) < lookAgain:
				asked++
			}
			return 0
		})
		w.Crash(nodeA)
		w.until(time.Minute, "the attachment has ended", func() bool { return w.attachment("db", nodeA) == nil })
		mu.Lock()
		defer mu.Unlock()
		if asked > 0 {
			t.Errorf("within %s after the detach the API was asked %d times for what is on the node", lookAgain, asked)
		}
	})
}

func TestPodsThatComeWhileLinstorIsAskedAreSeen(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(4 * time.Second) // of the grace; the definition is read again when that is over
		var once sync.Once
		w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/resource-definitions/pvc-db") {
				once.Do(func() { time.AfterFunc(time.Second, func() { w.must(w.Client().Create(w.ctx, intruder())) }) })
				select {
				case <-time.After(1500 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
			return false
		})
		w.pass(30 * time.Second)
		if !w.inUse("db", nodeA) || w.attachment("db", nodeA) == nil {
			t.Error("the volume was taken from the node under the pod")
		}
	})
}

func TestEachStageOfAFailOverIsTimed(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.pass(5 * time.Minute)
		p.wantTimedOnce()
		p.parts.node.reports.each(func(node, volume string, report volumeReport) {
			if report.moving {
				t.Errorf("still expected to arrive from %s: %s", node, volume)
			}
		})
	})
}

// wantTimedOnce fails the story unless the process has timed each stage of just one fail-over.
func (p *process) wantTimedOnce() {
	p.world.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.parts.node.metrics.Collectors()...)
	families, err := registry.Gather()
	p.world.must(err)
	timed := map[string]uint64{}
	for _, family := range families {
		if family.GetName() == "piraeus_ha_controller_failover_duration_seconds" {
			for _, m := range family.GetMetric() {
				timed[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	want := map[string]uint64{"decide": 1, "pods_gone": 1, "release": 1, "attached": 1, "total": 1}
	if diff := cmp.Diff(want, timed); diff != "" {
		p.world.Errorf("stages (-want +got):\n%s", diff)
	}
}
