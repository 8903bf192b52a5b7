package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// cutOff takes a node off all networks. It runs on, and so do its pods.
func (w *world) cutOff(node string) {
	w.unplug(node)
	w.SilenceKubelet(node)
}

// wantWriting fails the story unless the node can write the volume "db", and nothing has been moved for that.
func (w *world) wantWriting(node string) {
	w.Helper()
	if !w.DRBD.CanWrite("pvc-db", node) {
		w.Fatalf("%s should be able to write", node)
	}
	w.wantUntouched()
}

// wantSaid fails the story unless the process has said last that it does nothing about "db" for one of the reasons.
func (p *process) wantSaid(node string, reasons ...failover.Reason) {
	p.world.Helper()
	_, said := p.said("db", node)
	if slices.Contains(reasons, said) {
		return
	}
	p.world.Errorf("said %q of the volume, want one of %q", said, reasons)
}

// quorumStory is one about a node that goes on with quorum off whatever LINSTOR shows.
type quorumStory struct {
	// before is what happens while A is well, after what happens once it is cut off, some time after that.
	before, after func(w *world)
	wait          time.Duration
	// twin makes all nodes run what LINSTOR shows before A is cut off; nil where there is no such twin.
	twin func(w *world)
	// controller is the quorum that is set on the controller; empty where it is set on the definition.
	controller string
}

// begin makes the volume "db" with quorum off, and its workload.
func (s quorumStory) begin(w *world) {
	off := func(v *virtual.Volume) { v.Quorum = "off" }
	if s.controller != "" {
		w.Linstor.SetControllerProperty(linstorsim.PropQuorum, s.controller)
		off = func(*virtual.Volume) {}
	}
	w.volume("db", off)
	w.workload("db", selected)
	w.pass(time.Minute)
}

func wantMajority(w *world) {
	w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropQuorum, "majority")
}

// restarted lets every satellite leave LINSTOR and come back, one after the other, and a minute pass.
func restarted(w *world) {
	for _, node := range []string{nodeA, nodeB, nodeT} {
		w.Linstor.SetAdjustFault(node, "pvc-db", linstorsim.AdjustWorks)
		w.Linstor.StopSatellite(node)
		w.pass(2 * time.Second)
		w.Linstor.RestoreSatellite(node)
		w.pass(20 * time.Second)
	}
	w.pass(80 * time.Second)
}

func quorumStories() map[string]quorumStory {
	nothing := func(*world) {}
	lose := func(w *world) { w.must(w.Linstor.LoseNode(nodeA)) }
	stories := map[string]quorumStory{
		"an admin switches quorum on while the node is cut off": {before: nothing, after: wantMajority, wait: time.Minute},
		"the node is lost in LINSTOR while it is cut off":       {before: nothing, after: lose, wait: 20 * time.Second},
		"quorum is switched on while the node is cut off, and it is lost": {
			before: nothing, wait: 20 * time.Second, after: func(w *world) { wantMajority(w); w.pass(5 * time.Second); lose(w) },
		},
		"quorum is set on the controller, of which no satellite is told": {
			before:     func(w *world) { w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "majority") },
			controller: "off", after: nothing, twin: restarted,
		},
		"quorum is set on the definition, and the node fails to apply it": {
			before: func(w *world) {
				w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustFailsAtOptions)
				wantMajority(w)
			}, after: nothing, twin: restarted,
		},
		"quorum is set on the definition, and the node hangs on it": {
			before: func(w *world) {
				w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustHangs)
				wantMajority(w)
			}, after: nothing, twin: restarted,
		},
		"LINSTOR's database is restored to a time before the replica came": {
			before: nothing, wait: 20 * time.Second, after: func(w *world) {
				wantMajority(w)
				w.pass(5 * time.Second)
				lose(w)
				w.pass(5 * time.Second)
				w.Linstor.RestoreDatabase(w.Linstor.Snapshot())
			},
		},
	}
	for seconds := range 7 {
		wait := time.Duration(seconds) * time.Second
		stories[fmt.Sprintf("quorum is switched on %s after the node was cut off", wait)] = quorumStory{before: nothing, after: wantMajority, wait: wait}
		stories[fmt.Sprintf("the same on the group, %s after", wait)] = quorumStory{
			before: nothing, wait: wait, after: func(w *world) {
				w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropQuorum, "")
				w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, "majority")
			},
		}
	}
	return stories
}

