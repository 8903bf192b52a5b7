package linstor

import (
	"context"
	"net/url"
	"sync"
	"time"
)

const (
	// bulkQuery bounds the query of a bulk request in bytes: LINSTOR's HTTP server takes 8 KiB of headers, of which a
	// token may need more than one.
	bulkQuery = 6000
	// bulkGather is how long a bulk request waits for company.
	bulkGather = 20 * time.Millisecond
	// bulkFlights is how many bulk requests run at once: for each, LINSTOR asks satellites.
	bulkFlights = 8
	// bulkTimeout ends a bulk request. What it would bring later would no longer be fresh.
	bulkTimeout = 1500 * time.Millisecond
	// bulkPause is how long nothing is asked in bulk after a failure, doubling up to bulkPauseMax.
	bulkPause    = 2 * time.Second
	bulkPauseMax = 16 * time.Second
)

// bulkReader serves many who wait for a reading of the same kind by one request. A reading begins after everybody whom
// it serves has asked for it. A request that fails or takes too long serves nobody, and after it only one at a time
// is tried, until one succeeds: LINSTOR asks its satellites for some bulk answers, and may wait for one that hangs.
type bulkReader struct {
	// read reads what is named, and returns the folded names for which that has told everything.
	read func(ctx context.Context, names []string) (served map[string]bool, err error)
	// slots are held by running requests.
	slots chan struct{}

	mu        sync.Mutex
	gathering *bulk
	// trial is the one request that is made while the last one has failed.
	trial *bulk
	// retry is when a trial may begin; zero unless the last request has failed.
	retry time.Time
	pause time.Duration
}

// bulk is one request.
type bulk struct {
	names map[string]string // as they are sent, by folded name
	query int               // bytes
	// waiting is how many wait for it; when nobody does any more, cancel ends it.
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	// served is valid once done is closed.
	served map[string]bool
}

func newBulkReader(read func(context.Context, []string) (map[string]bool, error)) *bulkReader {
	return &bulkReader{read: read, slots: make(chan struct{}, bulkFlights), pause: bulkPause}
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
		if !r.retry.IsZero() && (r.trial != nil || time.Now().Before(r.retry)) {
			return nil
		}
		b = &bulk{names: map[string]string{}, done: make(chan struct{})}
		r.gathering = b
		if !r.retry.IsZero() {
			r.trial = b
		}
		// Others are served, too: the request does not end with the caller that happened to be the first.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b.cancel = cancel
		time.AfterFunc(bulkGather, func() { r.depart(ctx, b) })
	}
	b.waiting++
	if _, ok := b.names[fold(name)]; !ok {
		b.names[fold(name)] = name
		b.query += len("resource_definitions=&") + len(url.QueryEscape(name))
	}
	if b.query >= bulkQuery {
		r.gathering = nil // the next one gathers already; this one departs when its time has come
	}
	return b
}

// depart makes the request.
func (r *bulkReader) depart(ctx context.Context, b *bulk) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	r.mu.Lock()
	if r.gathering == b {
		r.gathering = nil
	}
	given := r.trial != b && !r.retry.IsZero() // up, by another one that failed meanwhile
	r.mu.Unlock()
	defer close(b.done)
	defer b.cancel()
	if given {
		return
	}
	names := make([]string, 0, len(b.names))
	for _, name := range b.names {
		names = append(names, name)
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	served, err := r.read(ctx, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trial == b {
		r.trial = nil
	}
	if err != nil {
		r.retry, r.pause = time.Now().Add(r.pause), min(2*r.pause, bulkPauseMax)
		return
	}
	b.served = served
	r.retry, r.pause = time.Time{}, bulkPause
}
