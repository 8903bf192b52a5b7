package linstor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// eventsAtOnce is how many events a second lead to a read at once, with as many in reserve. What others are about is read at
	// times that are eventsApart, or calmEventsApart where nothing waits for it: what changes at about the same time is read once
	// and, if it is much, together, and decisions on what has changed come first. The latter is well below MaxGap, so that no
	// clock notices it.
	eventsAtOnce    = 16
	eventsApart     = 50 * time.Millisecond
	calmEventsApart = 500 * time.Millisecond

	// keepInterval is how far the begins of two readings of a kept resource are apart.
	keepInterval = time.Second
	// keepAlong is how much sooner a kept resource is read where others are due: what is read together once stays together.
	keepAlong = 200 * time.Millisecond
	// keepRetry is when it is tried again to read what could not be. What is not kept waits twice as long each time, up to 16 times that.
	keepRetry  = 500 * time.Millisecond
	doublings  = 4
	idleAgenda = time.Minute // how long nothing may be due at a time
)

// agenda knows which resources are to be read when.
type agenda struct {
	// wake is for whom something may be due sooner than was known.
	wake chan struct{}

	mu   sync.Mutex
	dues map[string]*due // by folded name
	// looked is until when nothing is due as far as was known when it was last asked.
	looked time.Time
}

// due is a resource that is to be read.
type due struct {
	name string
	// at is when somebody wants it read; zero while nobody does.
	at time.Time
	// until is until when it is kept, that is read every second, and next when that is due, unless somebody else has it read before.
	until, next time.Time
	// reading is set while it is read, and failures is how often that has failed in a row.
	reading  bool
	failures int
}

// Poll asks for a read of one resource definition soon. Requests for the same one are coalesced, the
// oldest is served first, and all together are limited to 200 a second. It never blocks.
// Before the feed has started it does nothing: the first thing a feed does is to read everything.
func (f *Feed) Poll(resource string) { f.pollLater(resource, 0) }

// pollLater asks for a read after a while.
func (f *Feed) pollLater(resource string, delay time.Duration) {
	if !f.running.Load() {
		return
	}
	at := time.Now().Add(delay)
	f.agenda.change(resource, func(d *due) {
		if d.at.IsZero() || at.Before(d.at) {
			d.at = at
		}
	})
}

func (f *Feed) pollAll() {
	for _, name := range f.store.listedNames() {
		f.Poll(name)
	}
}

// Keep has a resource read every second until then, first when the last reading is a second old. Each call puts that off.
// It never blocks.
func (f *Feed) Keep(resource string, until time.Time) {
	f.agenda.change(resource, func(d *due) {
		if until.After(d.until) {
			d.until = until
		}
	})
}

// pollAfterEvent asks for a read of what an event was about: at once while there are few events, else at the same time as of what
// others are about. That takes longest where nothing waits for it: a process that does not lead decides nothing, a replica that may
// no longer be promoted ends by itself each clock that rests on it, and what is kept is read every second anyway. The last two come
// for every volume that is used again after a loss of many. They leave half of what can be read at once to others.
func (f *Feed) pollAfterEvent(ev client.Event) {
	now := time.Now()
	apart, spare := eventsApart, 0
	if !f.leads() || ev.MayPromote != nil && !*ev.MayPromote || f.agenda.keeps(ev.Resource, now) {
		apart, spare = calmEventsApart, eventsAtOnce/2
	}
	if f.eventLimiter.TokensAt(now) > float64(spare) && f.eventLimiter.AllowN(now, 1) {
		f.Poll(ev.Resource)
		return
	}
	f.pollLater(ev.Resource, now.Truncate(apart).Add(apart).Sub(now))
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

func (a *agenda) change(resource string, change func(*due)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.dues[fold(resource)]
	if d == nil {
		d = &due{name: resource}
		a.dues[fold(resource)] = d
	}
	if change(d); d.due(time.Now()).Before(a.looked) {
		a.ring()
	}
}

// due is when it is to be read: long from now while it is read, or nobody wants that.
func (d *due) due(now time.Time) time.Time {
	at := now.Add(idleAgenda)
	if d.reading {
		return at
	}
	if !d.at.IsZero() {
		at = d.at
	}
	if d.until.After(now) && d.next.Before(at) {
		at = d.next
	}
	return at
}

func (a *agenda) ring() {
	select {
	case a.wake <- struct{}{}:
	default: // it has rung
	}
}

// keeps tells whether a resource is read every second at that time.
func (a *agenda) keeps(resource string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.dues[fold(resource)]
	return d != nil && d.until.After(now)
}

// take returns what is to be read now, the oldest first, or how long nothing is. It is told when resources were read last.
func (a *agenda) take(now time.Time, readAt func(resource string) time.Time) (taken []*due, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.looked = now.Add(idleAgenda)
	var along []*due
	for key, d := range a.dues {
		polled, kept := !d.at.IsZero(), d.until.After(now)
		switch {
		case d.reading:
			continue
		case !polled && !kept:
			delete(a.dues, key)
			continue
		}
		if next := readAt(key).Add(keepInterval); next.After(d.next) {
			d.next = next
		}
		at := d.due(now)
		if at.Before(a.looked) {
			a.looked = at
		}
		switch {
		case !at.After(now):
			taken = append(taken, d)
		case kept && d.next.Sub(now) <= keepAlong:
			along = append(along, d)
		}
	}
	if len(taken) == 0 {
		return nil, a.looked.Sub(now)
	}
	taken = append(taken, along...)
	slices.SortFunc(taken, func(a, b *due) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	for _, d := range taken {
		d.reading, d.at = true, time.Time{}
	}
	return taken, 0
}

// readDue reads what is due until ctx is done.
func (f *Feed) readDue(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for {
		dues, wait := f.agenda.take(time.Now(), f.store.listReadAt)
		if len(dues) > 0 {
			rounds.Go(func() { f.readRound(ctx, dues) })
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-f.agenda.wake:
		}
	}
}

// readRound reads what is due at a time, and what is not yet known around it.
func (f *Feed) readRound(ctx context.Context, dues []*due) {
	begin := time.Now()
	if err := f.readNodesSince(ctx, begin.Add(-pollNodesAge)); err != nil {
		for _, d := range dues {
			f.took(ctx, d, begin, err)
		}
		return
	}
	names := make([]string, len(dues))
	for i, d := range dues {
		names[i] = f.store.displayName(d.name)
	}
	var all sync.WaitGroup
	for i, one := range f.polls.want(ctx, begin, names...) {
		all.Go(func() {
			err := f.polls.wait(ctx, one)
			if err == nil {
				err = f.settleDoubt(ctx, names[i])
			}
			f.took(ctx, dues[i], begin, err)
		})
	}
	all.Wait()
}

// took takes down what became of a reading. While there is no connection, the resync that follows the next one reads what is not kept.
func (f *Feed) took(ctx context.Context, d *due, begin time.Time, err error) {
	if err != nil && ctx.Err() == nil {
		f.failed(err)
	}
	failed, connected := err != nil && !errors.Is(err, ErrNotFound), f.watch.Load() != nil
	f.agenda.change(d.name, func(d *due) {
		now := time.Now()
		d.reading = false
		switch {
		case !failed:
			d.failures, d.next = 0, begin.Add(keepInterval)
		case d.until.After(now):
			d.next = now.Add(keepRetry)
		case connected && d.at.IsZero():
			d.at = now.Add(keepRetry << min(d.failures, doublings))
			d.failures++
		}
	})
}
