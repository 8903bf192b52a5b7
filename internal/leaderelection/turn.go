package leaderelection

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/options"
)

// turnLasts is how far apart replicas end that do so by themselves.
const turnLasts = 15 * time.Second

// Turn returns what waits until this replica may end, and no other one does in the next 15 seconds: it takes a Lease, and leaves it to expire. It returns
// an error if its context ends before.
func Turn(opts options.Options, config *rest.Config) (func(context.Context) error, error) {
	lock, err := lockNamed(opts.LeaderElectionResourceName+"-restart", opts, config)
	if err != nil {
		return nil, err
	}
	return TurnBy(lock), nil
}

// TurnBy is [Turn] by a given lock.
func TurnBy(lock resourcelock.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		came := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: turnLasts, RenewDeadline: turnLasts * 2 / 3, RetryPeriod: turnLasts / 8,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(came) }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			return fmt.Errorf("taking %s: %w", lock.Describe(), err)
		}
		go elector.Run(ctx)
		select {
		case <-came:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("taking %s: %w", lock.Describe(), ctx.Err())
		}
	}
}
