package controllers

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// batches serves many callers who want the same of one object, such as a node, by few requests: one runs at a time for
// each object, and whoever comes meanwhile takes part in the next. So each request is sent after everybody whom it serves
// has asked, and its answer is as fresh for them as if they had sent it.
type batches[A, T any] struct {
	// run makes the request for an object, on behalf of all callers.
	run func(ctx context.Context, object string, wanted []A) (T, error)

	mu      sync.Mutex
	running map[string]*batch[A, T]
	next    map[string]*batch[A, T]
}

// batch is one request.
type batch[A, T any] struct {
	wanted []A
	// waiting is how many wait for the answer; when nobody does any more, cancel ends the request.
	waiting int
	ctx     context.Context //nolint:containedctx // of the request, which outlives the caller who began it
	cancel  context.CancelFunc
	done    chan struct{}
	answer  T // valid once done is closed, like err
	err     error
}

func newBatches[A, T any](run func(context.Context, string, []A) (T, error)) *batches[A, T] {
	return &batches[A, T]{run: run, running: make(map[string]*batch[A, T]), next: make(map[string]*batch[A, T])}
}

// do takes part in the next request for the object. The answer is shared, and must not be changed.
func (b *batches[A, T]) do(ctx context.Context, object string, wanted A) (T, error) {
	own := b.join(ctx, object, wanted)
	select {
	case <-own.done:
		return own.answer, own.err
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		if own.waiting--; own.waiting == 0 {
			own.cancel()
		}
		return *new(T), ctx.Err()
	}
}

func (b *batches[A, T]) join(ctx context.Context, object string, wanted A) *batch[A, T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.next[object]
	if own == nil || own.waiting == 0 {
		own = &batch[A, T]{done: make(chan struct{})}
		// Others are served, too: the request does not end with the caller that happened to be the first.
		own.ctx, own.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // cancel is called when it ends
		b.next[object] = own
	}
	own.wanted = append(own.wanted, wanted)
	own.waiting++
	if b.running[object] == nil {
		b.start(object)
	}
	return own
}

// start begins the next request for the object; the lock is held.
func (b *batches[A, T]) start(object string) {
	own := b.next[object]
	delete(b.next, object)
	if own == nil || own.waiting == 0 {
		delete(b.running, object)
		return
	}
	b.running[object] = own
	go func() {
		own.answer, own.err = b.run(own.ctx, object, own.wanted)
		own.cancel()
		close(own.done)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.start(object)
	}()
}

// objects returns for which objects a request is under way.
func (b *batches[A, T]) objects() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.running))
}

// turns lets one caller at a time work on an object.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	token chan struct{}
	users int
}

// take waits for the caller's turn, which ends when the returned function is called. It fails only when ctx ends.
func (t *turns) take(ctx context.Context, object string) (end func(), err error) {
	t.mu.Lock()
	own := t.held[object]
	if own == nil {
		own = &turn{token: make(chan struct{}, 1)}
		if t.held == nil {
			t.held = make(map[string]*turn)
		}
		t.held[object] = own
	}
	own.users++
	t.mu.Unlock()
	select {
	case own.token <- struct{}{}:
		return func() {
			<-own.token
			t.leave(object, own)
		}, nil
	case <-ctx.Done():
		t.leave(object, own)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(object string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.held, object)
	}
}
