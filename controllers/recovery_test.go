package controllers

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
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
	away := node(false, true, 0)
	away.Name = "away"
	r := &Recovery{spared: func() map[string]bool { return map[string]bool{"away": true} }, shared: shared{linstor: listedNodes{nodes: []linstor.Node{
		node(true, true, 0), node(true, true, failover.MaxAge), node(true, true, failover.MaxAge+1), node(false, true, 0), node(true, false, 0),
		evicted, auxiliary, away,
	}}}}
	if nodes, online := r.online(now); nodes != 5 || online != 2 {
		t.Errorf("%d of %d nodes are ONLINE, want 2 of 5", online, nodes)
	}
}
