package controllers

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// withHelper is a scene in which the workload "db" is a virtual machine, into which the volume "hot" was plugged: a helper pod of KubeVirt
// holds it.
func withHelper(t *testing.T, labels map[string]string, tell func(w *world, p *process)) {
	t.Helper()
	scene(t, func(w *world, p *process) {
		w.volume("hot")
		all := map[string]string{"kubevirt.io": "hotplug-disk"}
		maps.Copy(all, labels)
		w.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "db-0", Claims: []string{"data-hot"}, Labels: all})
		w.pass(2 * time.Minute)
		w.wantRunning("hp", nodeA)
		tell(w, p)
	})
}

// label follows the remedy for the pod that there is.
func (w *world) label(name string) {
	w.Helper()
	pod := w.pod(name)
	patch := client.MergeFrom(pod.DeepCopy())
	maps.Copy(pod.Labels, selected)
	w.must(w.API.Client("person").Patch(w.ctx, pod, patch))
}

func (w *world) wantTold(p *process, pod string) {
	w.Helper()
	note := p.events.note(string(failover.HelperNotSelected), "Pod", pod)
	for _, part := range []string{"default/hp", "volume hot", "linstor.csi.linbit.com/on-storage-lost=remove"} {
		if !strings.Contains(note, part) {
			w.Errorf("pod %s is not told of %q: %q", pod, part, note)
		}
	}
}

func TestAHelperThatIsNotSelectedIsNamedBeforeALoss(t *testing.T) {
	withHelper(t, nil, func(w *world, p *process) {
		w.wantTold(p, "db-0")
		w.wantTold(p, "hp")
		if n := unprotected(t, p, failover.HelperNotSelected); n != 1 {
			t.Errorf("%g pods are unprotected by the metric, want the helper", n)
		}
		w.pass(time.Hour)
		if n := p.events.count(string(failover.HelperNotSelected), "db-0"); n != 1 {
			t.Errorf("the pod was told %d times, want once", n)
		}
		w.label("hp")
		w.pass(2 * time.Minute)
		if n := unprotected(t, p, failover.HelperNotSelected); n != 0 {
			t.Errorf("%g pods are unprotected by the metric, want none", n)
		}
	})
}

func TestHelpersThatCannotBeReadAreStillThere(t *testing.T) {
	withHelper(t, nil, func(w *world, p *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if r.Verb == apimodel.VerbList && r.Kind == "Pod" {
				return errors.New("the API is busy")
			}
			return nil
		})
		w.pass(5 * time.Minute)
		if n := unprotected(t, p, failover.HelperNotSelected); n != 1 {
			t.Errorf("%g pods are unprotected by the metric, want the helper", n)
		}
		w.API.Fail(nil)
		w.pass(5 * time.Minute)
		if n := p.events.count(string(failover.HelperNotSelected), "hp"); n != 1 {
			t.Errorf("the helper was told %d times, want once", n)
		}
	})
}

// DRBD is cut from the peers: both volumes are lost, and the node lives.
func TestTheVolumeOfASelectedHelperFollowsOffANodeThatLives(t *testing.T) {
	withHelper(t, selected, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(2*time.Minute, "all runs on B", func() bool { return w.runs("db-0", nodeB) && w.runs("hp", nodeB) })
	})
}

func TestTheVolumeOfAHelperThatIsNotSelectedStaysAttachedAndThatIsTold(t *testing.T) {
	withHelper(t, nil, func(w *world, p *process) {
		before := w.pod("db-0").UID
		w.Crash(nodeA)
		w.until(40*time.Second, "the virtual machine runs on B", func() bool { return w.runs("db-0", nodeB) })
		if w.pod("db-0").UID == before {
			t.Fatal("the pod was not replaced")
		}
		w.pass(time.Minute)
		if w.runs("hp", nodeB) || w.attachment("hot", nodeA) == nil {
			t.Fatal("the volume is not held up")
		}
		if n := p.events.count(string(failover.HelperNotSelected), "db-0"); n != 2 {
			t.Errorf("the pods of the virtual machine were told %d times, want each once", n)
		}
		w.label("hp")
		w.until(30*time.Second, "the helper has the volume on B", func() bool { return w.runs("hp", nodeB) })
	})
}

func TestTheVolumeOfAHelperThatIsSelectedFollows(t *testing.T) {
	withHelper(t, selected, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(40*time.Second, "all runs on B", func() bool { return w.runs("db-0", nodeB) && w.runs("hp", nodeB) })
		if p.events.has(string(failover.HelperNotSelected), "Pod", "db-0") {
			t.Error("the pod was told of a helper that is selected")
		}
	})
}

