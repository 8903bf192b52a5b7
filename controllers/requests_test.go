package controllers

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// oneByOne sends one request for an object as a round does.
func oneByOne(t *testing.T, r *requests, object string, request func(ctx context.Context) error) error {
	t.Helper()
	return r.send(t.Context(), t.Context(), []string{object}, func(ctx context.Context, _ int) error { return request(ctx) })[0]
}

// takes is a request that is answered after a while, unless it is ended before.
func takes(d time.Duration, answer error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return answer
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func objects(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}

// passes lets time pass.
func passes(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestRequestsAreMadeAtTheSameTimeAndNotTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each, refused = 100 * time.Millisecond, 7
		var underWay, most atomic.Int32
		began, no := time.Now(), errors.New("no")
		errs := newRequests(time.Minute).send(t.Context(), t.Context(), objects(5*requestsAtOnce/2), func(ctx context.Context, i int) error {
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			if i == refused {
				return takes(each, no)(ctx)
			}
			return takes(each, nil)(ctx)
		})
		if took := time.Since(began); took != 3*each {
			t.Errorf("two and a half times as many as are made at once took %s, want %s", took, 3*each)
		}
		if most.Load() != requestsAtOnce {
			t.Errorf("%d were under way at a time, want %d", most.Load(), requestsAtOnce)
		}
		for i, err := range errs {
			if (err != nil) != (i == refused) {
				t.Errorf("request %d: %v", i, err)
			}
		}
	})
}

func TestARequestThatTakesLongOutlivesItsRoundAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(30 * time.Second)
		var sent [2]atomic.Int32
		round := func() []error {
			return r.send(t.Context(), t.Context(), objects(2), func(ctx context.Context, i int) error {
				sent[i].Add(1)
				return takes(time.Duration(i)*10*time.Second, nil)(ctx)
			})
		}
		began := time.Now()
		for range 3 {
			errs := round()
			wantError(t, "the quick one", errs[0], nil)
			wantError(t, "the slow one", errs[1], errUnanswered)
		}
		// Of the later rounds none has anything to wait for: the slow one is that of the first.
		if took := time.Since(began); took != answersWithin {
			t.Errorf("three rounds took %s, want %s", took, answersWithin)
		}
		if quick, slow := sent[0].Load(), sent[1].Load(); quick != 3 || slow != 1 || r.remembered() != 1 {
			t.Errorf("sent %d and %d times, %d under way; want the slow one to be left alone until it is answered", quick, slow, r.remembered())
		}
		passes(10 * time.Second)
		if r.remembered() != 0 {
			t.Errorf("%d requests are remembered that were answered", r.remembered())
		}
		if round(); sent[1].Load() != 2 {
			t.Errorf("the slow one was sent %d times, want again after its answer", sent[1].Load())
		}
		passes(10 * time.Second)
	})
}

// The rounds that come after it are the only ones who can tell.
func TestAnErrorThatIsAnsweredAfterItsRoundIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		r, no := newRequests(timeout), errors.New("no")
		slow := takes(5*time.Second, no)
		wantError(t, "before the answer", oneByOne(t, r, "pod", slow), errUnanswered)
		passes(5 * time.Second)
		wantError(t, "while the next request is under way", oneByOne(t, r, "pod", slow), no)
		passes(5 * time.Second)
		wantError(t, "where another object is asked for", oneByOne(t, r, "other", takes(5*time.Second, nil)), errUnanswered)
		wantError(t, "where the next request succeeds", oneByOne(t, r, "pod", takes(0, nil)), nil)
		wantError(t, "after that", oneByOne(t, r, "pod", slow), errUnanswered)
		passes(timeout + 5*time.Second)
		wantError(t, "long after it", oneByOne(t, r, "pod", slow), errUnanswered)
		passes(5 * time.Second)
	})
}

func TestWhatEndsARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(30 * time.Second)
		round, endRound := context.WithCancel(t.Context())
		lifetime, endLifetime := context.WithCancel(t.Context())
		defer endLifetime()
		ended := make(map[int]time.Duration)
		began := time.Now()
		wait := func(ctx context.Context, i int) error {
			<-ctx.Done()
			ended[i] = time.Since(began)
			return ctx.Err()
		}
		time.AfterFunc(100*time.Millisecond, endRound)
		wantError(t, "of a round that has ended", r.send(round, lifetime, objects(1), wait)[0], errUnanswered)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("the round has waited for %s after its end", took)
		}
		passes(31 * time.Second)
		if ended[0] != 30*time.Second {
			t.Errorf("the request of that round ended after %s, want its time to be up", ended[0])
		}
		began = time.Now()
		r.send(t.Context(), lifetime, []string{"other"}, wait)
		time.AfterFunc(time.Second, endLifetime)
		passes(5 * time.Second)
		if want := answersWithin + time.Second; ended[0] != want {
			t.Errorf("the request ended after %s, want with the controller after %s", ended[0], want)
		}
	})
}

// In a goroutine of its own it would end the process.
func TestAPanicInARequestIsAnErrorOfThatRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(30 * time.Second)
		errs := r.send(t.Context(), t.Context(), objects(3), func(_ context.Context, i int) error {
			if i == 1 {
				panic("a bug")
			}
			return nil
		})
		if errs[0] != nil || errs[2] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "a bug") || !strings.Contains(errs[1].Error(), "requests_test.go") {
			t.Errorf("errors: %v, want one that names the bug and its place", errs)
		}
		if r.remembered() != 0 {
			t.Errorf("%d requests are under way", r.remembered())
		}
	})
}
