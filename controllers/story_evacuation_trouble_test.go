package controllers

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// copying lets the copy of the only disk of "local" begin.
func (e *evacuating) copying(node string) {
	e.Helper()
	e.until(time.Minute, "a copy is on its way", func() bool {
		return e.says(node, evacuation.StorageSafe) == "False Copying" && len(e.Linstor.DiskNodes("pvc-local")) > 1
	})
}

// The node crashes while it is copied from: its pods fail over as ever, nobody asks LINSTOR for anything until it is back, and then it goes on.
func TestStoryOfACrashWhileCopying(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.copying(nodeA)
		e.Crash(nodeA)
		e.until(20*time.Second, "db-0 runs on B", func() bool { return e.runs("db-0", nodeB) })
		calls := len(e.calls)
		e.pass(10 * time.Minute)
		if got := e.says(nodeA, evacuation.StorageSafe); got != "Unknown SatelliteOffline" && got != "Unknown FailingOver" || len(e.calls) > calls {
			t.Errorf("the node is %s, and LINSTOR was told %v", got, e.calls[calls:])
		}
		e.Return(nodeA)
		e.safe(nodeA, 10*time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// The node crashes while it leaves.
func TestStoryOfACrashWhileLeaving(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		e.drained(nodeA)
		e.until(2*time.Minute, "LINSTOR is told", func() bool { return e.told(evacuation.Evacuate, nodeA) > 0 })
		e.Crash(nodeA)
		e.pass(10 * time.Minute)
		calls := len(e.calls)
		e.pass(10 * time.Minute)
		if got := e.says(nodeA, evacuation.StorageEvacuated); got != "Unknown SatelliteOffline" || len(e.calls) > calls {
			t.Errorf("the node is %s, and LINSTOR was told %v", got, e.calls[calls:])
		}
		e.Return(nodeA)
		e.gone(nodeA, 20*time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// The node of the copy crashes before the copy is done: another one is made. As long as the first one is away and has a vote, the volume would
// have no quorum without the node that is evacuated; then the node is safe.
func TestStoryOfATargetThatCrashes(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.copying(nodeA)
		target := slices.DeleteFunc(e.Linstor.DiskNodes("pvc-local"), func(n string) bool { return n == nodeA })[0]
		e.Crash(target)
		e.until(5*time.Minute, "another copy is there", func() bool { return e.says(nodeA, evacuation.StorageSafe) == "False QuorumWouldBeLost" })
		if disks := e.Linstor.DiskNodes("pvc-local"); len(disks) != 3 {
			t.Errorf("the disks are on %v, want one more beside that on %s", disks, target)
		}
		e.Return(target)
		e.safe(nodeA, 5*time.Minute)
	})
}

// LINSTOR may know nothing of what is there, such as after its database was restored: that it lists nothing does not say that nothing is left.
func TestStoryOfAViewThatIsEmpty(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.aFullNode()
		e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/view/resources" {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, "[]")
			}
			return r.URL.Path == "/v1/view/resources"
		})
		e.taint(nodeA, "")
		for range 12 {
			e.pass(evacuation.Interval)
			if safe, left := e.says(nodeA, evacuation.StorageSafe), e.says(nodeA, evacuation.StorageEvacuated); safe != "Unknown LinstorStale" || left != safe {
				t.Fatalf("the node is called %q and %q", safe, left)
			}
		}
		e.Linstor.Intercept(nil)
		e.copying(nodeA)
	})
}

// An old database may know some volumes and not others. One that nobody uses is attached nowhere, and may be on the node all the same, as long as
// somebody claims it.
func TestStoryOfAVolumeThatLinstorHasForgotten(t *testing.T) {
	for name, ends := range map[string]func(*evacuating, *corev1.PersistentVolume){
		"it is deleted": func(e *evacuating, pv *corev1.PersistentVolume) { e.must(e.Client().Delete(e.ctx, pv)) },
		"it is released": func(e *evacuating, pv *corev1.PersistentVolume) {
			before := pv.DeepCopy()
			pv.Status.Phase = corev1.VolumeReleased
			e.must(e.Client().Status().Patch(e.ctx, pv, client.MergeFrom(before)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
				e.volume("db")
				e.pass(time.Minute)
				backup := e.Linstor.Snapshot()
				e.volume("cold", onlyOnA)
				e.pass(time.Minute)
				e.Linstor.RestoreDatabase(backup)
				e.pass(time.Minute)
				e.taint(nodeA, "")
				for range 12 {
					e.pass(evacuation.Interval)
					if safe, left := e.says(nodeA, evacuation.StorageSafe), e.says(nodeA, evacuation.StorageEvacuated); safe != "Unknown LinstorStale" || left != safe {
						t.Fatalf("the node is called %q and %q", safe, left)
					}
				}
				if c := cluster.EvacuationConditions(e.node(nodeA)).Safe; !strings.Contains(c.Message, "cold") || len(e.calls) > 0 {
					t.Errorf("the node is %+v, and LINSTOR was told %v", c, e.calls)
				}
				e.untaint(nodeA)
				e.returned(nodeA)
				e.taint(nodeA, "")
				var pv corev1.PersistentVolume
				e.must(e.Client().Get(e.ctx, client.ObjectKey{Name: "cold"}, &pv))
				ends(e, &pv)
				e.gone(nodeA, 5*time.Minute)
			})
		})
	}
}

