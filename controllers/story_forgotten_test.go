package controllers

import (
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

const nodeC = "node-c"

// cutTogether takes A and C off the other nodes, LINSTOR and Kubernetes, but not off each other.
func (w *world) cutTogether() {
	for _, node := range []string{nodeA, nodeC} {
		w.Linstor.CutSatellite(node)
		w.SilenceKubelet(node)
		for _, other := range []string{nodeB, nodeT} {
			w.DRBD.CutLink(node, other)
		}
	}
}

// wantNoSecondWriter lets time pass, and fails the story as soon as a second node could write the volume "db", or the pod is removed.
func (w *world) wantNoSecondWriter(p *process, d time.Duration) {
	w.Helper()
	for passed := time.Duration(0); passed < d; passed += time.Second {
		w.pass(time.Second)
		if passed > 15*time.Second && !w.DRBD.CanWrite("pvc-db", nodeA) { // until DRBD has noticed the cut its writes hang
			w.Fatalf("after %s A cannot write any more", passed)
		}
		if n := len(w.removed("db-0")); n > 0 {
			w.Fatalf("after %s the pod was removed although A can write", passed)
		}
	}
	verdict, reason := p.said("db", nodeA)
	w.Logf("said %s %s", verdict, reason)
}

// LINSTOR is given a database of a time before C had its replica. C has it still, and A goes on with C's vote: it fails to apply what
// LINSTOR wants now.
func TestAReplicaThatARestoredDatabaseLacksHasItsVote(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.must(w.AddNode(w.ctx, nodeC))
		w.bystanders()
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		snapshot := w.Linstor.Snapshot()
		w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
		w.pass(3 * time.Minute)
		w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustHangs)
		w.Linstor.RestoreDatabase(snapshot)
		w.pass(40 * time.Second)
		w.cutTogether()
		w.wantNoSecondWriter(p, 3*time.Minute)
	})
}

// A and C are cut off together. A person gives C up in LINSTOR as soon as it is OFFLINE there; LINSTOR gives B a tie-breaker.
func TestANodeThatIsLostAsSoonAsItIsOfflineHasItsVote(t *testing.T) {
	t.Parallel()
	for _, phase := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
		t.Run(phase.String(), func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				w.must(w.AddNode(w.ctx, nodeC))
				w.bystanders()
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB, nodeC}, "" })
				w.workload("db", selected)
				w.pass(3*time.Minute + phase)
				w.cutTogether()
				for w.Linstor.ConnectionStatus(nodeC) == "ONLINE" {
					w.pass(20 * time.Millisecond)
				}
				w.must(w.Linstor.LoseNode(nodeC))
				_ = w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeT, TieBreaker: true}) // where LINSTOR has not done so itself
				w.wantNoSecondWriter(p, 3*time.Minute)
			})
		})
	}
}

// Quorum is set on the controller, of which no satellite is told, so that all nodes go on with quorum off. The next process reaches LINSTOR
// two minutes after it has started. A's satellite is restarted, and the pod moves to B, whose was not.
func TestWhatTheNodesMayRunOutlivesAStartWithoutLinstor(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.bystanders()
		p, later := w.startProcess("one", defaults()), w.newView(defaults())
		p.leads()
		w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "off")
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
		w.pass(2 * time.Minute)
		if kept := w.attachment("db", nodeA).Annotations[cluster.AnnotationUnconfirmed]; !strings.Contains(kept, nodeA) {
			t.Fatalf("the attachment says %q of what the nodes may run", kept)
		}
		p.stops()
		p = w.startProcessOn("two", defaults(), later)
		p.cable.cut()
		w.pass(2*time.Minute + 10*time.Second)
		p.cable.mend()
		p.leads()
		w.pass(2 * time.Minute)
		w.Linstor.StopSatellite(nodeA)
		w.pass(2 * time.Second)
		w.Linstor.RestoreSatellite(nodeA)
		w.pass(2 * time.Minute)
		w.must(w.cordon(nodeA))
		w.must(w.Client().Delete(w.ctx, w.pod("db-0")))
		w.until(2*time.Minute, "db-0 runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(2 * time.Minute)
		w.cutOff(nodeB)
		for range 180 {
			w.pass(time.Second)
			if w.DRBD.CanWrite("pvc-db", nodeB) && len(w.removed("db-0")) > 0 {
				t.Fatal("the pod was removed although B can write")
			}
		}
	})
}
