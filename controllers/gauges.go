package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// gaugesInterval is how often the gauges are set. Prometheus asks for them more rarely, and alerts wait for a minute.
	gaugesInterval = 5 * time.Second
	// bystandersInterval is how often all pods are listed, which is the only question here that is expensive.
	bystandersInterval = 5 * time.Minute
	// partsApart is the time between two parts of that list: read at once, 25,000 pods keep this process and the API server from
	// everything else for a second. A list must be over within the five minutes after which the API server forgets how to go on.
	partsApart = time.Second
	// silentForGood is for how long a silent kubelet is counted.
	silentForGood = 100 * 24 * time.Hour
)

// Gauges shows in metrics what is so at the moment, from what is known anyway. It runs on the leader only, so that everything is
// counted once, and changes nothing.
type Gauges struct {
	cache    client.Reader
	live     client.Reader
	volumes  cluster.Volumes
	kubelets *cluster.Kubelets
	selector labels.Selector
	// silence is how long a kubelet must not have renewed its Lease to count as silent.
	silence time.Duration
	reports *nodeReports
	halt    *haltSwitch
	agents  *nodeAgents
	metrics *metrics.Metrics
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Gauges) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (g *Gauges) Start(ctx context.Context) error {
	g.metrics.Lead()
	if err := g.agents.look(ctx); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, failureOfAgents)
	}
	var loops sync.WaitGroup
	loops.Go(func() { wait.NonSlidingUntilWithContext(ctx, g.show, gaugesInterval) })
	loops.Go(func() {
		wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
			if err := g.showBystanders(ctx); err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot count the pods that are not selected")
			}
		}, bystandersInterval)
	})
	loops.Wait()
	return nil
}

// show sets all gauges that need no list of all pods.
func (g *Gauges) show(ctx context.Context) {
	verdicts, blocked := make(map[failover.Verdict]int), make(map[failover.Reason]int)
	g.reports.each(func(_ string, report *nodeReport) {
		for verdict, n := range report.verdicts {
			verdicts[verdict] += n
		}
		for reason, n := range report.blocked {
			blocked[reason] += n
		}
	})
	g.metrics.Volumes(verdicts)
	g.metrics.BlockedNow(blocked)
	g.metrics.Paused(g.halt.now(ctx).Paused != "")
	g.metrics.NodeAgents(g.agents.count())
	g.metrics.SilentKubelets(len(g.kubelets.Silent(g.silence, silentForGood)))
	tainted, err := g.tainted(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot count tainted nodes")
		return
	}
	g.metrics.Tainted(tainted)
}

// tainted counts nodes by the taints of ours that they have.
func (g *Gauges) tainted(ctx context.Context) (map[metrics.Taint]int, error) {
	var nodes corev1.NodeList
	if err := g.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	counts := make(map[metrics.Taint]int)
	for i := range nodes.Items {
		if cluster.HasTaint(&nodes.Items[i], cluster.TaintLostQuorum, "") {
			counts[metrics.LostQuorum]++
		}
		if cluster.HasTaint(&nodes.Items[i], cluster.TaintNodeSilent, "") {
			counts[metrics.NodeSilent]++
		}
	}
	return counts, nil
}