// An old database may know a volume's other replicas, and not the one that a pod uses there: it may have what was written last.
func TestStoryOfAReplicaThatLinstorHasForgotten(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker, v.Quorum = []string{nodeB, nodeC}, "", "off" })
		e.pass(time.Minute)
		backup := e.Linstor.Snapshot()
		e.workload("db", nil, onAnyNode)
		e.until(time.Minute, "db-0 runs on A", func() bool { return e.runs("db-0", nodeA) })
		e.Linstor.RestoreDatabase(backup)
		e.pass(time.Minute)
		e.taint(nodeA, "")
		for range 6 {
			e.pass(evacuation.Interval)
			if safe, left := e.says(nodeA, evacuation.StorageSafe), e.says(nodeA, evacuation.StorageEvacuated); safe != "Unknown LinstorStale" || left != safe {
				t.Fatalf("the node is called %q and %q", safe, left)
			}
		}
		if c := cluster.EvacuationConditions(e.node(nodeA)).Safe; !strings.Contains(c.Message, "db") {
			t.Errorf("the node is %+v", c)
		}
	})
}

// The disk on the node is not UpToDate, and its only peer is away: there is nothing to copy, and nothing is done.
func TestStoryOfNothingToCopy(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("db")
		e.pass(time.Minute)
		e.Crash(nodeB)
		e.pass(time.Minute)
		e.must(e.DRBD.SetDisk("pvc-db", nodeA, 0, "Inconsistent"))
		e.taint(nodeA, "")
		e.pass(20 * time.Minute)
		c := cluster.EvacuationConditions(e.node(nodeA)).Safe
		if c.Reason != evacuation.PeerOffline || !strings.Contains(c.Message, "db") || !strings.Contains(c.Message, nodeB) {
			t.Errorf("the node is %+v", c)
		}
		if len(e.calls) > 0 {
			t.Errorf("LINSTOR was told %v", e.calls)
		}
	})
}

// What the taint says is refused, or there is nothing to do it with. Nobody asks LINSTOR for anything.
func TestStoryOfRefusals(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.pass(time.Minute)
		for _, row := range []struct {
			value  string
			effect corev1.TaintEffect
			want   evacuation.Reason
		}{
			{"", corev1.TaintEffectNoExecute, evacuation.WrongEffect},
			{"last-copies", corev1.TaintEffectPreferNoSchedule, evacuation.WrongEffect},
			{"everything", corev1.TaintEffectNoSchedule, evacuation.UnknownMode},
		} {
			e.editNode(nodeA, func(n *corev1.Node) {
				n.Spec.Taints = append(withoutEvacuate(n.Spec.Taints), corev1.Taint{Key: evacuation.TaintKey, Value: row.value, Effect: row.effect})
			})
			e.pass(time.Minute)
			want := "False " + string(row.want)
			if safe, gone := e.says(nodeA, evacuation.StorageSafe), e.says(nodeA, evacuation.StorageEvacuated); safe != want || gone != want {
				t.Errorf("%s with the effect %s is %q and %q, want %q", row.value, row.effect, safe, gone, want)
			}
		}
		e.untaint(nodeA)
		e.returned(nodeA)
		if len(e.calls) > 0 {
			t.Errorf("LINSTOR was told %v", e.calls)
		}
		if got := eventsOf(p, nodeA, string(evacuation.WrongEffect), string(evacuation.UnknownMode)); len(got) != 2 {
			t.Errorf("the node was told %v", got)
		}
	})
}

