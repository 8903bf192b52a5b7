package linstor

import (
	"context"
	"net/url"
	"sync"
	"time"
)

const (
	// crowd is how many may be wanted at a time for all of them to be read one by one.
	crowd = 16
	// aloneRate is how many of them a second, with two crowds in reserve.
	aloneRate = 200
	// bulkQuery bounds the query of a request for many in bytes: LINSTOR's HTTP server takes 8 KiB of headers, of which a token may need
	// more than one.
	bulkQuery = 6000
	// bulkGather is how long such a request waits for company at least, and bulkApart how far those are apart that are not full.
	bulkGather = 20 * time.Millisecond
	bulkApart  = 100 * time.Millisecond
	// bulkFlights is how many a reader has under way at a time: for each, LINSTOR asks satellites.
	bulkFlights = 6
	// bulkTimeout ends one. What it would bring later would no longer be fresh.
	bulkTimeout = 1500 * time.Millisecond
	// bulkPause is how long there is none after a failure, doubling up to bulkPauseMax. A change among LINSTOR's satellites ends the
	// pause: the one that kept LINSTOR waiting may have been given up.
	bulkPause    = 2 * time.Second
	bulkPauseMax = 16 * time.Second
)

// bulk makes requests for many things of one kind. LINSTOR asks its satellites for some of these answers, and may wait for one that hangs:
// after one that has failed or took too long nobody waits for another before a trial has succeeded.
type bulk struct {
	// read returns the folded names for which it has told everything.
	read func(ctx context.Context, names []string) (served map[string]bool, err error)
	// known tells whether LINSTOR has a thing. Of one that it does not have the answer says nothing, and names that could not be make it
	// fail.
	known func(name string) bool

	mu sync.Mutex
	// trial is set while a request is under way that only finds out whether the pause can end.
	trial bool
	// retry is when a trial may begin; zero unless the last request has failed.
	retry time.Time
	pause time.Duration
}

// takes tells whether a thing can be one of many.
func (b *bulk) takes(name string) bool { return b != nil && b.known(name) }

// open tells whether requests for many are to be made. Where the time has come to try, it has the first of a queue read for that, for
// nobody.
func (b *bulk) open(r *reader) bool {
	if b == nil || len(r.queue) == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.retry.IsZero() {
		return true
	}
	if !b.trial && !time.Now().Before(b.retry) {
		b.trial = true
		go b.try(r.queue[0].ctx, r, r.queue[0].name)
	}
	return false
}

func (b *bulk) try(ctx context.Context, r *reader, name string) {
	_, _ = b.request(ctx, []string{name})
	b.mu.Lock()
	b.trial = false
	b.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dispatch()
}

// request makes one request, and takes down what became of it.
func (b *bulk) request(ctx context.Context, names []string) (served map[string]bool, err error) {
	limited, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	served, err = b.read(limited, names)
	if ctx.Err() == nil { // else nobody waits for it any more, which tells nothing about LINSTOR
		b.ended(err)
	}
	return served, err
}

func (b *bulk) ended(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.retry, b.pause = time.Time{}, 0
	case time.Now().Before(b.retry): // others of the same time have failed, too
	default:
		b.pause = min(max(2*b.pause, bulkPause), bulkPauseMax)
		b.retry = time.Now().Add(b.pause)
	}
}

// fill returns how many of a queue one request takes, and whether it is full with them.
func fill(queue []*reading) (n int, full bool) {
	bytes := 0
	for n = range queue {
		if bytes += queryBytes(queue[n].name); bytes > bulkQuery {
			return max(n, 1), true
		}
	}
	return len(queue), false
}

// queryBytes is how many bytes of a query the name of a resource definition takes.
func queryBytes(name string) int { return len("resource_definitions=&") + len(url.QueryEscape(name)) }
