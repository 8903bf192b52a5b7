package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// onThreeNodes has a disk on each of three nodes.
func onThreeNodes(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB, nodeT}, "" }

// Where every node has a disk there is nowhere to go: the node may be rebooted at once, and does not leave.
func TestStoryOfThreeDisksOnThreeNodes(t *testing.T) {
	inEvacuationOf(t, evacuationIn{}, defaults(), func(e *evacuating, _ *process) {
		e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{PlaceCount: 3})
		e.volume("db", onThreeNodes)
		e.workload("db", selected)
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		if took := e.safe(nodeA, time.Minute); took > 15*time.Second {
			t.Errorf("safe after %s", took)
		}
		e.drained(nodeA)
		e.until(5*time.Minute, "LINSTOR's words are told", func() bool { return e.says(nodeA, evacuation.StorageEvacuated) == "False NoTarget" })
		if e.told(evacuation.Autoplace, "") > 0 || !e.onDisksAtLeast("db", nodeA, nodeB, nodeT) {
			t.Errorf("LINSTOR was told %v, and the disks are on %v", e.calls, e.Linstor.DiskNodes("pvc-db"))
		}
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// On three nodes the tie-breaker becomes a disk, and LINSTOR switches quorum off until the node is back. The user is told before.
func TestStoryOfQuorumOnThreeNodes(t *testing.T) {
	inEvacuationOf(t, evacuationIn{}, defaults(), func(e *evacuating, p *process) {
		e.volume("db")
		e.workload("db", selected, func(w *virtual.Workload) { w.Nodes = []string{nodeA, nodeB, nodeT} })
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.safe(nodeA, time.Minute)
		e.drained(nodeA)
		e.gone(nodeA, 10*time.Minute)
		if got := eventsOf(p, nodeA, EventQuorumWillBeOff); len(got) != 1 {
			t.Errorf("the loss of quorum was told %d times", len(got))
		}
		if q := e.Linstor.WantedQuorum("pvc-db"); q != "off" {
			t.Errorf("quorum is %s on two nodes", q)
		}
		e.must(e.Cordon(e.ctx, nodeA, false))
		e.untaint(nodeA)
		e.returned(nodeA)
		e.until(time.Minute, "quorum is back", func() bool { return e.Linstor.WantedQuorum("pvc-db") == "majority" })
	})
}

// Two nodes leave at once: no disk ever lands on either, and each volume is copied once for each node that it leaves.
func TestStoryOfTwoNodesAtOnce(t *testing.T) {
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, defaults(), func(e *evacuating, _ *process) {
		e.volume("a", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA}, "" })
		e.volume("b", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB}, "" })
		e.volume("db", func(v *virtual.Volume) { v.TieBreaker = nodeC })
		e.volume("trap", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeT}, nodeB })
		e.pass(2 * time.Minute)
		had := map[string][]string{}
		volumes := []string{"a", "b", "db", "trap"}
		for _, v := range volumes {
			had[v] = e.Linstor.DiskNodes("pvc-" + v)
		}
		e.taint(nodeA, "")
		e.taint(nodeB, "")
		e.until(30*time.Minute, "both have left", func() bool {
			for _, v := range volumes {
				for _, node := range e.Linstor.DiskNodes("pvc-" + v) {
					if (node == nodeA || node == nodeB) && !slices.Contains(had[v], node) {
						e.Fatalf("volume %s lands on %s", v, node)
					}
				}
			}
			return e.says(nodeA, evacuation.StorageEvacuated) == "True NothingLeft" && e.says(nodeB, evacuation.StorageEvacuated) == "True NothingLeft"
		})
		for v, want := range map[string]int{"a": 1, "b": 1, "db": 2} {
			if disks := e.Linstor.DiskNodes("pvc-" + v); len(disks) < want || slices.Contains(disks, nodeA) || slices.Contains(disks, nodeB) {
				t.Errorf("volume %s is on %v", v, disks)
			}
			// The group wants two disks, so that LINSTOR would make another one itself, where its tie-breaker is: on a node that leaves.
			if n := e.told(evacuation.Autoplace, "pvc-"+v); n > 2 {
				t.Errorf("volume %s was copied %d times", v, n)
			}
		}
		e.untaint(nodeA)
		e.untaint(nodeB)
		e.returned(nodeA)
		e.returned(nodeB)
	})
}