// A node that writes on with quorum off is left alone, whatever LINSTOR shows, and whoever leads.
func TestQuorumThatTheNodeDoesNotRunIsNoFence(t *testing.T) {
	t.Parallel()
	for name, story := range quorumStories() {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart of the controller: %t", name, restart), func(t *testing.T) {
				inWorld(t, virtual.Options{}, func(w *world) {
					p, later := w.startProcess("one", defaults()), w.newView(defaults())
					p.leads()
					story.begin(w)
					story.before(w)
					w.pass(time.Minute)
					w.cutOff(nodeA)
					w.pass(story.wait)
					story.after(w)
					w.pass(time.Minute)
					if restart {
						p.stops()
						p = w.startProcessOn("two", defaults(), later)
						p.leads()
					}
					w.pass(2 * time.Minute)
					w.wantWriting(nodeA)
					p.wantSaid(nodeA, failover.QuorumUnconfirmed, failover.NoQuorum)
				})
			})
		}
		if story.twin == nil {
			continue
		}
		t.Run(name+", and then every satellite restarts", func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				story.begin(w)
				story.before(w)
				w.pass(time.Minute)
				story.twin(w)
				w.wantUntouched()
				w.cutOff(nodeA)
				w.untilRemoved(time.Minute, "db-0")
			})
		})
	}
}

// LINSTOR adds a tie-breaker by itself, and quorum with it, while it still calls the node ONLINE that was cut off.
func TestQuorumThatCameWithATieBreakerIsNoFence(t *testing.T) {
	t.Parallel()
	for seconds := range 7 {
		t.Run(fmt.Sprintf("%d s after the node was cut off", seconds), func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db", func(v *virtual.Volume) { v.TieBreaker = "" })
				w.workload("db", selected)
				w.pass(time.Minute)
				w.cutOff(nodeA)
				w.pass(time.Duration(seconds) * time.Second)
				w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeT, TieBreaker: true}))
				w.pass(3 * time.Minute)
				w.wantWriting(nodeA)
				p.wantSaid(nodeA, failover.QuorumUnconfirmed, failover.NoQuorum)
			})
		})
	}
}

// A node that has met the tie-breaker runs the quorum that came with it.
func TestQuorumThatTheNodeHasHeardOfFences(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.TieBreaker = "" })
		w.workload("db", selected)
		w.pass(time.Minute + 500*time.Millisecond) // no reading begins at the same instant
		w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeT, TieBreaker: true}))
		w.pass(30 * time.Second)
		w.wantUntouched()
		w.Crash(nodeA)
		if removed := w.untilRemoved(time.Minute, "db-0"); removed > 17*time.Second {
			t.Errorf("the pod was removed %s after the crash", removed)
		}
	})
}

// The node that a workload has moved to crashes as soon as the workload runs there, and the one after.
func TestACrashRightAfterAFailOverIsOneLikeAnyOther(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.bystanders()
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes = []string{nodeA, "node-x", nodeB} })
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		w.Crash(nodeA)
		w.until(time.Minute, "db-0 runs on node-x, where it had no replica", func() bool { return w.runs("db-0", "node-x") })
		w.Return(nodeA)
		w.pass(15 * time.Second)
		w.Crash("node-x")
		w.until(90*time.Second, "db-0 runs elsewhere again", func() bool { return w.runs("db-0", nodeB) || w.runs("db-0", nodeA) })
	})
}

