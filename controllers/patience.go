package controllers

import (
	"context"
	"time"
)

// firstPatience is how long the API may take for an answer at first. It is doubled each time that nothing could be decided or done because nobody
// answered: one answer that never comes does not hold up the rest of a node for long, and an API that is slow for all is waited for.
const firstPatience = 2 * time.Second

// overslept is how much later than its deadline a wait may end. If it ends later still, this process stood still, and the API need not be slow.
const overslept = 500 * time.Millisecond

// patience is how long the API may take for an answer. It belongs to one goroutine.
type patience struct {
	limit time.Duration // zero is firstPatience
	stood bool          // this process stood still during a wait
}

func (p *patience) wait() time.Duration { return max(p.limit, firstPatience) }

// within returns a context for requests to the API, which may take as long as that at most, and what to call when they are answered.
func (p *patience) within(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, min(p.wait(), limit))
	return ctx, func() {
		deadline, _ := ctx.Deadline()
		p.stood = p.stood || time.Since(deadline) > overslept
		cancel()
	}
}

// learn doubles the wait after a reconcile in which nobody answered, unless this process stood still.
func (p *patience) learn(late bool, limit time.Duration) {
	if late && !p.stood {
		p.limit = min(2*p.wait(), limit)
	}
	p.stood = false
}
