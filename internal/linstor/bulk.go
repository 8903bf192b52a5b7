package linstor

import (
	"context"
	"sync"
	"time"
)

const (
	// bulkQuery bounds the query of a bulk request in bytes: LINSTOR's HTTP server takes 8 KiB of headers, of which a
	// token may need more than one.
	bulkQuery = 6000
	// bulkGather is how long a bulk request waits for company at least, bulkApart how far requests are apart that are
	// not full.
	bulkGather = 20 * time.Millisecond
	bulkApart  = 100 * time.Millisecond
	// bulkFlights is how many bulk requests run at once: for each, LINSTOR asks satellites.
	bulkFlights = 8
	// bulkTimeout ends a bulk request. What it would bring later would no longer be fresh.
	bulkTimeout = 1500 * time.Millisecond
	// bulkPause is how long nothing is asked in bulk after a failure, doubling up to bulkPauseMax. A change among
	// LINSTOR's satellites ends the pause: the one that kept LINSTOR waiting may have been given up.
	bulkPause    = 2 * time.Second
	bulkPauseMax = 16 * time.Second
)

// bulkReader serves many who wait for a reading of the same kind by one request. A reading begins after everybody whom
// it serves has asked for it. A request that fails or takes too long serves nobody, and after it nobody waits for
// one until a trial has succeeded: LINSTOR asks its satellites for some bulk answers, and may wait for one that hangs.
type bulkReader struct {
	// read reads what is named, and returns the folded names for which that has told everything.
	read func(ctx context.Context, names []string) (served map[string]bool, err error)
	// slots are held by running requests.
	slots chan struct{}

	mu        sync.Mutex
	gathering *bulk
	// departed is when the last request left that was not full.
	departed time.Time
	// trial is set while a request is under way that only finds out whether the pause can end.
	trial bool
	// retry is when a trial may begin; zero unless the last request has failed.
	retry time.Time
	pause time.Duration
	// open is closed and replaced when a pause ends.
	open chan struct{}
}

// bulk is one request.
type bulk struct {
	names map[string]string // as they are sent, by folded name
	query int               // bytes
	// waiting is how many wait for it; when nobody does any more, cancel ends it.
	waiting   int
	cancel    context.CancelFunc
	departure *time.Timer
	done      chan struct{}
	// served is valid once done is closed.
	served map[string]bool
}

func newBulkReader(read func(context.Context, []string) (map[string]bool, error)) *bulkReader {
	return &bulkReader{read: read, slots: make(chan struct{}, bulkFlights), pause: bulkPause, open: make(chan struct{})}
}

// join takes part in the next bulk request and tells whether that has served the caller. A caller that was not served
// has to ask for itself.
func (r *bulkReader) join(ctx context.Context, name string) bool {
	b := r.board(ctx, name)
	if b == nil {
		return false
	}
	select {
	case <-b.done:
		return b.served[fold(name)]
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		if b.waiting--; b.waiting == 0 {
			if r.gathering == b {
				r.gathering = nil // who comes next needs one that is made
			}
			b.cancel()
		}
		return false
	}
}

// board returns the request that takes the name along; nil while none is made.
func (r *bulkReader) board(ctx context.Context, name string) *bulk {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.gathering
	if b == nil {
		if !r.retry.IsZero() {
			return nil
		}
		b = &bulk{names: map[string]string{}, done: make(chan struct{})}
		r.gathering = b
		// Others are served, too: the request does not end with the caller that happened to be the first.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b.cancel = cancel
		wait := max(bulkGather, bulkApart-time.Since(r.departed))
		b.departure = time.AfterFunc(wait, func() { r.depart(ctx, b) })
	}
	b.waiting++
	if _, ok := b.names[fold(name)]; !ok {
		b.names[fold(name)] = name
		b.query += queryBytes(name)
	}
	if b.query >= bulkQuery {
		r.gathering = nil // the next one gathers already
		if b.departure.Stop() {
			b.departure.Reset(0)
		}
	}
	return b
}

// hope ends a pause.
func (r *bulkReader) hope() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resume()
}

// resume ends a pause; the lock is held.
func (r *bulkReader) resume() {
	if !r.retry.IsZero() {
		close(r.open)
		r.open = make(chan struct{})
	}
	r.retry, r.pause = time.Time{}, bulkPause
}

// opened returns a channel that is closed when the next pause ends.
func (r *bulkReader) opened() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// depart makes the request.
func (r *bulkReader) depart(ctx context.Context, b *bulk) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	r.mu.Lock()
	if r.gathering == b {
		r.gathering, r.departed = nil, time.Now()
	}
	r.mu.Unlock()
	defer close(b.done)
	defer b.cancel()
	names := make([]string, 0, len(b.names))
	for _, name := range b.names {
		names = append(names, name)
	}
	b.served = r.request(ctx, names)
}

// ask makes a request of its own for many, and returns the folded names of those whom it has served.
func (r *bulkReader) ask(ctx context.Context, names []string) map[string]bool {
	r.try(ctx, names[0])
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-r.slots }()
	return r.request(ctx, names)
}

// request makes a request, unless another one has failed, and returns the folded names of those whom it has served.
func (r *bulkReader) request(ctx context.Context, names []string) map[string]bool {
	r.mu.Lock()
	given := !r.retry.IsZero() // up
	r.mu.Unlock()
	if given {
		return nil
	}
	readCtx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	served, err := r.read(readCtx, names)
	if ctx.Err() != nil {
		return nil // nobody waits for it any more: that tells nothing about LINSTOR
	}
	r.ended(err)
	return served
}

// ended takes down what became of a request.
func (r *bulkReader) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.resume()
		return
	case time.Now().Before(r.retry):
		return // others of the same time have failed, too
	}
	r.retry, r.pause = time.Now().Add(r.pause), min(2*r.pause, bulkPauseMax)
}

// try finds out whether a pause can end, by a request for one name that nobody waits for, when the time has come.
func (r *bulkReader) try(ctx context.Context, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retry.IsZero() || r.trial || time.Now().Before(r.retry) {
		return
	}
	r.trial = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
		defer cancel()
		_, err := r.read(ctx, []string{name})
		r.ended(err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.trial = false
	}()
}