// Whoever exempts a virtual machine does not want its disks to be taken from under it.
func TestTheHelperOfAnExemptPodStays(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		owner  func(*virtual.Workload)
		moves  bool
	}{
		"the pod is exempt":                       {selected, exempt, false},
		"the pod is exempt, and not selected":     {nil, exempt, false},
		"the pod is not exempt":                   {selected, func(*virtual.Workload) {}, true},
		"the pod is neither exempt, nor selected": {nil, func(*virtual.Workload) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.volume("own")
				w.volume("hot")
				w.workload("own", c.labels, c.owner)
				w.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "own-0", Claims: []string{"data-hot"}, Labels: maps.Clone(selected)})
				w.pass(2 * time.Minute)
				w.wantRunning("hp", nodeA)
				before := w.pod("hp")
				w.Crash(nodeA)
				w.pass(time.Minute)
				// Where its owner goes first, the garbage collector may remove the helper before the controller does.
				after := w.pod("hp")
				if gone := after == nil || after.UID != before.UID; gone != c.moves {
					verdict, reason := p.said("hot", nodeA)
					t.Errorf("the helper is gone: %t, want %t (%s %s)", gone, c.moves, verdict, reason)
				}
			})
		})
	}
}

// What is not the helper of a selected pod is nobody's concern.
func TestOtherHelpersAreNotNamed(t *testing.T) {
	hotPlugged := map[string]string{"kubevirt.io": "hotplug-disk"}
	cases := map[string]func(*world){
		"its owner is not selected": func(w *world) {
			w.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "other-0", Claims: []string{"data-hot"}, Labels: hotPlugged})
		},
		"its owner is exempt": func(w *world) {
			w.volume("exempt")
			w.workload("exempt", selected, exempt)
			w.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "exempt-0", Claims: []string{"data-hot"}, Labels: hotPlugged})
		},
		"it has no volume of the driver": func(w *world) {
			w.AddWorkload(virtual.Workload{Name: "hp", HelperOf: "db-0", Labels: hotPlugged})
		},
		"another controller owns it": func(w *world) {
			w.AddWorkload(virtual.Workload{Name: "hp", Claims: []string{"data-hot"}, Labels: hotPlugged, Nodes: []string{nodeA}})
		},
	}
	for name, arrange := range cases {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.volume("hot")
				arrange(w)
				w.pass(3 * time.Minute)
				if n := unprotected(t, p, failover.HelperNotSelected); n != 0 {
					t.Errorf("%g helpers are named", n)
				}
				for _, pod := range []string{"db-0", "other-0", "exempt-0", "hp"} {
					if p.events.has(string(failover.HelperNotSelected), "Pod", pod) {
						t.Errorf("pod %s is told of a helper", pod)
					}
				}
			})
		})
	}
}

// The owner is another pod by now, has another node, or the helper has ended.
func TestOnlyTheHelperOfAPodOnItsNodeIsMissed(t *testing.T) {
	withHelper(t, nil, func(w *world, p *process) {
		cases := map[string]struct {
			change func(*corev1.Pod)
			missed bool
		}{
			"a helper":                              {func(*corev1.Pod) {}, true},
			"the helper of an earlier pod":          {func(h *corev1.Pod) { h.OwnerReferences[0].UID = "earlier" }, false},
			"a helper on another node":              {func(h *corev1.Pod) { h.Spec.NodeName = nodeB }, false},
			"a helper that has ended":               {func(h *corev1.Pod) { h.Status.Phase = corev1.PodSucceeded }, false},
			"a helper that is selected":             {func(h *corev1.Pod) { h.Labels = selected }, false},
			"a pod that the owner does not control": {func(h *corev1.Pod) { h.OwnerReferences[0].Controller = nil }, false},
		}
		for name, c := range cases {
			helper := w.pod("hp")
			c.change(helper)
			owner, err := p.parts.node.pods.MissedBy(w.ctx, helper)
			w.must(err)
			if (owner != nil) != c.missed {
				t.Errorf("%s: missed by %v", name, owner)
			}
		}
	})
}

// A helper holds its volume by its claim, and its owner by name and UID: the cache of pods keeps both.
func TestTheCacheKnowsTheOwnerOfAHelper(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "launcher", UID: "uid-1", Controller: new(true)}}
	if _, err := cluster.Trim(nil)(pod); err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.Name != "launcher" || owner.UID != "uid-1" {
		t.Errorf("owner %+v", owner)
	}
}

// note returns what an Event of that reason on an object says.
func (l *eventLog) note(reason, kind, name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.reason == reason && e.kind == kind && e.name == name {
			return e.note
		}
	}
	return ""
}

// how often an object was told something.
func (l *eventLog) count(reason, name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.reason == reason && e.name == name {
			n++
		}
	}
	return n
}
