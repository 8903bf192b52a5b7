package linstor

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// Poll asks for a read of one resource definition soon. Requests for the same one are coalesced, the
// oldest is served first, and all together are limited to Options.ReadsPerSecond. It never blocks.
// Before the feed has started it does nothing: the first thing a feed does is to read everything.
func (f *Feed) Poll(resource string) {
	if queue := f.queue.Load(); queue != nil {
		(*queue).Add(f.store.displayName(resource))
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

// work serves polls until the queue is shut down and all are done.
func (f *Feed) work(ctx context.Context, queue pollQueue) {
	var running errgroup.Group
	running.SetLimit(polls)
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
	// Counted before it is compared, and while settings are read, too: of hundreds that come at once no more than a few may go alone.
	defer f.polling.Add(-1)
	alone := f.polling.Add(1) <= crowd
	if err := f.readNodesSince(ctx, time.Now().Add(-pollNodesAge)); err != nil {
		return err
	}
	if err := f.pollResources(ctx, name, alone); err != nil {
		return err
	}
	return f.settleDoubt(ctx, name)
}

// settleDoubt reads the settings of a resource where they may have changed since they were read: LINSTOR adapts the quorum when replicas
// come and go.
func (f *Feed) settleDoubt(ctx context.Context, name string) error {
	if !f.store.settingsInDoubt(name) {
		return nil
	}
	return f.readLevels(ctx, name, time.Now())
}

// readResources reads the list of one resource definition into the store: alone if that is possible soon and few are
// wanted, else together with others.
func (f *Feed) readResources(ctx context.Context, name string) error {
	defer f.wantedLists.Add(-1)
	if f.wantedLists.Add(1) <= crowd {
		reservation := f.limiter.Reserve()
		if delay := reservation.Delay(); delay <= soon {
			if !sleep(ctx, delay) {
				return ctx.Err()
			}
			return f.readList(ctx, name)
		}
		reservation.Cancel()
	}
	if f.joinLists(ctx, name) {
		return nil
	}
	if err := f.limiter.Wait(ctx); err != nil {
		return err
	}
	return f.readList(ctx, name)
}

// pollResources is readResources for whoever can wait: where it reads a list alone, as a poll of few does, fresh reads come first.
func (f *Feed) pollResources(ctx context.Context, name string, alone bool) error {
	defer f.wantedLists.Add(-1)
	alone = f.wantedLists.Add(1) <= crowd && alone
	for {
		opened := f.lists.opened()
		f.lists.try(ctx, name)
		if !alone && f.joinLists(ctx, name) {
			return nil
		}
		select {
		case f.turns <- struct{}{}:
			err := f.limiter.Wait(ctx)
			if err == nil {
				err = f.readList(ctx, name)
			}
			<-f.turns
			return err
		case <-opened:
			alone = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// joinLists has the list read together with others, unless it takes an answer of its own: the view is silent on
// what does not exist, and refuses names that could not.
func (f *Feed) joinLists(ctx context.Context, name string) bool {
	return f.store.hasReplicas(name) && f.lists.join(ctx, name)
}

func (f *Feed) readList(ctx context.Context, name string) error {
	// A difference counts against the stream only if it was there when the read began.
	watch := f.watch.Load()
	at := span{start: time.Now()}
	list, err := f.client.Resources(ctx, name)
	at.end = time.Now()
	if errors.Is(err, ErrNotFound) {
		f.confirmed(at.start)
		f.store.remove(name, at)
	}
	if err != nil {
		return err
	}
	f.confirmed(at.start)
	if f.store.lacks(name, list) {
		// A node that is ONLINE in a list of nodes from after that has let its replica go. One that a person gave up is in none.
		if err := f.readNodesSince(ctx, at.end); err != nil {
			return err
		}
	}
	if f.store.applyResources(name, list, at) {
		f.pollLater(name, reshapedAgain)
	}
	f.doubt(watch, list, at)
	return nil
}

// readSomeResources reads the lists of many resource definitions into the store by one request.
func (f *Feed) readSomeResources(ctx context.Context, names []string) (map[string]bool, error) {
	watch := f.watch.Load()
	at := span{start: time.Now()}
	list, err := f.client.View(ctx, names...)
	at.end = time.Now()
	if err != nil {
		return nil, err
	}
	f.confirmed(at.start)
	complete := f.store.applySome(list, at)
	f.doubt(watch, list, at)
	return complete, nil
}
