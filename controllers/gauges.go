package controllers

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// Gauges shows the present state in metrics. It reads memory and caches. It runs on the leader only, so everything is counted once, and changes
// nothing.
type Gauges struct {
	shared

	reports *nodeReports
	halt    *haltSwitch
	agents  *nodeAgents
	begun   bool
}

// show sets all gauges.
func (g *Gauges) show(ctx context.Context) error {
	if !g.begun {
		g.begun = true
		g.metrics.Lead()
		_ = g.agents.look(ctx) // if this fails, it is tried again and reported then
	}
	verdicts, blocked := make(map[failover.Verdict]int), make(map[failover.Reason]int)
	g.reports.each(func(_, _ string, report volumeReport) {
		verdicts[report.verdict]++
		blocked[report.blocks]++
	})
	g.metrics.Volumes(verdicts)
	g.metrics.BlockedNow(blocked)
	g.metrics.Paused(g.halt.now(ctx, haltAge).Paused != "")
	g.metrics.NodeAgents(g.agents.count())
	g.metrics.SilentKubelets(len(g.kubelets.Silent(g.settings.KubeletSilence, math.MaxInt64)))
	var nodes corev1.NodeList
	if err := g.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	tainted := make(map[metrics.Taint]int)
	for i := range nodes.Items {
		for key, taint := range map[string]metrics.Taint{cluster.TaintLostQuorum: metrics.LostQuorum, cluster.TaintNodeSilent: metrics.NodeSilent} {
			if cluster.HasTaint(&nodes.Items[i], key, "") {
				tainted[taint]++
			}
		}
	}
	g.metrics.Tainted(tainted)
	return nil
}
