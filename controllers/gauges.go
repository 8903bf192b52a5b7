package controllers

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// partsApart is the time between two parts of a list of all pods: read at once, 25,000 pods keep this process and the API server from everything
// else for a second. A list must be over within the five minutes after which the API server forgets how to go on.
const partsApart = time.Second

// Gauges shows the present state in metrics. It reads memory and caches, but for the pods that are not selected. It runs on the leader only, so
// everything is counted once, and changes nothing.
type Gauges struct {
	shared

	selector labels.Selector
	reports  *nodeReports
	halt     *haltSwitch
	agents   *nodeAgents
	begun    bool
}

// show sets all gauges that need no list of all pods.
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

// showBystanders counts the pods that the controller does nothing about although they could be moved. The cache has selected pods only:
// all are read past it, a part at a time.
func (g *Gauges) showBystanders(ctx context.Context) error {
	unselected := 0
	err := eachPod(ctx, g.api, partsApart, func(pod *corev1.Pod) error {
		if g.selector.Matches(labels.Set(pod.Labels)) || !cluster.Movable(pod) {
			return nil
		}
		volumes, err := g.volumes.OfPod(ctx, pod)
		if len(volumes) > 0 {
			unselected++
		}
		return err
	})
	if err == nil {
		g.metrics.Unselected(unselected)
	}
	return err
}

// eachPod visits all pods past the cache, a part at a time. The next part is read some time after the one before.
func eachPod(ctx context.Context, live client.Reader, apart time.Duration, visit func(*corev1.Pod) error, options ...client.ListOption) error {
	next := ""
	return wait.PollUntilContextCancel(ctx, apart, true, func(ctx context.Context) (done bool, err error) {
		var pods corev1.PodList
		if err := live.List(ctx, &pods, append(options, client.Limit(listedAtOnce), client.Continue(next))...); err != nil {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		for i := range pods.Items {
			if err := visit(&pods.Items[i]); err != nil {
				return false, err
			}
		}
		next = pods.Continue
		return next == "", nil
	})
}
