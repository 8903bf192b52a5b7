package bed

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often WaitFor looks again.
const pollInterval = 100 * time.Millisecond

// WaitFor calls condition until it returns true, and fails when ctx ends. What names the thing that is
// waited for, as it shall read after "waiting for". An error of condition means "not yet": the last one
// is part of the error that WaitFor returns.
func WaitFor(ctx context.Context, what string, condition func() (bool, error)) error {
	started := time.Now()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := condition()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: gave up after %s: %w", what,
				time.Since(started).Round(pollInterval), errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// WaitFor is the function WaitFor, which also fails at once when a process of the bed has ended.
func (b *Bed) WaitFor(ctx context.Context, what string, condition func() (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return WaitFor(ctx, what, func() (bool, error) {
		if err := b.Err(); err != nil {
			cancel(err)
			return false, nil
		}
		return condition()
	})
}
