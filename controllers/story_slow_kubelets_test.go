package controllers

import (
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func TestKubeletsThatRenewEvery30Seconds(t *testing.T) {
	const duration = 120 * time.Second
	slow := func(t *testing.T, tell func(w *world, p *process)) {
		inWorld(t, virtual.Options{}, func(w *world) {
			for _, node := range []string{nodeA, nodeB, nodeT} {
				w.SetLease(node, duration)
			}
			cfg := defaults()
			p := w.startProcess("one", cfg)
			p.leads()
			w.volume("db")
			w.workload("db", selected)
			w.pass(5 * time.Minute)
			w.wantRunning("db-0", nodeA)
			tell(w, p)
		})
	}
	t.Run("are never called silent while they live", func(t *testing.T) {
		slow(t, func(w *world, p *process) {
			for range 300 {
				w.pass(time.Second)
				if silent := p.kubelets.Silent(failover.ForceSilence, time.Hour); len(silent) > 0 {
					t.Fatalf("silent are %v", silent)
				}
			}
			w.wantUntouched()
		})
	})
	t.Run("are found silent after a crash", func(t *testing.T) {
		slow(t, func(w *world, p *process) {
			w.Crash(nodeA)
			w.until(40*time.Second, "A is silent", func() bool {
				return slices.Contains(p.kubelets.Silent(failover.ForceSilence, time.Hour), nodeA)
			})
			w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		})
	})
}
