package scenarios_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
)

// TestServersThatDieWithTheNode crashes nodes that also run what the controller finds its way by: the cluster's name server, the API
// server that its connections lead to, or both. Each is a fail-over of its own on nodes of its own, and compared with one of a node that
// runs neither. By all defaults of the shipped manifest, with LINSTOR's name in it.
//
// Without what the controller does about it the fail-over takes more than a minute where the API server dies. Dead connections are noticed
// within five seconds; the bound is so much wider because a machine that is busy with other tests does all of that late, and whoever led
// may have given up its Lease.
//
//nolint:tparallel // nothing else may be lost while one is measured
func TestServersThatDieWithTheNode(t *testing.T) {
	t.Parallel()
	if err := bed.CanServeNames(); err != nil {
		t.Skip(err)
	}
	b := bedtest.Own(t, "scenarios-dead-servers", bed.Options{NameServer: true})
	const (
		each     = 3
		mostMore = 20 * time.Second
	)
	dies := []struct {
		name          string
		names, server bool
	}{
		{name: "neither"},
		{name: "the name server", names: true},
		{name: "the API server", server: true},
		{name: "both", names: true, server: true},
	}
	s := bedtest.New(t, b, each*len(dies))
	controllers := controllerNodes(s)
	without := time.Duration(0)
	for i, dead := range dies {
		t.Run(dead.name, func(t *testing.T) {
			s := s.Within(t)
			s.Nodes = s.Nodes[each*i : each*(i+1)]
			w := s.Workload("db-" + string(rune('a'+i)))
			s.Start(w)
			crashed := time.Now()
			s.Crash(s.Nodes[0])
			s.SilenceNameServer(dead.names)
			if dead.server {
				s.StrandAPI(controllers...)
			}
			took := s.WaitMoved(w, s.Nodes[0], crashed)
			t.Logf("the workload ran elsewhere %s after the crash", took.Round(100*time.Millisecond))
			switch {
			case without == 0:
				without = took
			case took > without+mostMore:
				t.Errorf("the workload ran elsewhere %s after the crash, %s without: want at most %s more", took, without, mostMore)
			}
			movedCleanly(s, w, s.Nodes[0])
			s.SilenceNameServer(false)
			s.Return(s.Nodes[0])
			waitUntil(s, "the node to take pods again", func() bool { return len(nodeOf(s, s.Nodes[0]).Spec.Taints) == 0 })
		})
	}
	nothingForbidden(t, b)
}

// controllerNodes returns the nodes that replicas of the controller run on.
func controllerNodes(s *bedtest.Scenario) []string {
	s.T.Helper()
	var pods corev1.PodList
	s.Must(s.Client.List(s.Ctx, &pods, client.InNamespace(bed.ControllerNamespace)))
	nodes := make([]string, len(pods.Items))
	for i := range pods.Items {
		nodes[i] = pods.Items[i].Spec.NodeName
	}
	return nodes
}
