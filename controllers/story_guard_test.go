package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// on is a workload that may run on these nodes only, the first first.
func on(nodes ...string) func(*virtual.Workload) {
	return func(v *virtual.Workload) { v.Nodes = nodes }
}

// What one volume has suffered on a node that is well says nothing of the view of the cluster, however long nobody may do anything
// about it.
func TestAnExemptPodsClosedVolumeHoldsNobodyUp(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.workload("db", selected, on(nodeA, nodeB))
		w.volume("log")
		w.workload("log", selected, on(nodeB, nodeA), func(v *virtual.Workload) {
			v.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		})
		w.pass(time.Minute)
		w.DRBD.Close("pvc-log", nodeB)
		w.pass(5 * time.Minute)
		if verdict, reason := p.said("log", nodeB); verdict != failover.Blocked || reason != failover.Exempt {
			t.Fatalf("of the exempt pod: %s %s", verdict, reason)
		}
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload of the crashed node runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestVolumesClosedOnMostNodesAreMovedNonetheless(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		first := make(map[string]any)
		for name, nodes := range map[string][]string{"db": {nodeA, nodeB}, "log": {nodeB, nodeA}} {
			w.volume(name)
			w.workload(name, selected, on(nodes...))
		}
		w.pass(time.Minute)
		for name, node := range map[string]string{"db": nodeA, "log": nodeB} {
			w.wantRunning(name+"-0", node)
			first[name] = w.pod(name + "-0").UID
			w.DRBD.Close("pvc-"+name, node)
		}
		for name := range first {
			w.until(2*time.Minute, "the pod of "+name+" is replaced", func() bool {
				pod := w.pod(name + "-0")
				return pod != nil && pod.UID != first[name] && w.runs(name+"-0", pod.Spec.NodeName)
			})
		}
	})
}

// fiveNodes adds two nodes and the volume "db" with its workload on A, which B and E could take over.
func (w *world) fiveNodes(names ...string) {
	w.Helper()
	for _, node := range []string{"node-d", "node-e"} {
		w.must(w.AddNode(w.ctx, node))
	}
	for _, name := range names {
		w.volume(name, func(v *virtual.Volume) { v.TieBreaker = "node-e" })
		w.workload(name, selected)
	}
	w.pass(time.Minute)
}

func TestThreeOfFiveNodesSeemLostForTwoMinutes(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		names := []string{"db", "log", "web"}
		w.fiveNodes(names...)
		for _, node := range []string{nodeT, "node-d"} {
			w.Linstor.CutSatellite(node)
		}
		w.pass(10 * time.Second)
		w.Crash(nodeA)
		crashed := time.Now()
		w.pass(failover.GuardQuiet - 10*time.Second) // since T and D were cut off
		w.wantUntouched()
		for _, name := range names {
			if got := p.events.reasons("Pod", name+"-0"); !slices.Equal(got, []string{string(failover.GuardTripped)}) {
				t.Errorf("events of pod %s-0: %v, want one GuardTripped", name, got)
			}
		}
		for _, name := range names {
			w.until(time.Minute, name+" runs on B", func() bool { return w.runs(name+"-0", nodeB) })
		}
		if took := time.Since(crashed); took > failover.GuardQuiet+30*time.Second {
			t.Errorf("the last workload ran on B after %s", took)
		}
	})
}

func TestThreeOfFiveNodesSeemLostAndOneIsBack(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.fiveNodes("db")
		for _, node := range []string{nodeT, "node-d"} {
			w.Linstor.CutSatellite(node)
		}
		w.pass(10 * time.Second)
		w.Crash(nodeA)
		w.pass(time.Minute)
		w.wantUntouched()
		w.Linstor.RestoreSatellite("node-d")
		w.until(30*time.Second, "db runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// Two nodes have been away for long. A process that leads only now knows that, if it was there.
func TestANewLeaderKnowsWhichNodesWereLostLongAgo(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		one, two := w.startProcess("one", defaults()), w.startProcess("two", defaults())
		one.leads()
		w.fiveNodes("db")
		for _, node := range []string{nodeT, "node-d"} {
			w.Linstor.CutSatellite(node)
		}
		w.pass(5 * time.Minute)
		one.stops()
		two.leads()
		w.Crash(nodeA)
		w.until(30*time.Second, "db runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}
