package controllers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// census is a reading that takes a second and answers with when it was sent. It counts its requests.
func census(sent *atomic.Int32) *batches[int, time.Time] {
	return newBatches(func(ctx context.Context, _ string, _ []int) (time.Time, error) {
		at := time.Now()
		sent.Add(1)
		select {
		case <-time.After(time.Second):
			return at, nil
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	})
}

func TestNobodyIsServedByARequestThatWasSentBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		reading := census(&sent)
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				<-time.After(time.Duration(i) * 30 * time.Millisecond)
				asked := time.Now()
				at, err := reading.do(t.Context(), nodeA, i)
				if err != nil || at.Before(asked) {
					t.Errorf("asked at %s, served by a request of %s, error %v", asked, at, err)
				}
			})
		}
		callers.Wait()
		if sent.Load() > 5 {
			t.Errorf("%d requests in 3 s, each of 1 s", sent.Load())
		}
		synctest.Wait()
		if left := reading.objects(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestRequestsForOneObjectDoNotWaitForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		reading := census(&sent)
		began := time.Now()
		var callers sync.WaitGroup
		for _, node := range []string{nodeA, nodeB, nodeT} {
			callers.Go(func() { _, _ = reading.do(t.Context(), node, 0) })
		}
		callers.Wait()
		if took := time.Since(began); took != time.Second || sent.Load() != 3 {
			t.Errorf("%d requests took %s", sent.Load(), took)
		}
	})
}

// What wakes many lets them come one after the other. Who has missed a request would wait for two.
func TestInACrowdARequestWaitsForWhoComesAtTheSameTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		alone   bool
		callers int
		apart   time.Duration
		want    int32         // requests
		took    time.Duration // until the first caller is served
	}{
		"all are served by one":                          {callers: 5, apart: 4 * time.Millisecond, want: 1, took: 3*batchQuiet + time.Second},
		"unless they come too late":                      {callers: 5, apart: 2 * batchQuiet, want: 2, took: batchQuiet + time.Second},
		"and nobody waits for long":                      {callers: 10, apart: batchQuiet - time.Millisecond, want: 2, took: batchWait + time.Second},
		"where there is no crowd, the first one goes on": {alone: true, callers: 5, apart: 4 * time.Millisecond, want: 2, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int32
				reading := census(&sent)
				reading.crowded = func() bool { return !tc.alone }
				began := time.Now()
				var all sync.WaitGroup
				for i := range tc.callers {
					all.Go(func() {
						<-time.After(time.Duration(i) * tc.apart)
						asked := time.Now()
						at, err := reading.do(t.Context(), nodeA, i)
						if err != nil || at.Before(asked) {
							t.Errorf("asked at %s, served by a request of %s, error %v", asked, at, err)
						}
						if took := time.Since(began); i == 0 && took != tc.took {
							t.Errorf("the first one was served after %s, want %s", took, tc.took)
						}
					})
				}
				all.Wait()
				if got := sent.Load(); got != tc.want {
					t.Errorf("%d requests, want %d", got, tc.want)
				}
				synctest.Wait()
				if left := reading.objects(); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

func TestACallerThatLeavesTakesNobodysAnswerAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		reading := census(&sent)
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := reading.do(ctx, nodeA, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller that left got %v", err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			_, err := reading.do(ctx, nodeA, 2) // would be served by the next request
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("another one got %v", err)
			}
		})
		callers.Go(func() {
			if _, err := reading.do(t.Context(), nodeA, 3); err != nil {
				t.Errorf("the caller that stayed got %v", err)
			}
		})
		callers.Wait()
		if sent.Load() != 2 {
			t.Errorf("%d requests, want the first and the one for the caller that stayed", sent.Load())
		}
	})
}

func TestARequestThatNobodyWaitsForEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		reading := census(&sent)
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		_, _ = reading.do(ctx, nodeA, 1)
		synctest.Wait()
		if left := reading.objects(); len(left) > 0 {
			t.Errorf("still under way: %v", left)
		}
	})
}

func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var queue turns
		began, active := time.Now(), map[string]*int{nodeA: new(0), nodeB: new(0)}
		var callers sync.WaitGroup
		for _, node := range []string{nodeA, nodeA, nodeA, nodeB} {
			callers.Go(func() {
				end, err := queue.take(t.Context(), node)
				if err != nil {
					t.Error(err)
					return
				}
				defer end()
				*active[node]++ // which is a data race, too, unless turns are taken
				if *active[node] > 1 {
					t.Errorf("%d at work on %s", *active[node], node)
				}
				<-time.After(time.Second)
				*active[node]--
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := queue.take(ctx, nodeB); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a turn that does not come in time: %v", err)
		}
		callers.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("three turns of a second on one node, and one on another, took %s", took)
		}
		if len(queue.held) > 0 {
			t.Errorf("left behind: %v", queue.held)
		}
	})
}
