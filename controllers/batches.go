package controllers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// batches serves many callers who want the same of one object, such as a node, by few requests: one runs at a time for
// each object, and whoever comes meanwhile takes part in the next. So each request is sent after everybody whom it serves
// has asked, and its answer is as fresh for them as if they had sent it.
type batches[A, T any] struct {
	// run makes the request for an object, on behalf of all callers.
	run func(ctx context.Context, object string, wanted []A) (T, error)
	// crowded tells whether many callers may be about to come, so that a request waits for them; nil where it never does.
	crowded func() bool

	mu sync.Mutex
	// running has each object for which a request is under way; nil while it waits for more callers.
	running map[string]*batch[A, T]
	next    map[string]*batch[A, T]
}

const (
	// batchQuiet is for how long nobody must have come before a request is sent to which many may: what wakes them all lets them come
	// one by one, and who has missed a request waits for two. batchWait bounds that.
	batchQuiet = 10 * time.Millisecond
	batchWait  = 50 * time.Millisecond
)

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
	if _, running := b.running[object]; !running {
		b.running[object] = nil
		go b.serve(object)
	}
	return own
}

// serve makes one request for the object after the other, until nobody waits for the next.
func (b *batches[A, T]) serve(object string) {
	for {
		b.gather(object)
		own := b.take(object)
		if own == nil {
			return
		}
		own.answer, own.err = b.run(own.ctx, object, own.wanted)
		own.cancel()
		close(own.done)
	}
}

// gather waits, where many may come, until nobody has come for a moment, or nobody waits any more.
func (b *batches[A, T]) gather(object string) {
	for until := time.Now().Add(batchWait); b.crowded != nil && time.Now().Before(until) && b.crowded(); {
		own, before := b.following(object)
		if before == 0 {
			return
		}
		pause(own.ctx, batchQuiet)
		if _, waiting := b.following(object); waiting <= before {
			return
		}
	}
}

// following is the next request for the object, and how many wait for it.
func (b *batches[A, T]) following(object string) (own *batch[A, T], waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own = b.next[object]; own == nil {
		return nil, 0
	}
	return own, own.waiting
}

// take returns the next request for the object, which nobody can join any more; nil, and none is running, where nobody waits for it.
func (b *batches[A, T]) take(object string) *batch[A, T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.next[object]
	delete(b.next, object)
	if own == nil || own.waiting == 0 {
		delete(b.running, object)
		return nil
	}
	b.running[object] = own
	return own
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
