package controllers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// bell calls the FailoverReconciler to the nodes that have lost volumes.
type bell struct {
	mu sync.Mutex
	// ctx is that of the controller, and queue its queue; nil until it has started.
	ctx   context.Context //nolint:containedctx // of who is called
	queue queue
	// called are the nodes for which it was rung before.
	called []string
	// more is closed, by node, when it is rung there.
	more map[string]chan struct{}
	// inHand are the volumes, by node, that the last round there dealt with and that another one will by itself.
	inHand map[string]map[string]bool
}

func newBell() *bell {
	return &bell{more: make(map[string]chan struct{}), inHand: make(map[string]map[string]bool)}
}

// source is where the controller hears it.
func (b *bell) source() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ctx, b.queue = ctx, q
		for _, node := range b.called {
			q.Add(requestOf(node))
		}
		b.called = nil
		return nil
	})
}

// requestOf asks for a look at a node or a volume.
func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

// ring calls to a node that has lost a volume, unless the volume is in hand there.
func (b *bell) ring(volume, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.inHand[node][volume] {
		b.call(node)
	}
}

// ringIn rings after a while for the volumes that are in hand on a node, unless it is stopped before.
func (b *bell) ringIn(wait time.Duration, node string) (stop func() bool) {
	return time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.call(node)
	}).Stop
}

// call calls to a node. The lock must be held.
func (b *bell) call(node string) {
	if more := b.more[node]; more != nil {
		close(more)
		delete(b.more, node)
	}
	if b.queue == nil {
		b.called = append(b.called, node)
	} else {
		b.queue.Add(requestOf(node))
	}
}

// listen returns what is closed when it is rung at a node from now on.
func (b *bell) listen(node string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more[node] == nil {
		b.more[node] = make(chan struct{})
	}
	return b.more[node]
}

// hold notes which volumes are in hand on a node.
func (b *bell) hold(node string, volumes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(volumes) == 0 {
		delete(b.inHand, node)
		delete(b.more, node)
		return
	}
	held := make(map[string]bool, len(volumes))
	for _, volume := range volumes {
		held[volume] = true
	}
	b.inHand[node] = held
}

// holds tells whether a volume is in hand on a node.
func (b *bell) holds(volume, node string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inHand[node][volume]
}

// lifetime is the context of the controller that is called, which outlives a round; ctx where none has started.
func (b *bell) lifetime(ctx context.Context) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return ctx
	}
	return b.ctx
}

// remembered are the nodes with volumes in hand.
func (b *bell) remembered() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.inHand))
}
