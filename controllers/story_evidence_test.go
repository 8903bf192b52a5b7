package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// byItself lets LINSTOR add and remove tie-breakers.
var byItself = virtual.Options{Linstor: linstorsim.Options{TieBreakers: true}}

// restartSatellites restarts satellites in turn, as a rollout of them does.
func (w *world) restartSatellites(nodes ...string) {
	for _, node := range nodes {
		w.Linstor.StopSatellite(node)
		w.pass(2 * time.Second)
		w.Linstor.RestoreSatellite(node)
		w.pass(90 * time.Second)
	}
}

func TestVolumesMoveAfterLinstorHasEvictedANode(t *testing.T) {
	t.Parallel()
	const nodeC, nodeD = "node-c", "node-d"
	for name, c := range map[string]struct {
		disks      []string
		tieBreaker string
		satellites bool // are restarted
		successor  bool
	}{
		"the tie-breaker got its disk":                           {disks: []string{nodeA, nodeD}, tieBreaker: nodeT},
		"the tie-breaker got its disk, and satellites restarted": {disks: []string{nodeA, nodeD}, tieBreaker: nodeT, satellites: true},
		"a third node got its disk":                              {disks: []string{nodeA, nodeB, nodeD}},
		"the tie-breaker got its disk, before the leader came":   {disks: []string{nodeA, nodeD}, tieBreaker: nodeT, successor: true},
		"a third node got its disk, before the leader came":      {disks: []string{nodeA, nodeB, nodeD}, successor: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, byItself, func(w *world) {
				for _, node := range []string{nodeC, nodeD} {
					w.must(w.AddNode(w.ctx, node))
				}
				p, later := w.startProcess("one", defaults()), w.newView(defaults())
				p.leads()
				w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = c.disks, c.tieBreaker })
				others := []string{nodeA, nodeB, nodeT, nodeC}
				w.workload("db", selected, func(x *virtual.Workload) { x.Nodes = others })
				w.pass(time.Minute)
				w.Crash(nodeD)
				w.pass(5 * time.Minute)
				w.must(w.Linstor.Evict(nodeD))
				w.pass(10 * time.Minute)
				if c.satellites {
					w.restartSatellites(others...)
				}
				if c.successor {
					p.stops()
					p = w.startProcessOn("two", defaults(), later)
					p.leads()
					w.pass(2 * time.Minute)
				}
				w.wantUntouched()
				w.Crash(nodeA)
				w.until(40*time.Second, "the pod runs elsewhere", func() bool {
					pod := w.pod("db-0")
					return pod != nil && pod.Spec.NodeName != nodeA && pod.Spec.NodeName != ""
				})
			})
		})
	}
}

// What LINSTOR's answers show, after its adjust has failed: A does not list the tie-breaker, and there are error reports.
func TestANodeThatGoesOnFailingToApplyQuorumKeepsItsPod(t *testing.T) {
	t.Parallel()
	placed := func(w *world) { w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeT, TieBreaker: true})) }
	for name, c := range map[string]struct {
		tieBreaker string
		comes      func(*world)
		fault      linstorsim.AdjustFault
	}{
		"which came with a tie-breaker":                            {comes: placed, fault: linstorsim.AdjustFailsAtOptions},
		"which came with a tie-breaker, because the command hangs": {comes: placed, fault: linstorsim.AdjustHangs},
		"which a person has set":                                   {tieBreaker: nodeT, comes: wantMajority, fault: linstorsim.AdjustFailsAtOptions},
		"which a person has set, because a storage tool hangs":     {tieBreaker: nodeT, comes: wantMajority, fault: linstorsim.AdjustHangs},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, byItself, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db", func(v *virtual.Volume) {
					v.TieBreaker = c.tieBreaker
					if c.tieBreaker != "" {
						v.Quorum = "off"
					}
				})
				w.workload("db", selected)
				w.pass(time.Minute)
				w.Linstor.SetAdjustFault(nodeA, "pvc-db", c.fault)
				c.comes(w)
				w.pass(time.Minute)
				w.restartSatellites(nodeA)
				w.pass(90 * time.Second)
				w.cutOff(nodeA)
				w.pass(3 * time.Minute)
				w.wantWriting(nodeA)
				p.wantSaid(nodeA, failover.QuorumUnconfirmed, failover.NoSurvivor)
			})
		})
	}
}

