package controllers

import (
	"context"
	"errors"
	"slices"
	"time"
)

// firstPatience is how long the API may take for an answer at first. It is doubled each time that not one of several requests was answered in
// time: one answer that never comes does not hold up the rest of a node for long, and an API that is slow for all is waited for.
const firstPatience = 2 * time.Second

// overslept is how much later than its deadline a wait may end. If it ends later still, this process stood still, and the API need not be slow.
const overslept = 500 * time.Millisecond

// patience is how long the API may take for an answer. It belongs to one goroutine.
type patience struct {
	limit time.Duration // zero is firstPatience
	late  bool          // an answer has taken longer
}

// wait returns how long the API may take for an answer now.
func (p *patience) wait() time.Duration { return max(p.limit, firstPatience) }

// within returns a context for requests to the API, which may take as long as that at most.
func (p *patience) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(p.wait(), limit))
}

// answered records the answers to requests that were sent at the same time with a context of within.
func (p *patience) answered(ctx context.Context, errs ...error) {
	if deadline, _ := ctx.Deadline(); time.Since(deadline) > overslept {
		return
	}
	p.late = p.late || len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, context.DeadlineExceeded) })
}

// learn adapts the patience to the answers of a reconcile.
func (p *patience) learn(limit time.Duration) {
	if p.late {
		p.limit = min(2*p.wait(), limit)
	}
	p.late = false
}
