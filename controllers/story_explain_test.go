package controllers

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// wordsOfTheWebhook are what a webhook says that rejects a write.
const wordsOfTheWebhook = "nobody writes this on Fridays"

// rejects lets a webhook reject what a permission is needed for.
func (w *world) rejects(write permission) {
	w.ofController(func(r apimodel.Request) error {
		if needs(r) != write {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Group: write.group, Resource: write.resource}, r.Name,
			errors.New(`admission webhook "policy.example.com" denied the request: `+wordsOfTheWebhook))
	})
}

// notes returns the notes of the Events of a pod with a reason.
func (l *eventLog) notes(reason failover.Reason, pod string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var notes []string
	for _, e := range l.events {
		if e.kind == "Pod" && e.name == pod && e.reason == string(reason) {
			notes = append(notes, e.note)
		}
	}
	return notes
}

// A node is lost and the controller does nothing about it. Within a minute an Event of the pod says why, and what would end it; it says so
// once, and pods that are not selected are told nothing.
func TestALossThatIsNotActedOnIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		lose   func(w *world)
		reason failover.Reason
		words  []string
		// end ends what holds the fail-over up; nil where it is not to move.
		end func(w *world)
	}{
		"the others lack quorum": {
			lose:   func(w *world) { w.Crash(nodeT); w.pass(time.Minute); w.Crash(nodeA) },
			reason: failover.NoSurvivor, words: []string{"node-b has no quorum", "node-t is not ONLINE", "is back"},
		},
		"a witness still sees the node": {
			lose:   func(w *world) { w.Linstor.CutSatellite(nodeA) },
			reason: failover.NoSurvivor, words: []string{"node-b is connected to node-a", "node-t is connected to node-a"},
		},
		"the other side of a live migration is Primary": {
			lose: func(w *world) {
				w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropAllowTwoPrimaries, "yes")
				w.pass(5 * time.Second)
				w.must(w.DRBD.Open("pvc-db", nodeB, false))
				w.Crash(nodeA)
			},
			reason: failover.NoSurvivor, words: []string{"node-b is Primary itself"},
			end: func(w *world) { w.DRBD.Close("pvc-db", nodeB) },
		},
		"a webhook rejects the mark": {
			lose:   func(w *world) { w.rejects(writes[1]); w.Crash(nodeA) },
			reason: failover.StepFailed, words: []string{"VolumeAttachment", wordsOfTheWebhook, "tried again"},
			end: func(w *world) { w.API.Fail(nil) },
		},
		"a webhook rejects the deletion": {
			lose:   func(w *world) { w.rejects(writes[2]); w.Crash(nodeA) },
			reason: failover.StepFailed, words: []string{"deleting pod", wordsOfTheWebhook, "tried again"},
			end: func(w *world) { w.API.Fail(nil) },
		},
		"LINSTOR is away when the node crashes": {
			lose:   func(w *world) { w.Linstor.Stop(); w.pass(5 * time.Second); w.Crash(nodeA) },
			reason: failover.LinstorStale, words: []string{"LS_CONTROLLERS"},
			end: func(w *world) { w.Linstor.Start() },
		},
		"the kubelet alone is silent": {
			lose:   func(w *world) { w.SilenceKubelet(nodeA) },
			reason: failover.PrimaryHealthy, words: []string{"kubelet has been silent", "LINSTOR hears the node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				before := w.pod("db-0")
				tc.lose(w)
				w.pass(time.Minute)
				w.wantStill(before)
				notes := p.events.notes(tc.reason, "db-0")
				if len(notes) != 1 || !containsAll(notes[0], tc.words) {
					t.Fatalf("a minute later the pod is told %s by %q, want once, with %q: %v", tc.reason, notes, tc.words, p.events.events)
				}
				w.pass(10 * time.Minute)
				if told := p.events.reasons("Pod", "db-0"); len(told) > 3 || len(p.events.notes(tc.reason, "db-0")) != 1 {
					t.Errorf("ten minutes later the pod has been told %v", told)
				}
				if told := p.events.reasons("Pod", "other-0"); len(told) > 0 {
					t.Errorf("a pod that is not selected is told %v", told)
				}
				if tc.end != nil {
					tc.end(w)
					w.until(3*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				}
			})
		})
	}
}

