package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// periodic does something regularly for as long as the process runs, or leads. What fails is tried again the next time.
type periodic struct {
	name  string
	every time.Duration
	// onLeader is set where it is done by the leader only.
	onLeader bool
	do       func(context.Context) error
	// failure says in the log what cannot be done.
	failure string
}

var _ manager.LeaderElectionRunnable = periodic{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p periodic) NeedLeaderElection() bool { return p.onLeader }

// Start implements manager.Runnable.
func (p periodic) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(p.name)
	ctx = ctrl.LoggerInto(ctx, log)
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if err := p.do(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, p.failure)
		}
	}, p.every)
	return nil
}
