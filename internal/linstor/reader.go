package linstor

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// reader reads things of one kind by name, for all who want them. Who want the same share a reading, if it begins no earlier than each of
// them may take, so that sharing makes nothing older. A few are read one by one, many by one request: alone, each would cost
// LINSTOR and every replica as much as a request for a hundred.
type reader struct {
	// one reads one thing.
	one func(ctx context.Context, name string) error
	// readAt is when the newest reading of a thing began that has ended; nil where a former one is good for nobody.
	readAt func(name string) time.Time
	// atOnce is how many are read one by one at a time, and limiter, if there is one, how many a second.
	atOnce  int
	limiter *rate.Limiter
	// spare, if there is one, is how many are read one by one where many could be at a time: of hundreds that come one after the other no
	// more than a few, however soon each is answered.
	spare *rate.Limiter
	// bulk makes requests for many; nil where LINSTOR has none.
	bulk *bulk

	mu sync.Mutex
	// newest is the newest reading of each thing that has not ended, by folded name.
	newest map[string]*reading
	// queue are the readings that have not begun, the oldest first, and singles those of them that take a request of their own.
	queue, singles []*reading
	// alone and together are how many requests for one and for many are under way.
	alone, together int
	// departed is when the last request for many left that was not full, and departure when the next one will.
	departed  time.Time
	departure *time.Timer
}

// reading is one that somebody waits for. The reader's lock guards it.
type reading struct {
	name string
	ctx  context.Context //nolint:containedctx // of who wanted it first, without its end: others may wait, too
	// began is when it began at the earliest; zero before that.
	began time.Time
	// waiting is how many wait for it.
	waiting int
	// request is the one that serves it.
	request *request
	done    chan struct{}
	// err is valid once done is closed.
	err error
}

// request ends when nobody waits any more for what it reads.
type request struct {
	ctx      context.Context //nolint:containedctx // of the first reading
	readings int
	cancel   context.CancelFunc
}

// read has a thing read unless a reading of it has begun at notBefore or later.
func (r *reader) read(ctx context.Context, name string, notBefore time.Time) error {
	return r.wait(ctx, r.want(ctx, notBefore, name)[0])
}

// want returns a reading for each of some things, to be waited for.
func (r *reader) want(ctx context.Context, notBefore time.Time, names ...string) []*reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := make([]*reading, len(names))
	for i, name := range names {
		wanted[i] = r.join(ctx, name, notBefore)
	}
	r.dispatch()
	return wanted
}

// join returns a reading that the caller may share, or a new one. The lock must be held.
func (r *reader) join(ctx context.Context, name string, notBefore time.Time) *reading {
	one := r.newest[fold(name)]
	switch {
	case r.readAt != nil && !r.readAt(name).Before(notBefore):
		one = &reading{done: make(chan struct{})}
		close(one.done)
	case one == nil || !one.began.IsZero() && one.began.Before(notBefore):
		one = &reading{name: name, ctx: context.WithoutCancel(ctx), done: make(chan struct{})}
		if r.newest == nil {
			r.newest = map[string]*reading{}
		}
		r.newest[fold(name)] = one
		if r.bulk.takes(name) {
			r.queue = append(r.queue, one)
		} else {
			r.singles = append(r.singles, one)
		}
	}
	one.waiting++
	return one
}

// wait waits for the end of a reading, and returns what became of it.
func (r *reader) wait(ctx context.Context, one *reading) error {
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.waiting--; one.waiting == 0 {
		r.forget(one)
		without := func(other *reading) bool { return other == one }
		r.queue, r.singles = slices.DeleteFunc(r.queue, without), slices.DeleteFunc(r.singles, without)
		if one.request != nil {
			if one.request.readings--; one.request.readings == 0 {
				one.request.cancel()
			}
		}
	}
	return ctx.Err()
}

// forget keeps others from joining a reading. The lock must be held.
func (r *reader) forget(one *reading) {
	if r.newest[fold(one.name)] == one {
		delete(r.newest, fold(one.name))
	}
}

// dispatch begins what can begin now. The lock must be held.
func (r *reader) dispatch() {
	r.begin(&r.singles, nil)
	if !r.bulk.open(r) {
		r.begin(&r.queue, nil)
		return
	}
	if len(r.newest) <= crowd {
		r.begin(&r.queue, r.spare)
		if r.alone == r.atOnce {
			return // the next one follows the first that ends
		}
	}
	r.send(false)
	if len(r.queue) > 0 && r.departure == nil && r.together < bulkFlights {
		r.departure = time.AfterFunc(max(bulkGather, bulkApart-time.Since(r.departed)), r.depart)
	}
}

// depart sends what has gathered, unless there must be no requests for many any more.
func (r *reader) depart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.departure = nil
	if r.bulk.open(r) {
		r.send(true)
	}
	r.dispatch()
}

// begin reads the first of a queue one by one, no more of them than some limit has to spare. The lock must be held.
func (r *reader) begin(queue *[]*reading, spare *rate.Limiter) {
	for ; len(*queue) > 0 && r.alone < r.atOnce && (spare == nil || spare.Allow()); *queue = (*queue)[1:] {
		one := (*queue)[0]
		r.start(one)
		r.alone++
		go r.readOne(one)
	}
}

// start begins readings by one request. The lock must be held.
func (*reader) start(readings ...*reading) {
	ctx, cancel := context.WithCancel(readings[0].ctx)
	serving := &request{ctx: ctx, readings: len(readings), cancel: cancel}
	for _, one := range readings {
		one.began, one.request = time.Now(), serving
	}
}

func (r *reader) readOne(one *reading) {
	var err error
	ctx := one.request.ctx
	if r.limiter != nil {
		err = r.limiter.Wait(ctx)
	}
	if err == nil {
		err = r.one(ctx, one.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alone--
	r.end(one, err)
	r.dispatch()
}

// end tells all who wait what became of a reading. The lock must be held.
func (r *reader) end(one *reading, err error) {
	r.forget(one)
	one.err = err
	one.request.cancel()
	close(one.done)
}

// send sends requests for many, those that are not full only if all is set. The lock must be held.
func (r *reader) send(all bool) {
	for len(r.queue) > 0 && r.together < bulkFlights {
		n, full := fill(r.queue)
		if !full {
			if !all {
				return
			}
			r.departed = time.Now()
		}
		group := slices.Clone(r.queue[:n])
		r.queue = r.queue[n:]
		r.together++
		r.start(group...)
		go r.readMany(group[0].request.ctx, group)
	}
}

func (r *reader) readMany(ctx context.Context, group []*reading) {
	names := make([]string, len(group))
	for i, one := range group {
		names[i] = one.name
	}
	served, err := r.bulk.request(ctx, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.together--
	for _, one := range group {
		switch {
		case one.waiting == 0: // and forgotten
		case served[fold(one.name)]:
			r.end(one, nil)
		default:
			one.began, one.request = time.Time{}, nil
			if err != nil {
				r.queue = append(r.queue, one)
			} else {
				r.singles = append(r.singles, one)
			}
		}
	}
	r.dispatch()
}