// The Piraeus Operator restores every node that it does not evacuate itself.
func TestStoryOfAnOperatorThatRestores(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.Linstor.SetOperator(time.Minute)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		e.drained(nodeA)
		e.gone(nodeA, 10*time.Minute)
		if n := e.told(evacuation.Evacuate, ""); n > 3 {
			t.Errorf("LINSTOR was told %d times", n)
		}
		e.untaint(nodeA)
		e.returned(nodeA)
	})
}

// LINSTOR's balancing removes surplus disks that are not in use. The copy that a pod is to use soon is one.
func TestStoryOfBalancing(t *testing.T) {
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC}, balancing: true}, defaults(), func(e *evacuating, _ *process) {
		e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{PlaceCount: 1})
		e.SetAffinityController(e.ctx, true)
		e.volume("local", onlyOnA)
		e.workload("local", selected, onAnyNode)
		e.pass(time.Hour)
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, 2*time.Minute)
		for range 10 {
			e.pass(time.Minute)
			if got := e.says(nodeA, evacuation.StorageSafe); got != "True CopiedElsewhere" {
				t.Fatalf("the node is %s", got)
			}
		}
		if n := e.told(evacuation.Autoplace, ""); n != 1 {
			t.Errorf("%d copies were made", n)
		}
		e.untaint(nodeA)
		e.returned(nodeA)
		e.until(10*time.Minute, "balancing has removed the surplus copy", func() bool { return len(e.Linstor.DiskNodes("pvc-local")) == 1 })
	})
}

// A PersistentVolume that allows no other node pins its pod; once another one takes its place the node is safe.
func TestStoryOfAPinnedVolume(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.until(2*time.Minute, "it is told what is pinned", func() bool { return e.says(nodeA, evacuation.StorageSafe) == "False AffinityPinned" })
		e.pass(5 * time.Minute)
		if n := e.told(evacuation.Autoplace, ""); n != 1 {
			t.Errorf("%d copies were made", n)
		}
		if got := eventsOf(p, nodeA, string(evacuation.AffinityPinned)); len(got) != 1 {
			t.Errorf("it was told %d times", len(got))
		}
		e.SetAffinityController(e.ctx, true)
		e.safe(nodeA, 2*time.Minute)
	})
}

// Kubernetes takes a while until the claim of a PersistentVolume that was replaced is bound again: a pod that is drained meanwhile could not be
// placed, and its volume would stay attached.
func TestStoryOfALostClaim(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.until(2*time.Minute, "it is pinned", func() bool { return e.says(nodeA, evacuation.StorageSafe) == "False AffinityPinned" })
		e.claimPhase("data-local", corev1.ClaimLost)
		e.SetAffinityController(e.ctx, true)
		e.pass(40 * time.Second)
		if c := cluster.EvacuationConditions(e.node(nodeA)).Safe; c.Reason != evacuation.AffinityPinned || !strings.Contains(c.Message, "was replaced") {
			t.Errorf("the node is %+v", c)
		}
		e.claimPhase("data-local", corev1.ClaimBound)
		e.safe(nodeA, evacuation.Interval+time.Second)
	})
}

// claimPhase puts a claim into a phase.
func (e *evacuating) claimPhase(name string, phase corev1.PersistentVolumeClaimPhase) {
	e.Helper()
	var claim corev1.PersistentVolumeClaim
	e.must(e.Client().Get(e.ctx, client.ObjectKey{Namespace: "default", Name: name}, &claim))
	before := claim.DeepCopy()
	claim.Status.Phase = phase
	e.must(e.Client().Status().Patch(e.ctx, &claim, client.MergeFrom(before)))
}
