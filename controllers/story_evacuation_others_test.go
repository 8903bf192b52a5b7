package controllers

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// taintWith adds a taint to a node.
func (e *evacuating) taintWith(node, key string, effect corev1.TaintEffect) {
	e.Helper()
	e.editNode(node, func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) })
}

// An only copy never goes to a node that an autoscaler may delete, or that repels pods for a reason that the controller does not know.
func TestNoCopyGoesToANodeThatMayBeDeleted(t *testing.T) {
	for key, test := range map[string]struct {
		effect corev1.TaintEffect
		copied bool
	}{
		"ToBeDeletedByClusterAutoscaler":        {corev1.TaintEffectNoSchedule, false},
		"DeletionCandidateOfClusterAutoscaler":  {corev1.TaintEffectPreferNoSchedule, false},
		"karpenter.sh/disrupted":                {corev1.TaintEffectNoSchedule, false},
		"karpenter.sh/disruption":               {corev1.TaintEffectNoSchedule, false},
		"example.com/unknown":                   {corev1.TaintEffectNoSchedule, false},
		"example.com/preference":                {corev1.TaintEffectPreferNoSchedule, true},
		"node-role.kubernetes.io/control-plane": {corev1.TaintEffectNoSchedule, true},
	} {
		t.Run(key, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
				e.volume("local", onlyOnA)
				for _, node := range []string{nodeB, nodeT} {
					e.must(e.Cordon(e.ctx, node, true))
				}
				e.taintWith(nodeC, key, test.effect)
				e.pass(2 * time.Minute)
				e.taint(nodeA, "last-copies")
				e.pass(time.Minute)
				if copied := e.onDisksAtLeast("local", nodeC); copied != test.copied {
					t.Errorf("the copy is there: %t, and the node is %s", copied, e.says(nodeA, evacuation.StorageSafe))
				}
			})
		})
	}
}

// An autoscaler begins to delete the node of the copy: the other node may not be switched off any more.
func TestACopyOnANodeThatIsBeingDeletedIsNone(t *testing.T) {
	for _, key := range []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"} {
		t.Run(key, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
				e.volume("db")
				e.pass(2 * time.Minute)
				e.taint(nodeA, "last-copies")
				e.safe(nodeA, time.Minute)
				e.taintWith(nodeB, key, corev1.TaintEffectNoSchedule)
				e.until(time.Minute, "another copy is made", func() bool {
					return e.told(evacuation.Autoplace, "pvc-db") == 1 && e.says(nodeA, evacuation.StorageSafe) != ""
				})
				e.safe(nodeA, 2*time.Minute)
				if !e.onDisksAtLeast("db", nodeA, nodeB) || len(e.Linstor.DiskNodes("pvc-db")) != 3 {
					t.Errorf("the disks are on %v", e.Linstor.DiskNodes("pvc-db"))
				}
			})
		})
	}
}

// A pod writes with DRBD's protocol A, by which a write is done before the copy has it: the node is safe only once it is drained.
func TestANodeIsNotSafeWhileAPodWritesAsynchronously(t *testing.T) {
	for name, set := range map[string]func(*linstorsim.Server){
		"by the definition": func(l *linstorsim.Server) { l.SetDefinitionProperty("pvc-db", "DrbdOptions/Net/protocol", "A") },
		"by LINSTOR":        func(l *linstorsim.Server) { l.SetControllerProperty("DrbdOptions/Net/protocol", "B") },
	} {
		t.Run(name, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
				e.volume("db")
				set(e.Linstor)
				e.workload("db", selected)
				e.pass(2 * time.Minute)
				e.taint(nodeA, "last-copies")
				for range 60 {
					e.pass(time.Second)
					if got := e.says(nodeA, evacuation.StorageSafe); strings.HasPrefix(got, "True") {
						t.Fatalf("the node is %s", got)
					}
				}
				e.drained(nodeA)
				e.safe(nodeA, time.Minute)
			})
		})
	}
}

