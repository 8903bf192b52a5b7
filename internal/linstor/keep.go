package linstor

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// keepInterval is how far the begins of two readings of a kept resource are apart.
	keepInterval = time.Second
	// keepAlong is how much sooner a resource is read where others are due: what is read together once stays together.
	keepAlong = 200 * time.Millisecond
	// keepRetry is when it is tried again to read what could not be.
	keepRetry = 500 * time.Millisecond
	// keepFlights is how many bulk requests for kept resources run at once. It leaves some to those who cannot wait.
	keepFlights = bulkFlights - 2
	// keepIdle is how long a keeper sleeps at most.
	keepIdle = time.Minute
)

// keeper knows which resources are to be read every second.
type keeper struct {
	// wake is for whom the keeper does not know yet, or has read.
	wake chan struct{}
	// flights are held by bulk requests.
	flights chan struct{}

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

func newKeeper() *keeper {
	return &keeper{wake: make(chan struct{}, 1), flights: make(chan struct{}, keepFlights), kept: map[string]*keeping{}}
}

// Keep has a resource read every second until then, first when the last reading is a second old. Each call puts that off.
// It never blocks. Many resources cost far less this way than by as many calls of Poll: nobody waits for each of them.
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

// take returns what is to be read now, sorted, or how long nothing is. It is told when resources were read last.
func (k *keeper) take(now time.Time, readAt func(resource string) time.Time) (names []string, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.kept, func(_ string, e *keeping) bool { return !e.reading && !e.until.After(now) })
	wait = keepIdle
	var soon []*keeping
	for key, e := range k.kept {
		if e.reading {
			continue
		}
		if next := readAt(key).Add(keepInterval); next.After(e.due) {
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
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names, 0
}

// done notes that resources were read, or could not be, and when they are due again.
func (k *keeper) done(names []string, due time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		e := k.kept[fold(name)]
		e.reading, e.due = false, due
	}
	k.ring()
}

// sleep waits until something may be due, or until ctx is done, which it reports as false.
func (k *keeper) sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-k.wake:
		return sleep(ctx, bulkGather) // what comes at about the same time is read together
	}
}

// readKept has the kept resources read until ctx is done.
func (f *Feed) readKept(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for {
		names, wait := f.keeper.take(time.Now(), f.store.listReadAt)
		if len(names) > 0 {
			rounds.Go(func() { f.readRound(ctx, names) })
		} else if !f.keeper.sleep(ctx, wait) {
			return
		}
	}
}

// readRound reads what is due at a time, and around it what a poll does.
func (f *Feed) readRound(ctx context.Context, names []string) {
	if len(names) <= crowd {
		f.keeper.done(names, time.Now().Add(keepInterval))
		for _, name := range names {
			f.Poll(name)
		}
		return
	}
	if err := f.readNodesSince(ctx, time.Now().Add(-pollNodesAge)); err != nil {
		f.failed(err)
		f.keeper.done(names, time.Now().Add(keepRetry))
		return
	}
	var groups sync.WaitGroup
	for _, group := range queries(names) {
		groups.Go(func() {
			f.keeper.flights <- struct{}{}
			defer func() { <-f.keeper.flights }()
			f.readTogether(ctx, group)
		})
	}
	groups.Wait()
}

// queries divides names among bulk requests.
func queries(names []string) (all [][]string) {
	first, bytes := 0, 0
	for i, name := range names {
		if bytes += queryBytes(name); bytes > bulkQuery {
			all, first, bytes = append(all, names[first:i]), i, queryBytes(name)
		}
	}
	return append(all, names[first:])
}

// queryBytes is what a name takes in a query.
func queryBytes(name string) int { return len("resource_definitions=&") + len(url.QueryEscape(name)) }

// readTogether reads resources by one request. What that does not serve is polled, and so is what has changed in a way upon
// which LINSTOR adapts settings.
func (f *Feed) readTogether(ctx context.Context, names []string) {
	together := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !f.store.hasReplicas(name) })
	begin := time.Now()
	var served map[string]bool
	if len(together) > 0 {
		served = f.lists.ask(ctx, together)
	}
	f.keeper.done(names, begin.Add(keepInterval))
	for _, name := range names {
		if !served[fold(name)] || f.store.settingsInDoubt(name) {
			f.Poll(name)
		}
	}
}
