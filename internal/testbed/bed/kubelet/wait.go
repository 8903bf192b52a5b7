package kubelet

import (
	"context"
	"time"
)

// sleep waits for d and tells whether ctx was still alive at the end of it.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// retry calls try until it succeeds, waiting between lo and hi (doubling) after each failure, and
// tells whether it succeeded before ctx ended.
func retry(ctx context.Context, lo, hi time.Duration, try func(ctx context.Context) error) bool {
	for delay := lo; ctx.Err() == nil; delay = min(2*delay, hi) {
		if try(ctx) == nil {
			return true
		}
		if !sleep(ctx, delay) {
			break
		}
	}
	return false
}
