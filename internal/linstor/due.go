package linstor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// pollsAtOnce is how many polls are under way at once; most of them wait for a request for many.
	pollsAtOnce = 2048
	// eventsAtOnce is how many events a second lead to a read at once, with as many in reserve. What others are about is read at
	// times that are eventsApart, or calmEventsApart where nothing waits for it: what changes at about the same time is read once
	// and, if it is much, together, and decisions on what has changed come first. The latter is well below MaxGap, so that no
	// clock notices it.
	eventsAtOnce    = 16
	eventsApart     = 50 * time.Millisecond
	calmEventsApart = 500 * time.Millisecond

	// keepInterval is how far the begins of two readings of a kept resource are apart.
	keepInterval = time.Second
	// keepAlong is how much sooner a resource is read where others are due: what is read together once stays together.
	keepAlong = 200 * time.Millisecond
	// keepRetry is when it is tried again to read what could not be.
	keepRetry = 500 * time.Millisecond
	// keepIdle is how long a keeper sleeps at most.
	keepIdle = time.Minute
)

// Poll asks for a read of one resource definition soon. Requests for the same one are coalesced, the
// oldest is served first, and all together are limited to Options.ReadsPerSecond. It never blocks.
// Before the feed has started it does nothing: the first thing a feed does is to read everything.
func (f *Feed) Poll(resource string) { f.pollLater(f.store.displayName(resource), 0) }

// pollLater asks for a read after a while.
func (f *Feed) pollLater(resource string, delay time.Duration) {
	if queue := f.queue.Load(); queue != nil {
		(*queue).AddAfter(resource, delay)
	}
}

func (f *Feed) pollAll() {
	for _, name := range f.store.listedNames() {
		f.Poll(name)
	}
}

// pollAfterEvent asks for a read of what an event was about: at once while there are few events, else at the same time as of what
// others are about. That takes longest where nothing waits for it: a process that does not lead decides nothing, a replica that may
// no longer be promoted ends by itself each clock that rests on it, and what is kept is read every second anyway. The last two come
// for every volume that is used again after a loss of many. They leave half of what can be read at once to others.
func (f *Feed) pollAfterEvent(ev client.Event) {
	now := time.Now()
	apart, spare := eventsApart, 0
	if !f.leads() || ev.MayPromote != nil && !*ev.MayPromote || f.keeper.keeps(ev.Resource, now) {
		apart, spare = calmEventsApart, eventsAtOnce/2
	}
	if f.eventLimiter.TokensAt(now) > float64(spare) && f.eventLimiter.AllowN(now, 1) {
		f.Poll(ev.Resource)
		return
	}
	f.pollLater(f.store.displayName(ev.Resource), now.Truncate(apart).Add(apart).Sub(now))
}

// leads tells whether this process leads.
func (f *Feed) leads() bool {
	if f.opts.Elected == nil {
		return true
	}
	select {
	case <-f.opts.Elected:
		return true
	default:
		return false
	}
}

// work serves polls until the queue is shut down and all are done.
func (f *Feed) work(ctx context.Context, queue pollQueue) {
	var running errgroup.Group
	running.SetLimit(pollsAtOnce)
	for {
		name, shutdown := queue.Get()
		if shutdown {
			_ = running.Wait() // their errors have been told
			return
		}
		running.Go(func() error {
			f.serve(ctx, queue, name)
			return nil
		})
	}
}

func (f *Feed) serve(ctx context.Context, queue pollQueue, name string) {
	err := f.poll(ctx, name)
	switch {
	case err == nil || errors.Is(err, ErrNotFound) || f.watch.Load() == nil:
		// While there is no connection, the resync that follows the next one reads it.
		queue.Forget(name)
	default:
		queue.AddRateLimited(name)
	}
	queue.Done(name)
	if err != nil && ctx.Err() == nil {
		f.failed(err)
	}
}

// poll reads one resource definition, and what is not yet known around it.
func (f *Feed) poll(ctx context.Context, name string) error {
	if err := f.readNodesSince(ctx, time.Now().Add(-pollNodesAge)); err != nil {
		return err
	}
	if err := f.polls.read(ctx, name, time.Now()); err != nil {
		return err
	}
	return f.settleDoubt(ctx, name)
}

// keeper knows which resources are to be read every second.
type keeper struct {
	// wake is for whom the keeper does not know yet, or has read.
	wake chan struct{}

	mu   sync.Mutex
	kept map[string]*keeping // by folded name
}

// keeping is a resource that is to be read every second.
type keeping struct {
	name  string
	until time.Time
	// due is when the next reading is, unless somebody else has the resource read before.
	due time.Time
	// reading is set while the keeper has it read.
	reading bool
}

// Keep has a resource read every second until then, first when the last reading is a second old. Each call puts that off.
// It never blocks.
func (f *Feed) Keep(resource string, until time.Time) { f.keeper.keep(resource, until) }

func (k *keeper) keep(resource string, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[fold(resource)]
	if e == nil {
		e = &keeping{name: resource}
		k.kept[fold(resource)] = e
		k.ring()
	}
	if until.After(e.until) {
		e.until = until
	}
}

// keeps tells whether a resource is read every second at that time.
func (k *keeper) keeps(resource string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[fold(resource)]
	return e != nil && e.until.After(now)
}

func (k *keeper) ring() {
	select {
	case k.wake <- struct{}{}:
	default: // it has rung
	}
}

// take returns what is to be read now, by display name, or how long nothing is.
func (k *keeper) take(now time.Time, store *Store) (names []string, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.kept, func(_ string, e *keeping) bool { return !e.reading && !e.until.After(now) })
	wait = keepIdle
	var soon []*keeping
	for key, e := range k.kept {
		if e.reading {
			continue
		}
		if next := store.listReadAt(key).Add(keepInterval); next.After(e.due) {
			e.due = next
		}
		rest := e.due.Sub(now)
		wait = min(wait, rest)
		if rest <= keepAlong {
			soon = append(soon, e)
		}
	}
	if wait > 0 {
		return nil, wait
	}
	for _, e := range soon {
		e.reading = true
		names = append(names, store.displayName(e.name))
	}
	slices.Sort(names)
	return names, 0
}

// done notes when a resource is due again that was read, or could not be.
func (k *keeper) done(name string, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.kept[fold(name)]
	e.reading, e.due = false, due
	k.ring()
}

// readKept has the kept resources read until ctx is done.
func (f *Feed) readKept(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for {
		names, wait := f.keeper.take(time.Now(), f.store)
		if len(names) > 0 {
			rounds.Go(func() { f.readRound(ctx, names) })
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-f.keeper.wake:
			sleep(ctx, bulkGather) // what comes at about the same time is read together
		}
	}
}

// readRound reads what is due at a time, and around it what a poll does.
func (f *Feed) readRound(ctx context.Context, names []string) {
	begin := time.Now()
	failed := f.readNodesSince(ctx, begin.Add(-pollNodesAge))
	var readings []*reading
	if failed == nil {
		readings = f.polls.want(ctx, begin, names...)
	}
	for i, name := range names {
		err := failed
		if err == nil {
			err = f.polls.wait(ctx, readings[i])
		}
		switch {
		case err == nil && f.store.settingsInDoubt(name):
			f.Poll(name) // LINSTOR adapts settings to what has changed
			fallthrough
		case err == nil || errors.Is(err, ErrNotFound):
			f.keeper.done(name, begin.Add(keepInterval))
		default:
			f.failed(err)
			f.keeper.done(name, time.Now().Add(keepRetry))
		}
	}
}