// A volume of which its group wants one disk leaves a node, and there is place for a tie-breaker: the node is told why its quorum goes.
func TestANodeIsToldTheTrueReasonWhyQuorumIsSwitchedOff(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{PlaceCount: 1})
		e.volume("local", onlyOnA)
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.gone(nodeA, 10*time.Minute)
		p.events.mu.Lock()
		defer p.events.mu.Unlock()
		for _, event := range p.events.events {
			if event.reason == EventQuorumWillBeOff && (strings.Contains(event.note, "tie-breaker") || !strings.Contains(event.note, "a single disk of volume local")) {
				t.Errorf("the node was told %q", event.note)
			}
		}
	})
}

// LINSTOR's auto-evict gives a node up while it is switched off: the node says what ends that, tainted or not, and returns once it is done.
func TestANodeThatLinstorEvictsSaysHowItReturns(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("db")
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, time.Minute)
		e.Crash(nodeA)
		e.pass(time.Minute)
		e.must(e.Linstor.Evict(nodeA))
		e.Return(nodeA)
		e.pass(time.Minute)
		for _, tainted := range []bool{true, false} {
			c := cluster.EvacuationConditions(e.node(nodeA)).Safe
			if c == nil || c.Reason != "Evicted" || !strings.Contains(c.Message, "linstor node restore node-a") {
				t.Errorf("tainted: %t, the node is %+v", tainted, c)
			}
			e.untaint(nodeA)
			e.pass(30 * time.Second)
		}
		e.must(e.Linstor.RestoreNode(nodeA))
		e.returned(nodeA)
	})
}

// The watches of the leader are dead when somebody says that the node of the copy is switched off: the other one is not called safe any more.
func TestANodeIsNotCalledSafeByADeadWatch(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, time.Minute)
		p.view.Pause()
		defer p.view.Resume()
		for _, node := range []string{nodeT, nodeC} {
			e.must(e.Cordon(e.ctx, node, true))
		}
		e.taintWith(nodeB, "node.cloudprovider.kubernetes.io/shutdown", corev1.TaintEffectNoSchedule)
		e.pass(evacuation.Interval + 2*time.Second)
		if got := e.says(nodeA, evacuation.StorageSafe); strings.HasPrefix(got, "True") {
			t.Errorf("the node is %s", got)
		}
	})
}

// claims has a node say that it was asked to leave, as its kubelet may, and that it is another one in LINSTOR.
func (e *evacuating) claims(node, satellite string) {
	e.Helper()
	e.editNode(node, func(n *corev1.Node) {
		at := time.Now().Add(-time.Hour)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, cluster.AnnotationEvacuation, evacuation.Progress{Since: at, Asked: &at, Asks: 1}.String())
	})
	var drivers storagev1.CSINode
	e.must(e.Client().Get(e.ctx, client.ObjectKey{Name: node}, &drivers))
	drivers.Spec.Drivers[0].NodeID = satellite
	e.must(e.Client().Update(e.ctx, &drivers))
}

// A person evacuates node A in LINSTOR, and a kubelet annotates its node as if the controller had done so: the next leader restores no node by that.
func TestAnAnnotationAloneRestoresNoNode(t *testing.T) {
	for name, annotated := range map[string]string{"its own": nodeA, "another one that poses as it": nodeB} {
		t.Run(name, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, p *process) {
				e.volume("db")
				e.pass(2 * time.Minute)
				e.must(e.Linstor.Evacuate(nodeA))
				p.stops()
				e.claims(annotated, nodeA)
				e.next.leads()
				e.pass(5 * time.Minute)
				if e.told(evacuation.Restore, "") > 0 || !slices.Contains(e.flags(nodeA), "EVACUATE") {
					t.Errorf("LINSTOR was told %v", e.calls)
				}
			})
		})
	}
}

