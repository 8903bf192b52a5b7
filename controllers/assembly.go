package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// Assembly is the controllers put together without a manager, for a simulation that runs them over models of the API and
// of LINSTOR in virtual time. Who assembles them indexes the cache by [AddIndexes], tells the Kubelets what changes, and
// feeds the queues as SetUp would.
type Assembly struct {
	parts parts
}

// Assemble puts the controllers together. live reads past the cache.
func Assemble(cfg Config, kubelets *cluster.Kubelets, c client.Client, cache, live client.Reader, recorder events.EventRecorder) *Assembly {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Assembly{parts: assemble(cfg, kubelets, c, cache, live, recorder)}
}

// Clock returns the reconciler of volumes that runs on every replica.
func (a *Assembly) Clock() reconcile.Reconciler { return a.parts.clock }

// Volume returns the reconciler of volumes that runs on the leader.
func (a *Assembly) Volume() reconcile.Reconciler { return a.parts.volume }

// Failover returns the reconciler of nodes that runs on the leader.
func (a *Assembly) Failover() reconcile.Reconciler { return a.parts.failover }

// KeepAway returns the reconciler of nodes that runs on the leader.
func (a *Assembly) KeepAway() reconcile.Reconciler { return a.parts.keepAway }

// Vigil returns the runnable that runs on every replica.
func (a *Assembly) Vigil() manager.Runnable { return a.parts.vigil }

// Burial returns the runnable that forgets replicas which are gone, on every replica.
func (a *Assembly) Burial() manager.Runnable { return a.parts.burial }

// Lookout returns the runnable that finds out whether LINSTOR is blind, on every replica.
func (a *Assembly) Lookout() manager.Runnable { return a.parts.lookout }

// Recovery returns what brings LINSTOR's own pods back, which runs on the leader.
func (a *Assembly) Recovery() *Recovery { return a.parts.recovery }

// Attaching returns what tells why volumes are not attached, which runs on the leader.
func (a *Assembly) Attaching() *Attaching { return a.parts.attaching }

// Volumes returns which volumes have to be looked at when an object of the API has changed.
func (a *Assembly) Volumes(ctx context.Context, o client.Object) []reconcile.Request {
	if o, ok := o.(*corev1.PersistentVolume); ok {
		return []reconcile.Request{requestOf(o.Name)}
	}
	return a.parts.volume.gather.watch.requests(ctx, o)
}

// Doorbell returns the source that rings at the leader's reconciler for the volumes of a resource when LINSTOR's word on it changes.
func (a *Assembly) Doorbell() source.Source { return a.parts.volume.gather.watch.doorbell() }

// Bell returns the source that rings at the leader's reconciler of nodes for those with lost volumes.
func (a *Assembly) Bell() source.Source { return a.parts.failover.bell.source() }

// Node returns the node that has to be looked at when an object of the API has changed.
func (a *Assembly) Node(ctx context.Context, o client.Object) []reconcile.Request {
	return a.parts.failover.nodeOf(ctx, o)
}

// Silence returns the source that rings at the leader's reconciler for the volumes on nodes whose kubelets have fallen silent.
func (a *Assembly) Silence() source.Source { return a.parts.volume.silence() }

// ClockDoorbell returns the same as Doorbell for the reconciler that runs on every replica.
func (a *Assembly) ClockDoorbell() source.Source { return a.parts.clock.gather.watch.doorbell() }

// Options returns with which options a controller runs by this configuration.
func (c Config) Options() controller.Options { return controllerOptions(c) }

// Remembered lists what the controllers keep in memory of fail-overs: one line for each volume that something was said of,
// for each node with a round that another one follows, and how many requests are under way. Nothing is left of
// it when all is well.
func (a *Assembly) Remembered() []string {
	var lines []string
	reports := a.parts.failover.reporter.reports
	reports.mu.Lock()
	for _, volume := range slices.Sorted(maps.Keys(reports.said)) {
		for _, node := range slices.Sorted(maps.Keys(reports.said[volume])) {
			s := reports.said[volume][node]
			lines = append(lines, fmt.Sprintf("said of volume %s on node %s: %s %s", volume, node, s.verdict, s.reason))
		}
	}
	reports.mu.Unlock()
	for _, wait := range a.parts.failover.reporter.waits.remembered() {
		lines = append(lines, "a wait of "+wait)
	}
	for _, node := range a.parts.failover.bell.remembered() {
		lines = append(lines, "a round on node "+node)
	}
	if n := a.parts.failover.requests.remembered(); n > 0 {
		lines = append(lines, fmt.Sprintf("%d requests", n))
	}
	return lines
}
