package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The network of the node's DRBD is down, which may be why it is taken out: no copy can be connected to its disk, and not every node gets one.
func TestStoryOfANodeThatIsCutOff(t *testing.T) {
	others := []string{nodeB, nodeC, nodeT, "node-d", "node-e"}
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d", "node-e"}}, defaults(), func(e *evacuating, _ *process) {
		e.volume("db", func(v *virtual.Volume) { v.TieBreaker = "" })
		e.pass(2 * time.Minute)
		for _, node := range others {
			e.DRBD.CutLink(nodeA, node)
		}
		e.pass(time.Minute)
		e.taint(nodeA, "last-copies")
		e.pass(20 * time.Minute)
		if n := e.told(evacuation.Autoplace, "pvc-db"); n > 1 {
			t.Errorf("%d copies were asked for, and the disks are on %v", n, e.Linstor.DiskNodes("pvc-db"))
		}
		if got := e.says(nodeA, evacuation.StorageSafe); got != "False PeerOffline" {
			t.Errorf("the node is %s", got)
		}
		for _, node := range others {
			e.DRBD.HealLink(nodeA, node)
		}
		e.safe(nodeA, time.Minute)
	})
}

// Two nodes are copied from at the same time: together they have no more copies in progress than one of them may have.
func TestStoryOfCopiesOfTwoNodes(t *testing.T) {
	cfg := defaults()
	cfg.Evacuation = &evacuation.Settings{MaxNodes: 2, MaxCopies: 1}
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, cfg, func(e *evacuating, _ *process) {
		for volume, node := range map[string]string{"a": nodeA, "b": nodeB} {
			e.volume(volume, func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{node}, "" })
		}
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.taint(nodeB, "last-copies")
		e.pass(5 * time.Second)
		if n := e.told(evacuation.Autoplace, ""); n != 1 {
			t.Errorf("%d copies were asked for at once", n)
		}
		e.safe(nodeA, 2*time.Minute)
		e.safe(nodeB, 2*time.Minute)
	})
}

// Of more volumes than one request to LINSTOR has room for the only copies are kept from its balancing.
func TestStoryOfManyCopiesToKeep(t *testing.T) {
	const volumes = 200
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			e.note(w, r)
			if len(r.URL.RequestURI()) <= 7<<10 { // LINSTOR's HTTP server takes 8 KiB of headers
				return false
			}
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			return true
		})
		e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{PlaceCount: 1})
		for i := range volumes {
			e.volume(fmt.Sprintf("c8a5dd3e-51a0-4c60-a4fc-6d8c4b9c%04d", i), func(v *virtual.Volume) { v.TieBreaker = "" })
		}
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, 5*time.Minute)
		if n := e.told(evacuation.Properties, ""); n != volumes {
			t.Errorf("%d of %d volumes have a mark", n, volumes)
		}
	})
}

// A satellite cannot make the disk of a copy, and LINSTOR leaves the replica there: the node says so in LINSTOR's words, no other copy is asked for, and the
// other volume gets its own.
func TestStoryOfACopyThatCannotBeMade(t *testing.T) {
	cfg := defaults()
	cfg.Evacuation = &evacuation.Settings{MaxNodes: 1, MaxCopies: 1}
	inEvacuation(t, cfg, func(e *evacuating, _ *process) {
		for _, volume := range []string{"db", "local"} {
			e.volume(volume, onlyOnA)
		}
		e.pass(2 * time.Minute)
		for _, node := range []string{nodeB, nodeT} {
			e.must(e.Cordon(e.ctx, node, true))
		}
		e.Linstor.SetAdjustFault(nodeC, "pvc-db", linstorsim.AdjustFailsAtOptions)
		e.taint(nodeA, "last-copies")
		e.until(5*time.Minute, "the other volume has its copy, and LINSTOR's words are told", func() bool {
			c := cluster.EvacuationConditions(e.node(nodeA)).Safe
			return c != nil && c.Reason == evacuation.NoTarget && strings.Contains(c.Message, "on node-c has not come about: Failed to adjust")
		})
		e.pass(30 * time.Minute)
		if e.told(evacuation.Autoplace, "pvc-db") != 1 || e.told(evacuation.Autoplace, "pvc-local") != 1 || e.says(nodeA, evacuation.StorageSafe) != "False NoTarget" {
			t.Errorf("the node is %s, and LINSTOR was told %v", e.says(nodeA, evacuation.StorageSafe), e.calls)
		}
	})
}