// A kubelet poses in LINSTOR as a node that the controller has evacuated: nobody restores that one while it is unknown which it is.
func TestANodeOfTwoNamesakesIsUnknown(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("db")
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.until(10*time.Minute, "LINSTOR is told", func() bool { return e.told(evacuation.Evacuate, nodeA) > 0 })
		e.claims(nodeB, nodeA)
		e.pass(time.Minute)
		if e.told(evacuation.Restore, "") > 0 {
			t.Errorf("LINSTOR was told %v", e.calls)
		}
		if got := e.says(nodeA, evacuation.StorageSafe); got != "False NotASatellite" {
			t.Errorf("the node is %s", got)
		}
		e.claims(nodeB, nodeB)
		e.gone(nodeA, 10*time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// late has LINSTOR begin to evacuate node A only so much later, and not answer who asks for that.
func (e *evacuating) late(begins time.Duration) {
	e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/evacuate") {
			return e.note(w, r)
		}
		e.note(w, r)
		time.AfterFunc(begins, func() {
			late := httptest.NewRequestWithContext(e.ctx, http.MethodPut, r.URL.Path, http.NoBody)
			e.Linstor.Intercept(e.note)
			e.Linstor.ServeHTTP(httptest.NewRecorder(), late)
		})
		hold(r, time.Hour)
		return true
	})
}

// LINSTOR begins to evacuate the node when it is to stay by then: its flag is taken back, and it returns.
func TestAFlagThatComesLateIsTakenBack(t *testing.T) {
	stays := map[string]func(*evacuating){
		"the taint is gone":            func(e *evacuating) { e.untaint(nodeA) },
		"the taint asks for copies":    func(e *evacuating) { e.taint(nodeA, "last-copies") },
		"the taint goes after a while": func(e *evacuating) { e.taint(nodeA, "last-copies"); e.pass(100 * time.Second); e.untaint(nodeA) },
	}
	for name, test := range map[string]struct {
		begins  time.Duration
		changes bool
	}{
		"after half a minute and with another leader": {30 * time.Second, true},
		"after two minutes and a half":                {150 * time.Second, false},
		"after eight minutes and with another leader": {8 * time.Minute, true},
	} {
		for why, stay := range stays {
			t.Run(name+", and "+why, func(t *testing.T) {
				inEvacuation(t, defaults(), func(e *evacuating, p *process) {
					e.volume("db")
					e.pass(2 * time.Minute)
					e.late(test.begins)
					e.taint(nodeA, "")
					e.until(2*time.Minute, "LINSTOR is told", func() bool { return e.told(evacuation.Evacuate, nodeA) > 0 })
					if test.changes {
						p.stops()
						e.next.leads()
					}
					e.pass(5 * time.Second)
					stay(e)
					e.pass(test.begins + 2*time.Minute)
					if flags := e.flags(nodeA); slices.Contains(flags, "EVACUATE") || e.told(evacuation.Restore, nodeA) == 0 {
						t.Errorf("the node has %v, and LINSTOR was told %v", flags, e.calls)
					}
					e.untaint(nodeA)
					e.returned(nodeA)
					e.pass(12 * time.Minute)
					if owner := e.owner(nodeA); owner != "" {
						t.Errorf("LINSTOR still says that %s has the node evacuated", owner)
					}
				})
			})
		}
	}
}

// owner is which cluster has LINSTOR evacuate a node, as LINSTOR says.
func (e *evacuating) owner(node string) string {
	e.Helper()
	var n struct {
		Props map[string]string `json:"props"`
	}
	e.ask("/v1/nodes/"+node, &n)
	return n.Props[evacuation.PropMark]
}

