package controllers

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// A node with three volumes is lost, and right before the grace has passed, something begins to take long that only one of them needs. The
// pods of the others go by the first look.
func TestASlowAnswerHoldsUpOnePodOnly(t *testing.T) {
	const answers = 20 * time.Second
	slowAPI := func(is func(r apimodel.Request) bool) func(w *world) {
		return func(w *world) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if strings.HasPrefix(r.Actor, controllerActor) && is(r) {
					return answers
				}
				return 5 * time.Millisecond
			})
		}
	}
	for name, begins := range map[string]func(w *world){
		"LINSTOR's word on the volume": func(w *world) {
			w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/pvc-0-0") {
					hold(r, answers)
				}
				return false
			})
		},
		"the mark of its attachment": slowAPI(func(r apimodel.Request) bool {
			return r.Verb == apimodel.VerbPatch && r.Name == "csi-0-0"
		}),
		"the deletion of its pod": slowAPI(func(r apimodel.Request) bool {
			return r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Name == "0-0"
		}),
		"the reading of its attachment, for a second in each round": slowAPI(func(r apimodel.Request) bool {
			return r.Verb == apimodel.VerbGet && r.Name == "csi-0-0"
		}),
		"the deletion of its attachment": slowAPI(func(r apimodel.Request) bool {
			return r.Verb == apimodel.VerbDelete && r.Name == "csi-0-0"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			mass{nodes: 4, lost: 1, volumes: 3, apiTime: 5 * time.Millisecond}.plays(t, defaults(), func(w *world) {
				deleted := w.deletions()
				w.Linstor.Intercept(oneAnswerAtATime())
				w.Linstor.Crash(nodeNumber(0))
				w.pass(14900 * time.Millisecond)
				begins(w)
				w.pass(12 * time.Second)
				limit := 16500*time.Millisecond + 5*firstPatience
				if strings.Contains(name, "in each round") || strings.HasPrefix(name, "LINSTOR's word") {
					limit += 3 * 600 * time.Millisecond
				}
				for _, object := range []string{"Pod 0-1", "Pod 0-2", "VolumeAttachment csi-0-1", "VolumeAttachment csi-0-2"} {
					if at, ok := deleted(object); !ok || at > limit {
						t.Errorf("%s was deleted: %t, %s after the crash", object, ok, at)
					}
				}
			})
		})
	}
}

// LINSTOR takes longer to answer about two of three volumes than a look waits. Its answers serve the next look, which does not ask anew.
func TestAnAnswerThatIsTooLateForOneLookServesTheNext(t *testing.T) {
	const answers = 600*time.Millisecond + 300*time.Millisecond
	mass{nodes: 4, lost: 1, volumes: 3, apiTime: 5 * time.Millisecond}.plays(t, defaults(), func(w *world) {
		deleted := w.deletions()
		w.Linstor.Intercept(oneAnswerAtATime())
		w.Linstor.Crash(nodeNumber(0))
		w.pass(14900 * time.Millisecond)
		w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/pvc-0-0/resources") || strings.Contains(r.URL.Path, "/pvc-0-1/resources") {
				hold(r, answers)
			}
			return false
		})
		w.pass(4 * time.Second)
		quick, ok := deleted("Pod 0-2")
		if !ok {
			t.Fatal("the pod whose volume LINSTOR answers about at once was not deleted")
		}
		for _, pod := range []string{"Pod 0-0", "Pod 0-1"} {
			if at, ok := deleted(pod); !ok || at-quick > answers+100*time.Millisecond {
				t.Errorf("%s was deleted: %t, %s after the first one", pod, ok, at-quick)
			}
		}
	})
}

// Right before a look reads them, all other replicas are deactivated, which no event announces. The look has asked LINSTOR anew, so that it
// does not rest on what was read before.
func TestALookKnowsWhatLinstorSaysNow(t *testing.T) {
	for name, before := range map[string]func(w *world, deactivate func()){
		"the first one": func(w *world, deactivate func()) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbGet && r.Name == "csi-0-0" {
					time.AfterFunc(time.Millisecond/2, deactivate) // what the look has asked for is answered after that
				}
				return 5 * time.Millisecond
			})
		},
		"the one after a deletion that the API refused, which is no matter of LINSTOR's": func(w *world, deactivate func()) {
			var deletions atomic.Int64
			w.ofController(func(r apimodel.Request) error {
				if needs(r) == toDelete && deletions.Add(1) == 1 {
					deactivate()
					return apierrors.NewInternalError(errors.New("broken"))
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			mass{nodes: 4, lost: 1, volumes: 1, apiTime: 5 * time.Millisecond}.plays(t, defaults(), func(w *world) {
				deleted := w.deletions()
				w.Linstor.Intercept(oneAnswerAtATime())
				w.Linstor.Crash(nodeNumber(0))
				var deactivated atomic.Bool
				before(w, func() {
					deactivated.Store(true)
					for _, node := range w.Linstor.ReplicaNodes("pvc-0-0") {
						if node != nodeNumber(0) {
							w.Linstor.FlagReplica("pvc-0-0", node, "INACTIVE", true)
						}
					}
				})
				w.pass(20 * time.Second)
				if at, ok := deleted("Pod 0-0"); ok || !deactivated.Load() {
					t.Errorf("deactivated: %t; the pod was deleted: %t, %s after the crash", deactivated.Load(), ok, at)
				}
			})
		})
	}
}

// oneAnswerAtATime lets each answer of LINSTOR take about a millisecond, and no two of them come at the same instant: whether a setting was
// read before or after a list of replicas is never left to chance.
func oneAnswerAtATime() func(http.ResponseWriter, *http.Request) bool {
	var answers atomic.Int64
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/v1/events") {
			hold(r, time.Millisecond+time.Duration(answers.Add(1))*time.Microsecond)
		}
		return false
	}
}

// hold lets a request wait.
func hold(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// deletions returns how long from now on it took until the controller had deleted an object, by kind and name.
func (w *world) deletions() (deleted func(object string) (after time.Duration, ok bool)) {
	var mu sync.Mutex
	began, all := time.Now(), make(map[string]time.Duration)
	w.API.OnChange(func(c apimodel.Change) {
		mu.Lock()
		defer mu.Unlock()
		if c.Verb == apimodel.VerbDelete && strings.HasPrefix(c.Actor, controllerActor) {
			all[c.Kind+" "+c.Name] = c.Time.Sub(began)
		}
	})
	return func(object string) (time.Duration, bool) {
		mu.Lock()
		defer mu.Unlock()
		after, ok := all[object]
		return after, ok
	}
}
