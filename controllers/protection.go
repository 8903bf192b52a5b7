package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// protectionInterval is how often the forecast for all selected pods is made again. Where there are so many that it takes
	// more than a thousandth of that it is made less often, but at least every protectionIntervalMax.
	protectionInterval    = time.Minute
	protectionIntervalMax = 10 * time.Minute
	protectionShare       = 1000
)

// Protection keeps the metric of unprotected pods: those that would not be moved if their node were lost now. It runs
// on the leader only, and asks nobody but for the helpers of KubeVirt: all else that it looks at is in memory.
type Protection struct {
	survey  *cluster.Survey
	clock   clock.PassiveClock
	helpers *helpers
	halt    *haltSwitch
	metrics *metrics.Metrics
}

// NeedLeaderElection implements manager.LeaderElectionRunnable, so that each pod is counted once.
func (*Protection) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. What cannot be read now is read the next time.
func (p *Protection) Start(ctx context.Context) error {
	for {
		began := time.Now()
		if err := p.count(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot tell how many pods are protected")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(max(protectionInterval, protectionShare*time.Since(began)), protectionIntervalMax)):
		}
	}
}

func (p *Protection) count(ctx context.Context) error {
	halt, guard := p.halt.now(ctx), p.halt.imagined(p.clock.Now())
	counts := make(map[failover.Reason]int)
	err := p.survey.Each(ctx, "", func(_ *corev1.Pod, uses []cluster.Use) {
		for _, use := range uses {
			if use.Input.Node.Name == "" {
				continue
			}
			use.Input.Halt = halt
			use.Input.Halt.Guard = guard(use.Input.Node.Satellite)
			if f := failover.Foresee(use.Input); f.Outlook == failover.Unprotected || f.Outlook == failover.Untold {
				counts[f.Reason]++
				return // each pod counts once
			}
		}
	})
	if err != nil {
		return err
	}
	missed, err := p.helpers.look(ctx)
	counts[failover.HelperNotSelected] += missed
	p.metrics.Unprotected(counts)
	return err // the others are counted all the same
}