// DRBD on a node without a disk takes the word of a peer that has quorum.
func TestANodeWithoutADiskMayWriteByADiskThatRunsNoQuorum(t *testing.T) {
	const nodeX, nodeC, nodeD = "node-x", "node-c", "node-d"
	inWorld(t, virtual.Options{}, func(w *world) {
		for _, node := range []string{nodeX, nodeC, nodeD} {
			w.must(w.AddNode(w.ctx, node))
		}
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker, v.Quorum = []string{nodeB, nodeC, nodeD}, "", "off" })
		w.workload("db", selected, func(x *virtual.Workload) { x.Nodes = []string{nodeX, nodeB, nodeD} })
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeX)
		w.Linstor.SetAdjustFault(nodeC, "pvc-db", linstorsim.AdjustHangs)
		wantMajority(w)
		w.pass(time.Minute)
		w.restartSatellites(nodeX, nodeB, nodeD)
		for _, near := range []string{nodeX, nodeC} {
			w.Linstor.CutSatellite(near)
			w.SilenceKubelet(near)
			for _, far := range []string{nodeB, nodeD, nodeT, nodeA} {
				w.DRBD.CutLink(near, far)
			}
		}
		for second := range 180 {
			w.pass(time.Second)
			writers := slices.DeleteFunc([]string{nodeX, nodeB, nodeD}, func(node string) bool { return !w.DRBD.CanWrite("pvc-db", node) })
			if len(writers) > 1 {
				t.Fatalf("%d s after the cut %v can write", second, writers)
			}
		}
		w.wantWriting(nodeX)
		p.wantSaid(nodeX, failover.QuorumUnconfirmed)
	})
}

// The fail-over is right, and it was not done: an Outdated peer that has left has no vote.
func TestAPeerThatHasLeftInOrderHoldsNoFailOverUp(t *testing.T) {
	const nodeC = "node-c"
	inWorld(t, virtual.Options{}, func(w *world) {
		w.must(w.AddNode(w.ctx, nodeC))
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeC}, "" })
		w.workload("db", selected, func(x *virtual.Workload) { x.Nodes = []string{nodeA, nodeB, nodeT} })
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		w.DRBD.Shutdown(nodeC)
		w.Crash(nodeC)
		w.pass(2 * time.Minute)
		w.Crash(nodeA)
		w.until(90*time.Second, "the pod runs elsewhere", func() bool {
			pod := w.pod("db-0")
			return pod != nil && pod.Spec.NodeName != nodeA && pod.Spec.NodeName != ""
		})
	})
}

// A weaker quorum comes and goes on the definition, the group or the controller, and the readings between fail.
func TestAQuorumThatWasReadWeakerOnceIsNotTakenForAppliedAgain(t *testing.T) {
	t.Parallel()
	for level, set := range map[string]func(w *world, quorum string){
		"definition": func(w *world, quorum string) {
			w.Linstor.SetDefinitionProperty("pvc-db", linstorsim.PropQuorum, quorum)
		},
		"group": func(w *world, quorum string) {
			w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, quorum)
		},
		"controller": func(w *world, quorum string) { w.Linstor.SetControllerProperty(linstorsim.PropQuorum, quorum) },
	} {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("on the %s, LINSTOR is silent in between: %t", level, fails), func(t *testing.T) {
				inWorld(t, virtual.Options{}, func(w *world) {
					p := w.startProcess("one", defaults())
					p.leads()
					w.volume("db", func(v *virtual.Volume) {
						if level != "definition" {
							v.Quorum = ""
						}
					})
					if level != "definition" {
						set(w, "majority")
					}
					w.workload("db", selected)
					w.pass(2 * time.Minute)
					w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustWorks)
					set(w, "off")
					w.pass(65 * time.Second)
					if fails {
						w.Linstor.Stop()
						w.pass(20 * time.Second)
						w.Linstor.Start()
						w.pass(15 * time.Second)
					}
					w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustFailsAtOptions)
					set(w, "majority")
					w.pass(65 * time.Second)
					w.cutOff(nodeA)
					w.pass(3 * time.Minute)
					p.wantSaid(nodeA, failover.QuorumUnconfirmed, failover.NoQuorum, failover.NoSurvivor)
					w.wantUntouched()
				})
			})
		}
	}
}