// A node that LINSTOR does not know has nothing that could leave; one that is deleted is forgotten.
func TestStoryOfANodeThatIsGone(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.pass(time.Minute)
		stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}
		e.must(e.API.Client(virtual.ActorUser).Create(e.ctx, stranger))
		e.taint("stranger", "")
		e.until(time.Minute, "it is told", func() bool { return e.says("stranger", evacuation.StorageSafe) == "False NotASatellite" })
		e.must(e.API.Client(virtual.ActorUser).Delete(e.ctx, stranger))
		e.pass(5 * time.Minute)
		p.parts.evacuation.memory.mu.Lock()
		defer p.parts.evacuation.memory.mu.Unlock()
		if n := len(p.parts.evacuation.memory.nodes); n > 0 || len(e.calls) > 0 {
			t.Errorf("%d nodes are remembered, and LINSTOR was told %v", n, e.calls)
		}
	})
}

// In every state the taint may be taken off, and another process may take over: nothing is left, and nothing is done twice.
func TestStoryOfEveryState(t *testing.T) {
	reach := map[string]func(*evacuating){
		"copying":  func(e *evacuating) { e.copying(nodeA) },
		"draining": func(e *evacuating) { e.safe(nodeA, 2*time.Minute) },
		"leaving": func(e *evacuating) {
			e.safe(nodeA, 2*time.Minute)
			e.drained(nodeA)
			e.until(2*time.Minute, "LINSTOR is told", func() bool { return e.told(evacuation.Evacuate, nodeA) > 0 })
		},
		"evacuated": func(e *evacuating) {
			e.safe(nodeA, 2*time.Minute)
			e.drained(nodeA)
			e.gone(nodeA, 10*time.Minute)
		},
	}
	for state, to := range reach {
		for name, then := range map[string]func(*evacuating, *process){
			"the taint goes": func(e *evacuating, _ *process) { e.untaint(nodeA) },
			"another process leads": func(e *evacuating, p *process) {
				p.stops()
				e.next.leads()
				e.pass(5 * time.Minute)
				if n := e.told(evacuation.Autoplace, "pvc-local"); n > 1 {
					e.Errorf("%d copies were made", n)
				}
				if n := e.told(evacuation.Evacuate, nodeA); n > 2 {
					e.Errorf("LINSTOR was told %d times to evacuate the node", n)
				}
				e.untaint(nodeA)
			},
			"it goes while another process leads": func(e *evacuating, p *process) {
				p.stops()
				e.untaint(nodeA)
				e.next.leads()
			},
		} {
			t.Run(state+", and "+name, func(t *testing.T) {
				inEvacuation(t, defaults(), func(e *evacuating, p *process) {
					e.SetAffinityController(e.ctx, true)
					e.aFullNode()
					e.taint(nodeA, "")
					to(e)
					then(e, p)
					e.returned(nodeA)
				})
			})
		}
	}
}

// A node that was safe when it was switched off says nothing of the others: when another one crashes, its pods fail over as ever.
func TestStoryOfACrashWhileAnotherNodeIsOut(t *testing.T) {
	for name, tainted := range map[string]bool{"it was safe": true, "it was just switched off": false} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			cfg.MaxLostNodes = failover.Limit{Value: 1}
			inEvacuation(t, cfg, func(e *evacuating, _ *process) {
				e.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeC })
				e.workload("db", selected, func(w *virtual.Workload) { w.Nodes = []string{nodeB, nodeT} })
				e.pass(3 * time.Minute)
				e.wantRunning("db-0", nodeB)
				if tainted {
					e.taint(nodeA, "last-copies")
					e.safe(nodeA, time.Minute)
				}
				e.pass(3 * time.Minute)
				e.Crash(nodeA)
				e.pass(20 * time.Second)
				e.Crash(nodeB)
				e.pass(30 * time.Second)
				if moved := e.runs("db-0", nodeT); moved != tainted {
					t.Errorf("the pod has moved: %t", moved)
				}
			})
		})
	}
}

