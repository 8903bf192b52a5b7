package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// crashes lets A crash, and fails the story unless the pod is removed soon.
func (w *world) crashes(p *process) {
	w.Helper()
	w.Crash(nodeA)
	for passed := time.Duration(0); len(w.removed("db-0")) == 0; passed += time.Second {
		w.pass(time.Second)
		if passed > 25*time.Second {
			verdict, reason := p.said("db", nodeA)
			w.Fatalf("the pod was not removed within %s: %s %s", passed, verdict, reason)
		}
	}
}

// Ordinary operations on a volume whose quorum is one that a person has set in an unusual way, before A crashes.
func TestACrashAfterOrdinaryOperationsWithUnusualQuorum(t *testing.T) {
	t.Parallel()
	quorums := map[string]func(w *world){
		"majority by LINSTOR":    func(*world) {},
		"majority on the group":  func(w *world) { w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, "majority") },
		"majority on controller": func(w *world) { w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "majority") },
	}
	deeds := map[string]func(w *world){
		"nothing": func(*world) {},
		"a disk on C": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
		},
		"a disk on C, and it goes": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
			w.pass(time.Minute)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeC))
		},
		"A's node is rebooted": func(w *world) {
			w.Linstor.StopSatellite(nodeA)
			w.pass(10 * time.Second)
			w.Linstor.RestoreSatellite(nodeA)
		},
		"LINSTOR restarts": func(w *world) {
			w.Linstor.Stop()
			w.pass(5 * time.Second)
			w.Linstor.Restart()
			w.pass(10 * time.Second)
		},
		"T is lost, and C is the tie-breaker": func(w *world) {
			w.Crash(nodeT)
			w.pass(20 * time.Second)
			w.must(w.Linstor.LoseNode(nodeT))
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC, TieBreaker: true}))
		},
		"C has a client": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC, Diskless: true}))
			w.pass(10 * time.Second)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeC))
		},
		"a disk on C, then B's goes": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
			w.pass(time.Minute)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeB))
		},
	}
	for q, set := range quorums {
		for name, deed := range deeds {
			for _, wait := range []time.Duration{3 * time.Second, time.Minute} {
				t.Run(fmt.Sprintf("%s, %s, %s", q, name, wait), func(t *testing.T) {
					inWorld(t, virtual.Options{}, func(w *world) {
						w.must(w.AddNode(w.ctx, nodeC))
						w.bystanders()
						set(w)
						p := w.startProcess("one", defaults())
						p.leads()
						w.volume("db")
						w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes = []string{nodeA, nodeB, nodeC} })
						w.pass(2 * time.Minute)
						w.wantRunning("db-0", nodeA)
						deed(w)
						w.pass(wait)
						w.crashes(p)
					})
				})
			}
		}
	}
}

// LINSTOR has just started, and nobody hears its events yet. A person has set the quorum on the group long before.
func TestACrashOfAVolumeThatWasMadeRightAfterLinstorStarted(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < 5*time.Second; after += 400 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, "majority")
				p := w.startProcess("one", defaults())
				p.leads()
				w.pass(2 * time.Minute)
				w.Linstor.Stop()
				w.pass(5 * time.Second)
				w.Linstor.Restart()
				for _, node := range []string{nodeA, nodeB, nodeT} {
					for w.Linstor.ConnectionStatus(node) != linstorsim.Online {
						w.pass(50 * time.Millisecond)
					}
				}
				w.pass(after)
				w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA}, "" })
				w.pass(400 * time.Millisecond)
				w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeB}, drbd.ReplicaSpec{Node: nodeT, TieBreaker: true}))
				w.pass(12 * time.Second)
				w.workload("db", selected)
				w.pass(3 * time.Minute)
				w.crashes(p)
			})
		})
	}
}
