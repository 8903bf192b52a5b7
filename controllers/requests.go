package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// answersWithin is how long a round waits for the answers to its requests of one kind.
	answersWithin = time.Second
	// requestsAtOnce is how many requests of one kind a round has under way; the API server rejects too many.
	requestsAtOnce = 100
)

// errUnanswered is why nothing follows from a request yet.
var errUnanswered = errors.New("the Kubernetes API has not answered yet")

// requests are the writes of rounds. One that takes long outlives its round: its object is left alone until it is answered, and nothing
// else waits for it.
type requests struct {
	timeout time.Duration

	mu       sync.Mutex
	underWay map[string]bool
	// failed are those that were answered with an error after their round.
	failed map[string]lateAnswer
}

// lateAnswer is an error, and when it was answered.
type lateAnswer struct {
	err error
	at  time.Time
}

func newRequests(timeout time.Duration) *requests {
	return &requests{timeout: timeout, underWay: make(map[string]bool), failed: make(map[string]lateAnswer)}
}

// answer is the answer to one of many requests.
type answer struct {
	index int
	err   error
}

// send makes a request for each object at the same time, and returns their errors: errUnanswered where the answer takes longer than the
// round waits, or that to an earlier request for the object does. ctx is that of the round, and lifetime ends the requests.
func (r *requests) send(
	ctx, lifetime context.Context, objects []string, request func(ctx context.Context, index int) error,
) []error {
	errs := make([]error, len(objects))
	answers := make(chan answer, len(objects))
	slots := make(chan struct{}, requestsAtOnce)
	waiting := 0
	for i, object := range objects {
		errs[i] = r.unanswered(object)
		if !r.begin(object) {
			continue
		}
		waiting++
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			requestCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
			defer context.AfterFunc(lifetime, cancel)()
			if lifetime.Err() != nil {
				cancel() // before that does
			}
			err := safely(func() error { return request(requestCtx, i) })
			cancel()
			r.end(object, err)
			answers <- answer{i, err}
		}()
	}
	timer := time.NewTimer(answersWithin)
	defer timer.Stop()
	for ; waiting > 0; waiting-- {
		select {
		case a := <-answers:
			errs[a.index] = a.err
			r.forget(objects[a.index])
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	return errs
}

// safely makes an error of a panic, which in a goroutine would end the process.
func safely(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}

func (r *requests) begin(object string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay[object] {
		return false
	}
	r.underWay[object] = true
	return true
}

func (r *requests) end(object string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underWay, object)
	if err == nil {
		delete(r.failed, object)
		return
	}
	r.failed[object] = lateAnswer{err, time.Now()}
}

func (r *requests) forget(object string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, object)
}

// unanswered is the error of a request that has not been answered. Where an earlier request for the object failed a moment ago, after its round
// had ended, that error says more.
func (r *requests) unanswered(object string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failed, func(_ string, f lateAnswer) bool { return time.Since(f.at) > r.timeout })
	if f, ok := r.failed[object]; ok {
		return f.err
	}
	return errUnanswered
}

// remembered is how many requests are under way.
func (r *requests) remembered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.underWay)
}