// A webhook rejects the detach: the pods on the lost node are gone, and it is the replacement that is told why it waits.
func TestTheReplacementIsToldWhyItsVolumeIsNotDetached(t *testing.T) {
	cfg := defaults()
	cfg.FastDetach = false
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.rejects(writes[4])
		w.Crash(nodeA)
		w.untilRemoved(time.Minute, "db-0")
		w.pass(time.Minute)
		replacement := w.pod("db-0")
		if replacement == nil || replacement.Spec.NodeName != nodeB {
			t.Fatalf("there is no replacement on B: %+v", replacement)
		}
		notes := p.events.notes(failover.StepFailed, "db-0")
		if len(notes) != 1 || !strings.Contains(notes[0], wordsOfTheWebhook) {
			t.Errorf("the replacement is told %q", notes)
		}
		w.API.Fail(nil)
		w.until(3*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// The attachment cannot be read, and now and then neither can whether fail-over is paused. What the pod was told is not forgotten.
func TestAPodIsToldOnceOfEachThingThatCannotBeRead(t *testing.T) {
	cfg := defaults()
	cfg.PauseDeployment = types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		var asked atomic.Int64
		w.ofController(func(r apimodel.Request) error {
			if r.Verb != apimodel.VerbGet || r.Kind != "VolumeAttachment" && (r.Kind != "Deployment" || asked.Add(1)%20 != 0) {
				return nil
			}
			return apierrors.NewServerTimeout(schema.GroupResource{Resource: strings.ToLower(r.Kind)}, string(r.Verb), 1)
		})
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		told := p.events.reasons("Pod", "db-0")
		slices.Sort(told)
		if want := []string{string(failover.Paused), string(failover.StepFailed)}; !slices.Equal(told, want) {
			t.Errorf("the pod is told %v, want %v", told, want)
		}
		w.API.Fail(nil)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// A pod has two volumes on the lost node. It is told once of what holds both up.
func TestAPodWithTwoVolumesIsToldOnce(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.volume("log")
		w.workload("db", selected, func(wl *virtual.Workload) { wl.Claims = append(wl.Claims, "data-log") })
		w.pass(time.Minute)
		w.Crash(nodeT)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		if told := p.events.notes(failover.NoSurvivor, "db-0"); len(told) != 1 {
			t.Errorf("told %q, want it once", told)
		}
	})
}

// An affinity controller deletes the PersistentVolume of a pod that waits, and creates it anew. The pod is told as soon as any other one.
func TestAPodIsToldInTimeAlthoughItsPersistentVolumeIsMadeAnew(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeT)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(30 * time.Second)
		pv := read[corev1.PersistentVolume](w, "", "db")
		w.must(w.Client().Delete(w.ctx, pv.DeepCopy()))
		w.pass(time.Second)
		pv.ResourceVersion, pv.UID = "", ""
		w.must(w.Client().Create(w.ctx, pv))
		w.until(15*time.Second, "the pod is told", func() bool { return len(p.events.notes(failover.NoSurvivor, "db-0")) == 1 })
		w.must(w.Client().Delete(w.ctx, pv))
		w.must(w.Client().Delete(w.ctx, w.attachment("db", nodeA)))
		w.pass(time.Second)
		for _, line := range (&Memory{p.parts}).Lines() {
			if strings.Contains(line, "volume db") {
				t.Errorf("remembered of a volume that is gone and not attached: %s", line)
			}
		}
	})
}

// LINSTOR restarts while all is well, and a node is cut off for a moment: nobody is told anything.
func TestNothingIsExplainedWhileAllIsWell(t *testing.T) {
	for name, disturb := range map[string]func(w *world){
		"LINSTOR is away for a minute": func(w *world) { w.Linstor.Stop(); w.pass(time.Minute); w.Linstor.Start() },
		"a satellite restarts": func(w *world) {
			w.Linstor.CutSatellite(nodeA)
			w.pass(20 * time.Second)
			w.Linstor.RestoreSatellite(nodeA)
		},
		"a node without the pod crashes": func(w *world) { w.Crash(nodeT) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				disturb(w)
				w.pass(2 * time.Minute)
				if told := p.events.reasons("Pod", "db-0"); len(told) > 0 {
					t.Errorf("the pod is told %v", told)
				}
				if left := (&Memory{p.parts}).Lines(); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

// The leader changes while a loss waits. The next one counts anew, and tells by itself.
func TestTheNextLeaderExplainsAnew(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		first, second := w.startProcess("one", cfg), w.startProcess("two", cfg)
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeT)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(20 * time.Second)
		first.stops()
		second.leads()
		w.pass(25 * time.Second)
		if told := slices.Concat(first.events.notes(failover.NoSurvivor, "db-0"), second.events.notes(failover.NoSurvivor, "db-0")); len(told) > 0 {
			t.Errorf("told too early: %q", told)
		}
		w.pass(15 * time.Second)
		if told := second.events.notes(failover.NoSurvivor, "db-0"); len(told) != 1 {
			t.Errorf("the next leader has told %q, want it once", told)
		}
	})
}

// Two PersistentVolumes of one handle share their pods, and what is said of them.
func TestTwoVolumesOfOneHandleTellEachPodOnce(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.volume("twin", func(v *virtual.Volume) { v.Handle = "pvc-db" })
		w.workload("twin", selected)
		w.pass(time.Minute)
		w.Crash(nodeT)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(time.Minute)
		for _, pod := range []string{"db-0", "twin-0"} {
			if told := p.events.reasons("Pod", pod); len(told) != 1 {
				t.Errorf("%s is told %v, want one thing", pod, told)
			}
		}
	})
}
