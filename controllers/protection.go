package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

const (
	// protectionInterval is how often the forecast for all selected pods is made. If that takes more than a thousandth of it, because there are many, it
	// is made less often, but at least every protectionIntervalMax.
	protectionInterval    = time.Minute
	protectionIntervalMax = 10 * protectionInterval
	protectionShare       = 1000
)

// Protection keeps the metric of unprotected pods: those that would not be moved if their node were lost now. It runs on the leader only. It lists the
// helpers of KubeVirt; everything else is in memory.
type Protection struct {
	shared

	survey  *cluster.Survey
	helpers *helpers
	halt    *haltSwitch
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each pod is counted once.
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
	counts, protections := make(map[failover.Reason]int), make(map[metrics.Protection]int)
	err := p.survey.Each(ctx, "", func(pod *corev1.Pod, uses []cluster.Use) {
		for i := range uses {
			if uses[i].Input.Node.Name == "" {
				continue
			}
			uses[i].Input.Halt = halt
			uses[i].Input.Halt.Guard = guard(uses[i].Input.Node.Satellite)
		}
		protection, reason := protectionOf(uses)
		if reason != "" {
			counts[reason]++
		}
		if p.helpers.selector.Matches(labels.Set(pod.Labels)) {
			protections[protection]++
		}
	})
	if err != nil {
		return err
	}
	missed, err := p.helpers.look(ctx)
	counts[failover.HelperNotSelected] += missed
	p.metrics.Unprotected(counts)
	p.metrics.Protected(protections)
	return err // the others are counted all the same
}

// protectionOf returns what the loss of its node would mean for a pod: the worst that it means for one of its volumes. There is a reason if the pod
// would stay, or if that is unknown.
func protectionOf(uses []cluster.Use) (worst metrics.Protection, reason failover.Reason) {
	if len(uses) == 0 {
		return metrics.NoVolume, ""
	}
	found := make(map[failover.Outlook]bool)
	for _, use := range uses {
		if use.Input.Node.Name == "" {
			found[failover.Starting] = true
			continue
		}
		f := failover.Foresee(use.Input)
		if f.Outlook == failover.Unprotected || f.Outlook == failover.Untold {
			return metrics.Protection(f.Outlook), f.Reason
		}
		found[f.Outlook] = true
	}
	for _, outlook := range []failover.Outlook{failover.Failing, failover.Starting} {
		if found[outlook] {
			return metrics.Protection(outlook), ""
		}
	}
	return metrics.Protection(failover.Protected), ""
}