// While something holds the controller up, LINSTOR is told nothing, and the node says what.
func TestStoryOfADryRun(t *testing.T) {
	cfg := defaults()
	cfg.DryRun = true
	inEvacuation(t, cfg, func(e *evacuating, _ *process) {
		e.aFullNode()
		e.taint(nodeA, "")
		e.pass(5 * time.Minute)
		if got := e.says(nodeA, evacuation.StorageSafe); got != "False DryRun" || len(e.calls) > 0 {
			t.Errorf("the node is %s, and LINSTOR was told %v", got, e.calls)
		}
		if _, noted := e.node(nodeA).Annotations[cluster.AnnotationEvacuation]; noted {
			t.Error("a dry run notes an evacuation")
		}
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// A pod that was drained before its volume had a copy waits, and is told what for.
func TestStoryOfAPodThatWaitsForItsCopy(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.drained(nodeA)
		e.until(time.Minute, "the pod waits", func() bool { return e.pod("local-0") != nil && e.pod("local-0").Spec.NodeName == "" })
		e.taint(nodeA, "last-copies")
		e.until(3*time.Minute, "the pod runs elsewhere", func() bool {
			pod := e.pod("local-0")
			return pod.Spec.NodeName != "" && pod.Spec.NodeName != nodeA && pod.Status.Phase == corev1.PodRunning
		})
		if got := p.events.reasons("Pod", "local-0"); !slices.Contains(got, string(evacuation.Copying)) {
			t.Errorf("the pod was told %v", got)
		}
	})
}

// refuses has LINSTOR answer 500 to calls with that end of their path, and returns what ends that.
func (e *evacuating) refuses(method, pathEnds string) (ends func()) {
	e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		e.note(w, r)
		if r.Method != method || !strings.HasSuffix(r.URL.Path, pathEnds) {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `[{"ret_code":-4611686018427387000,"message":"the database is locked"}]`)
		return true
	})
	return func() { e.Linstor.Intercept(e.note) }
}

// What LINSTOR refuses when a node returns it is told again later and later; meanwhile nobody calls the node safe, and it says why.
func TestStoryOfAReturnThatLinstorRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		call evacuation.Call
		path string
	}{
		"to restore the node":   {evacuation.Restore, "/restore"},
		"to take the marks off": {evacuation.Properties, "/pvc-local"},
	} {
		t.Run(name, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
				e.SetAffinityController(e.ctx, true)
				e.aFullNode()
				e.taint(nodeA, "")
				e.safe(nodeA, 2*time.Minute)
				if test.call == evacuation.Restore {
					e.drained(nodeA)
					e.until(2*time.Minute, "LINSTOR is told", func() bool { return e.told(evacuation.Evacuate, nodeA) > 0 })
				}
				ends := e.refuses(http.MethodPut, test.path)
				before := e.told(test.call, "")
				e.untaint(nodeA)
				e.until(5*time.Second, "it says what LINSTOR says", func() bool {
					c := cluster.EvacuationConditions(e.node(nodeA)).Safe
					return c != nil && c.Status == evacuation.StatusUnknown && c.Reason == evacuation.LinstorRefuses && strings.Contains(c.Message, "database is locked")
				})
				e.pass(19 * time.Minute)
				if n := e.told(test.call, "") - before; n != 6 {
					t.Errorf("LINSTOR was told %d times in 19 minutes, want at once and after 10 s, 1, 2, 5 and 10 min", n)
				}
				ends()
				e.pass(9 * time.Minute)
				e.returned(nodeA)
			})
		})
	}
}

// The API takes so long to note that LINSTOR is to be told that it is not told any more: all may be different by then. Whoever sets the flag
// then, it is not ours.
func TestStoryOfACallThatIsNotSent(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		e.API.Delay(func(r apimodel.Request) time.Duration {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
				return 3 * time.Second
			}
			return 5 * time.Millisecond
		})
		e.drained(nodeA)
		noted := 0
		for range 60 {
			e.pass(time.Second)
			if progress, _ := cluster.EvacuationProgress(e.node(nodeA)); progress.Asked != nil {
				noted++
			}
		}
		if e.told(evacuation.Evacuate, "") > 0 || noted == 0 || noted > 30 {
			t.Errorf("LINSTOR was told %v, and the node says for %d s of a minute that it was told", e.calls, noted)
		}
		e.API.Delay(nil)
		e.gone(nodeA, 10*time.Minute)
	})
}

// The taint goes between the note and the call.
func TestStoryOfATaintThatGoesAtTheLastMoment(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		untainted := false
		e.API.OnChange(func(c apimodel.Change) {
			node, ok := c.New.(*corev1.Node)
			if !ok || untainted || node.Name != nodeA {
				return
			}
			if progress, _ := cluster.EvacuationProgress(node); progress.Asked != nil {
				untainted = true
				e.untaint(nodeA)
			}
		})
		e.drained(nodeA)
		e.returned(nodeA)
		if e.told(evacuation.Evacuate, "") > 0 || e.told(evacuation.Restore, "") > 0 {
			t.Errorf("LINSTOR was told %v", e.calls)
		}
	})
}
