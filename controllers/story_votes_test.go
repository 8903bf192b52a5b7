package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// Nodes that LINSTOR reaches stop counting a replica as soon as it is on its way out. Those that are cut off go on counting it, and together
// with it they may hold the majority of before, while the others hold that of now.
func TestAReplicaOnItsWayOutHasItsVoteWhereNobodyHasHeardOfThat(t *testing.T) {
	t.Parallel()
	const nodeC, nodeE = "node-c", "node-e"
	for name, c := range map[string]struct {
		disks []string
		// with are the nodes that stay with A, and before tells whether they are cut off from LINSTOR before the deed, and from DRBD after it.
		with   []string
		before bool
		deed   func(w *world) error
	}{
		"somebody deletes it": {
			[]string{nodeA, nodeB, nodeC}, []string{nodeB}, true, func(w *world) error { return w.Linstor.RemoveReplica("pvc-db", nodeB) },
		},
		"somebody deletes it after the cut": {
			[]string{nodeA, nodeB, nodeC, nodeE},
			[]string{nodeB, nodeT},
			false,
			func(w *world) error { return w.Linstor.RemoveReplica("pvc-db", nodeB) },
		},
		"LINSTOR evicts its node": {
			[]string{nodeA, nodeB, nodeC, nodeE}, []string{nodeB, nodeT}, false, func(w *world) error { return w.Linstor.Evict(nodeB) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				w.must(w.AddNode(w.ctx, nodeC))
				w.must(w.AddNode(w.ctx, nodeE))
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db", func(v *virtual.Volume) { v.Diskful = c.disks })
				w.workload("db", selected)
				w.pass(time.Minute)
				together := append([]string{nodeA}, c.with...)
				for _, near := range together {
					w.Linstor.CutSatellite(near)
				}
				if c.before {
					w.pass(3 * time.Minute)
					w.must(c.deed(w))
					w.pass(2 * time.Minute)
				}
				for _, near := range together {
					w.SilenceKubelet(near)
					for _, far := range []string{nodeB, nodeC, nodeE, nodeT} {
						if !slices.Contains(together, far) {
							w.DRBD.CutLink(near, far)
						}
					}
				}
				if !c.before {
					w.pass(10 * time.Minute)
					w.must(c.deed(w))
				}
				w.pass(5 * time.Minute)
				w.wantWriting(nodeA)
			})
		})
	}
}
