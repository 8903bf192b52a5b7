package csidriver

import (
	"context"
	"time"
)

// cache keeps an answer of LINSTOR for a while, as golinstor's does: one lock, held while the request runs, so that all wait for
// a request that hangs; the answer counts from the start of its request; an error is not kept.
type cache[T any] struct {
	timeout time.Duration
	// lock is one by channel: who waits for it does not keep a clock of a test bubble from going on.
	lock  chan struct{}
	began time.Time
	kept  T
}

func newCache[T any](timeout time.Duration) *cache[T] {
	return &cache[T]{timeout: timeout, lock: make(chan struct{}, 1)}
}

// get returns the kept answer, or reads another one. It waits for its turn however long that takes.
func (c *cache[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	now := time.Now()
	if !c.began.IsZero() && now.Sub(c.began) < c.timeout {
		return c.kept, nil
	}
	answer, err := read(ctx)
	if err != nil {
		return answer, err
	}
	c.kept, c.began = answer, now
	return answer, nil
}

// drop forgets the answer.
func (c *cache[T]) drop() {
	c.lock <- struct{}{}
	c.began = time.Time{}
	<-c.lock
}

// caches are the two that the driver has.
type caches struct {
	nodes *cache[[]node]
	view  *cache[[]replica]
}

func newCaches(options Options) *caches {
	return &caches{newCache[[]node](options.NodeCache), newCache[[]replica](options.ResourceCache)}
}
