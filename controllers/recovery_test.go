package controllers

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// listedNodes is a LINSTOR that lists nodes.
type listedNodes struct {
	noLinstor
	nodes []linstor.Node
}

func (l listedNodes) Nodes() []linstor.Node { return l.nodes }

// LINSTOR lists nodes for ever that are never ONLINE: of types without a satellite, and evicted. The CSI controller does not wait for them.
func TestWhichNodesOfLinstorAreAwaited(t *testing.T) {
	t.Parallel()
	now := time.Now()
	node := func(online, known bool, age time.Duration) linstor.Node {
		return linstor.Node{Satellite: true, Online: linstor.Fact[bool]{Known: known, Value: online, Confirmed: now.Add(-age)}}
	}
	evicted, auxiliary := node(false, true, 0), node(false, true, 0)
	evicted.Leaving, auxiliary.Satellite = true, false
	r := &Recovery{kubelets: cluster.NewKubelets(clock.RealClock{}, virtual.Driver, nil), linstor: listedNodes{nodes: []linstor.Node{
		node(true, true, 0), node(true, true, failover.MaxAge), node(true, true, failover.MaxAge+1), node(false, true, 0), node(true, false, 0),
		evicted, auxiliary,
	}}}
	if nodes, online := r.online(now); nodes != 5 || online != 2 {
		t.Errorf("%d of %d nodes are ONLINE, want 2 of 5", online, nodes)
	}
}
