package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

// periodic does something regularly as long as the process runs, or leads. What fails is tried again the next time. The log reports the failure when it
// begins, when it changes, and once a minute.
type periodic struct {
	name  string
	every time.Duration
	// onLeader is set if only the leader does it.
	onLeader bool
	do       func(context.Context) error
	// failure is the log message if it fails.
	failure string
}

// sayAgain is how often the log repeats the same failure.
const sayAgain = time.Minute

var _ manager.LeaderElectionRunnable = periodic{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (p periodic) NeedLeaderElection() bool { return p.onLeader }

// Start implements manager.Runnable.
func (p periodic) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(p.name)
	ctx = ctrl.LoggerInto(ctx, log)
	var last string // of its errors, and when that was said
	var said time.Time
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		err := safely.Do(func() error { return p.do(ctx) })
		switch {
		case err == nil, ctx.Err() != nil:
			last = ""
		case err.Error() != last || time.Since(said) >= sayAgain:
			last, said = err.Error(), time.Now()
			log.Error(err, p.failure)
		}
	}, p.every)
	return nil
}