// A pod of which one volume has no quorum is never removed by force: it may write that one.
func TestAVolumeWithoutQuorumKeepsItsPodFromForce(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.volume("log", func(v *virtual.Volume) { v.Quorum = "off" })
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Claims = append(workload.Claims, "data-log") })
		w.pass(time.Minute)
		w.cutOff(nodeA)
		for range 180 {
			w.pass(time.Second)
			if w.DRBD.CanWrite("pvc-log", nodeA) && (w.DRBD.CanWrite("pvc-log", nodeB) || w.DRBD.CanWrite("pvc-log", nodeT)) {
				t.Fatal("two nodes can write the volume without quorum")
			}
		}
		if pod := w.pod("db-0"); pod == nil || pod.Spec.NodeName != nodeA {
			t.Error("the pod is gone although it can write one of its volumes")
		}
		if w.attachment("log", nodeA) == nil {
			t.Error("the volume without quorum was detached")
		}
	})
}

// A blip of DRBD's network that only the peers of the Primary notice, and then all nodes are cut off from LINSTOR and the API: the first
// satellite to be missed is not the only one.
func TestTheFirstNodeToBeMissedIsNotTheOnlyOne(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{0, 500 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(fmt.Sprintf("the others are missed %s later", apart), func(t *testing.T) {
			slow := func(observer, _ string) time.Duration {
				if observer == nodeA {
					return 10 * time.Second
				}
				return 0
			}
			inWorld(t, virtual.Options{DRBD: drbd.Options{Detect: slow}}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db")
				w.workload("db", selected)
				w.pass(time.Minute + 300*time.Millisecond)
				nodes := []string{nodeA, nodeB, nodeT}
				w.Linstor.SetPingTimeout(nodeA, 5*time.Second)
				w.Linstor.SetPingTimeout(nodeB, 5*time.Second+apart)
				w.Linstor.SetPingTimeout(nodeT, 5*time.Second+apart)
				w.DRBD.Isolate(nodeA)
				w.pass(800 * time.Millisecond)
				for _, node := range nodes {
					w.Linstor.CutSatellite(node)
					w.SilenceKubelet(node)
				}
				w.DRBD.Rejoin(nodeA)
				w.pass(20 * time.Second)
				w.wantWriting(nodeA)
				for _, node := range nodes {
					w.Linstor.RestoreSatellite(node)
					w.RestoreKubelet(node)
				}
				w.pass(time.Minute)
				w.wantWriting(nodeA)
			})
		})
	}
}

// The words of a satellite whose stream of DRBD's events has ended are frozen for 5 s while LINSTOR calls it ONLINE.
func TestFrozenWordsMoveNothing(t *testing.T) {
	for _, frozen := range []string{nodeA, nodeB, nodeT} {
		t.Run(frozen, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				w.DRBD.SetDetectionDelay(0)
				for range 20 {
					w.DRBD.Isolate(nodeA) // the others may take over for a moment
					w.pass(200 * time.Millisecond)
					w.Linstor.EndEvents(frozen)
					w.DRBD.Rejoin(nodeA)
					w.pass(12300 * time.Millisecond)
				}
				w.wantWriting(nodeA)
			})
		})
	}
}

// What may be run is kept for the next process also while a webhook rejects the deletion of the pod for ever.
func TestTheMemoryIsKeptWhileADeletionIsRejected(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.ofController(func(r apimodel.Request) error {
			if needs(r) == (permission{"delete", "", "pods"}) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, r.Name, errors.New("a webhook"))
			}
			return nil
		})
		w.Crash(nodeA)
		w.pass(30 * time.Second)
		w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropQuorum, "all")
		w.pass(time.Minute)
		if !w.told(p, "a webhook") {
			t.Fatal("no deletion was rejected")
		}
		if kept := w.attachment("db", nodeA).Annotations[cluster.AnnotationUnconfirmed]; !strings.Contains(kept, nodeA) {
			t.Errorf("the attachment says %q of what the nodes may run", kept)
		}
	})
}
