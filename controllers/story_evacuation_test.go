package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// onlyOnA is a volume of which A has the only disk, and whose PersistentVolume allows no other node.
func onlyOnA(v *virtual.Volume) { v.Diskful, v.TieBreaker, v.Pinned = []string{nodeA}, "", true }

// onAnyNode lets a workload run everywhere, preferably on A.
func onAnyNode(w *virtual.Workload) { w.Nodes = []string{nodeA, nodeB, nodeC, nodeT} }

// aFullNode has on A a pod with a replica elsewhere, "db-0", and one with the only copy, "local-0".
func (e *evacuating) aFullNode() {
	e.Helper()
	e.volume("db")
	e.volume("local", onlyOnA)
	e.workload("db", selected)
	e.workload("local", selected, onAnyNode)
	e.pass(2 * time.Minute)
	e.wantRunning("db-0", nodeA)
	e.wantRunning("local-0", nodeA)
}

// A node with the only copy of a volume is rebooted: the copy is made, the node drained and switched off, and it comes back as if nothing had
// been.
func TestStoryOfAReboot(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, 2*time.Minute)
		if n := e.told(evacuation.Autoplace, ""); n != 1 || e.told(evacuation.Autoplace, "pvc-local") != 1 {
			t.Errorf("%d copies were asked for, want one, of the volume that exists nowhere else", n)
		}
		if props := e.props("pvc-local"); props[evacuation.PropMark] != nodeA || props[evacuation.PropBalance] != "false" {
			t.Errorf("the copy is not kept from LINSTOR's balancing: %v", props)
		}
		e.drained(nodeA)
		e.until(30*time.Second, "the pods run elsewhere", func() bool {
			return e.runs("db-0", nodeB) && !e.runs("local-0", nodeA) && e.pod("local-0").Status.Phase == "Running"
		})
		e.Crash(nodeA)
		e.pass(5 * time.Minute)
		if got := e.says(nodeA, evacuation.StorageSafe); got != "Unknown SatelliteOffline" {
			t.Errorf("switched off, the node is %s", got)
		}
		e.Return(nodeA)
		e.must(e.Cordon(e.ctx, nodeA, false))
		e.pass(time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
		if e.told(evacuation.Evacuate, "") > 0 || e.told(evacuation.Restore, "") > 0 || !e.onDisksAtLeast("local", nodeA) {
			t.Errorf("something has left: LINSTOR was told %v, and the disks are on %v", e.calls, e.Linstor.DiskNodes("pvc-local"))
		}
		want := []string{EventEvacuationStarted, EventStorageSafe, EventStorageReturned}
		if got := eventsOf(p, nodeA, want...); !slices.Equal(got, want) {
			t.Errorf("the node was told %v, want %v", got, want)
		}
	})
}

// A node is replaced: everything leaves it, but only after it was drained.
func TestStoryOfANodeThatLeaves(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.must(e.Linstor.TakeSnapshot("pvc-db", "snap"))
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		e.pass(10 * time.Minute)
		if e.told(evacuation.Evacuate, "") > 0 {
			t.Error("LINSTOR is told to evacuate a node that is in use")
		}
		if c := cluster.EvacuationConditions(e.node(nodeA)).Evacuated; c.Reason != evacuation.WaitingForDrain || !strings.Contains(c.Message, "default/db-0 holds db") {
			t.Errorf("the node is %+v", c)
		}
		e.drained(nodeA)
		e.gone(nodeA, 10*time.Minute)
		if n := e.told(evacuation.Evacuate, nodeA); n == 0 || n > 2 {
			t.Errorf("LINSTOR is told %d times", n)
		}
		for _, volume := range []string{"db", "local"} {
			if disks := e.Linstor.DiskNodes("pvc-" + volume); len(disks) < 2-map[string]int{"local": 1}[volume] || slices.Contains(disks, nodeA) {
				t.Errorf("volume %s is on %v", volume, disks)
			}
		}
		if nodes := e.Linstor.SnapshotNodes("pvc-db", "snap"); slices.Contains(nodes, nodeA) {
			t.Errorf("the snapshot is on %v", nodes)
		}
		e.untaint(nodeA)
		e.returned(nodeA)
		want := []string{EventEvacuationStarted, EventStorageSafe, EventStorageEvacuated, EventStorageReturned}
		if got := eventsOf(p, nodeA, want...); !slices.Equal(got, want) {
			t.Errorf("the node was told %v, want %v", got, want)
		}
	})
}

// eventsOf returns which of the reasons the Events on a node have had, in order.
func eventsOf(p *process, node string, of ...string) []string {
	return slices.DeleteFunc(p.events.reasons("Node", node), func(reason string) bool { return !slices.Contains(of, reason) })
}

// onDisksAtLeast tells whether these nodes have a disk of a volume.
func (e *evacuating) onDisksAtLeast(volume string, nodes ...string) bool {
	disks := e.Linstor.DiskNodes("pvc-" + volume)
	return !slices.ContainsFunc(nodes, func(n string) bool { return !slices.Contains(disks, n) })
}

// Nothing is written by an evacuation but to the node, and nothing is deleted.
func TestAnEvacuationWritesToTheNodeOnly(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		e.drained(nodeA)
		e.gone(nodeA, 10*time.Minute)
		e.untaint(nodeA)
		e.returned(nodeA)
		e.world.mu.Lock()
		defer e.world.mu.Unlock()
		for _, c := range e.changes {
			if strings.HasPrefix(c.Actor, controllerActor) && (c.Verb != apimodel.VerbPatch || c.Kind != "Node") {
				t.Errorf("the controller has done %+v", c.Request)
			}
		}
	})
}