// A volume that LINSTOR has no place for is tried again every ten minutes, and told once.
func TestStoryOfAVolumeThatStaysBlocked(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.volume("local", onlyOnA)
		e.pass(2 * time.Minute)
		defer e.refuses(http.MethodPost, "/autoplace")()
		e.taint(nodeA, "last-copies")
		e.pass(45 * time.Minute)
		if got := eventsOf(p, nodeA, string(evacuation.NoTarget)); len(got) != 1 || e.says(nodeA, evacuation.StorageSafe) != "False NoTarget" {
			t.Errorf("the node is %s, which was told %d times", e.says(nodeA, evacuation.StorageSafe), len(got))
		}
	})
}

// A node is drained although one of its volumes has no place for a copy: the pod that waits now is told why, once, though the node was told before.
func TestStoryOfAPodThatIsDrainedTooEarly(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, p *process) {
		e.aFullNode()
		for _, node := range []string{nodeB, nodeC, nodeT} {
			e.must(e.Cordon(e.ctx, node, true))
		}
		e.taint(nodeA, "last-copies")
		e.pass(time.Minute)
		e.drained(nodeA)
		e.until(time.Minute, "the pod waits", func() bool { return e.pod("local-0") != nil && e.pod("local-0").Spec.NodeName == "" })
		e.pass(5 * time.Minute)
		if got := p.events.reasons("Pod", "local-0"); e.pod("local-0").Status.Phase != corev1.PodPending || !slices.Equal(got, []string{string(evacuation.NoTarget)}) {
			t.Errorf("the pod was told %v", got)
		}
	})
}

// Of a LINSTOR older than 1.33 nodes leave one by one. One that has left and was switched off holds up nobody.
func TestStoryOfTheNextNodeOfAnOldLinstor(t *testing.T) {
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, defaults(), func(e *evacuating, _ *process) {
		e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			e.note(w, r)
			if !strings.HasSuffix(r.URL.Path, "/controller/version") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"version":"1.32.3","rest_api_version":"1.26.0"}`)
			return true
		})
		e.volume("db")
		e.pass(2 * time.Minute)
		e.taint(nodeA, "")
		e.gone(nodeA, 10*time.Minute)
		e.Crash(nodeA)
		e.pass(5 * time.Minute)
		e.taint(nodeB, "")
		e.gone(nodeB, 10*time.Minute)
	})
}

// A node is drained only while the next one leaves: it waits for that, since only one may leave at a time.
func TestStoryOfANodeThatIsDrainedAfterTheNext(t *testing.T) {
	options := virtual.Options{Placed: true, DRBD: drbd.Options{SyncRate: 10 << 10}, Linstor: linstorsim.Options{TieBreakers: true}}
	inWorld(t, options, func(w *world) {
		e := &evacuating{world: w}
		for _, node := range []string{nodeC, "node-d", "node-e"} {
			e.must(e.AddNode(e.ctx, node))
		}
		e.Linstor.Intercept(e.note)
		e.startProcess("one", defaults()).leads()
		e.volume("db")
		e.workload("db", selected)
		e.volume("next", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeC })
		e.pass(2 * time.Minute)
		e.wantRunning("db-0", nodeA)
		e.taint(nodeA, "")
		e.safe(nodeA, time.Minute)
		e.taint(nodeB, "")
		e.must(e.Cordon(e.ctx, nodeB, true))
		e.until(10*time.Minute, "B leaves", func() bool { return e.told(evacuation.Evacuate, nodeB) > 0 })
		e.Drain(e.ctx, nodeA)
		e.until(time.Minute, "A waits for B", func() bool { return e.says(nodeA, evacuation.StorageEvacuated) == "False AnotherNodeFirst" })
		e.gone(nodeB, 10*time.Minute)
		if n := e.told(evacuation.Evacuate, nodeA); n > 0 {
			t.Errorf("LINSTOR was told %v", e.calls)
		}
		e.gone(nodeA, 10*time.Minute)
	})
}
