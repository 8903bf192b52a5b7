package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func csiNode(name string, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
}

// listing is a LINSTOR that lists one node.
type listing struct {
	noLinstor
	node string
}

func (l listing) Node(name string) (linstor.Node, bool) {
	return linstor.Node{Name: name}, name == l.node
}

func TestANodeThatLinstorDoesNotList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.inputs.Linstor = listing{node: nodeB}
		if node := s.r.inputs.Node(nodeA); !node.Unlisted || node.Satellite != nodeA {
			t.Errorf("%+v, want one that is not listed", node)
		}
		s.r.kubelets.ObserveCSINode(csiNode(nodeA, storagev1.CSINodeDriver{Name: virtual.Driver, NodeID: nodeB}))
		if node := s.r.inputs.Node(nodeA); node.Unlisted || node.Satellite != nodeB {
			t.Errorf("%+v, want the listed one", node)
		}
	})
}

func TestTheLostNodesAreToldByTheirNamesInLinstor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.kubelets.ObserveCSINode(csiNode(nodeA, storagev1.CSINodeDriver{Name: virtual.Driver, NodeID: "A"}))
		s.state.volume(s.pv.Name).decided(failover.Decision{Verdict: failover.Lost, Loss: failover.NodeUnreachable}, time.Now())
		s.r.publish(s.state)
		if lost := s.r.halt.lost(); len(lost) != 1 || !lost["a"] {
			t.Errorf("lost are %v, want a", lost)
		}
	})
}

// domain ends the names of nodes in Kubernetes that LINSTOR has by their short names.
const domain = ".example.com"

// namedApart is a scene with such nodes.
func namedApart(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{Domain: domain}, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes = []string{nodeA + domain, nodeB + domain} })
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA+domain)
		tell(w, p)
	})
}

func TestANodeWithAnotherNameInLinstorCrashes(t *testing.T) {
	namedApart(t, func(w *world, _ *process) {
		w.Crash(nodeA + domain)
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB+domain) })
		w.Return(nodeA + domain)
		w.until(3*time.Minute, "A takes pods again", func() bool { return w.tainted(nodeA+domain) == "" })
	})
}

func TestANodeWithAnotherNameInLinstorIsHealthy(t *testing.T) {
	namedApart(t, func(w *world, _ *process) {
		w.pass(10 * time.Minute)
		w.wantUntouched()
	})
}

func TestANodeWithAnotherNameInLinstorLosesItsStorageNetwork(t *testing.T) {
	namedApart(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.untilRemoved(10*time.Second, "db-0")
	})
}