// The leader before had a clock that is a day ahead: LINSTOR is told again all the same.
func TestAClockThatIsADayAheadStallsNothing(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.workload("db", selected)
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.safe(nodeA, time.Minute)
		p.stops()
		e.editNode(nodeA, func(n *corev1.Node) {
			progress, _ := cluster.EvacuationProgress(n)
			at := time.Now().Add(24 * time.Hour)
			progress.Asked, progress.Asks = &at, 1
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, cluster.AnnotationEvacuation, progress.String())
		})
		e.next.leads()
		e.drained(nodeA)
		e.gone(nodeA, 15*time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// LINSTOR sets the mark of a copy minutes after it was told, when the node has returned: the mark is taken off.
func TestAMarkThatComesLateIsTakenOff(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("local", onlyOnA)
		e.pass(2 * time.Minute)
		var set atomic.Bool
		e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/pvc-local") {
				return e.note(w, r)
			}
			body, _ := io.ReadAll(r.Body)
			time.AfterFunc(150*time.Second, func() {
				late := httptest.NewRequestWithContext(e.ctx, http.MethodPut, r.URL.Path, bytes.NewReader(body))
				e.Linstor.Intercept(e.note)
				e.Linstor.ServeHTTP(httptest.NewRecorder(), late)
				set.Store(e.props("pvc-local")[evacuation.PropMark] != "")
			})
			hold(r, time.Hour)
			return true
		})
		e.taint(nodeA, "last-copies")
		e.pass(20 * time.Second)
		e.untaint(nodeA)
		e.until(5*time.Minute, "the mark is set", set.Load)
		e.unmarked("pvc-local", 6*time.Minute)
	})
}

// Another Kubernetes cluster uses the same LINSTOR, and evacuates a node of its own: what it has written into LINSTOR stays.
func TestWhatAnotherClusterHasWrittenStays(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.Linstor.SetDefinitionProperty("pvc-db", evacuation.PropMark, "node-x@other")
		e.Linstor.SetDefinitionProperty("pvc-db", evacuation.PropBalance, "false")
		e.must(e.Linstor.SetNodeProperty(nodeT, evacuation.PropMark, "other"))
		e.Linstor.SetNodeFlags(nodeT, linstorsim.FlagEvacuate)
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, time.Minute)
		e.untaint(nodeA)
		e.pass(time.Minute)
		p.stops()
		e.next.leads()
		e.pass(15 * time.Minute)
		if props := e.props("pvc-db"); props[evacuation.PropMark] != "node-x@other" || props[evacuation.PropBalance] != "false" {
			t.Errorf("the definition has %v", props)
		}
		if flags := e.flags(nodeT); !slices.Contains(flags, "EVACUATE") || e.owner(nodeT) != "other" {
			t.Errorf("the other cluster's node has %v, by %q", flags, e.owner(nodeT))
		}
	})
}

// Two installations of the controller run in one cluster: one evacuates, the other says so and does nothing.
func TestASecondInstallationStandsBack(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		cfg := defaults()
		cfg.Installation = "elsewhere/piraeus-ha-controller"
		second := e.startProcess("three", cfg)
		second.leads()
		e.volume("local", onlyOnA)
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.gone(nodeA, 10*time.Minute)
		writes := e.statusWrites()
		e.pass(5 * time.Minute)
		if n := e.statusWrites() - writes; n > 0 || e.told(evacuation.Autoplace, "") != 1 || e.told(evacuation.Evacuate, "") > 2 {
			t.Errorf("%d writes, and LINSTOR was told %v", n, e.calls)
		}
		first, other := len(eventsOf(p, nodeA, EventAnotherInstallation)), len(eventsOf(second, nodeA, EventAnotherInstallation))
		if first+other != 1 {
			t.Errorf("%d and %d Events say that there are two", first, other)
		}
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// A person wants LINSTOR to balance a volume, and it would remove the only copy within two hours: the node is not called safe before that.
func TestACopyThatAPersonLetsLinstorRemoveIsNotSafe(t *testing.T) {
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC}, balancing: true}, defaults(), func(e *evacuating, _ *process) {
		e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{PlaceCount: 1})
		e.volume("local", onlyOnA)
		e.Linstor.SetDefinitionProperty("pvc-local", evacuation.PropBalance, "true")
		e.pass(time.Hour)
		e.taint(nodeA, "last-copies")
		e.until(2*time.Minute, "there is a copy", func() bool { return len(e.Linstor.DiskNodes("pvc-local")) > 1 })
		for range 30 {
			e.pass(2 * time.Second)
			if got := e.says(nodeA, evacuation.StorageSafe); strings.HasPrefix(got, "True") {
				t.Fatalf("the node is %s", got)
			}
		}
		if got := e.props("pvc-local")[evacuation.PropBalance]; got != "true" {
			t.Errorf("what the person has set is %q now", got)
		}
	})
}
