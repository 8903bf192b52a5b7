package linstor

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowly has LINSTOR take that long for each answer about one resource.
func (f *fakeLinstor) slowly(takes time.Duration) {
	f.change(func() {
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/v1/resource-definitions/r") {
				sleep(r.Context(), takes)
			}
			return false
		}
	})
}

func TestACallerHasAllItAsksForBeforeTheNextOne(t *testing.T) {
	const many, takes = 100, 20 * time.Millisecond
	inCrowd(t, 3*many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.slowly(takes)
		keepAll(feed, 3*many, time.Minute)
		settle(6 * time.Second)
		var all sync.WaitGroup
		var mu sync.Mutex
		last := make([]time.Duration, 3)
		began := time.Now()
		for caller := range 3 {
			ctx := Together(t.Context())
			for i := range many {
				all.Go(func() {
					if _, err := feed.Refresh(ctx, fmt.Sprintf("r%d", caller*many+i), 0); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					last[caller] = max(last[caller], time.Since(began))
				})
			}
			settle(time.Millisecond)
		}
		all.Wait()
		for caller, took := range last {
			if most := time.Duration(caller+1)*many*takes/atOnce + 3*takes; took > most {
				t.Errorf("caller %d has all after %s, want at most %s", caller, took, most)
			}
		}
	})
}

// What a caller no longer wants keeps nobody waiting.
func TestATurnThatIsNotWantedAnyMoreIsGivenBack(t *testing.T) {
	inCrowd(t, 3*atOnce, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.slowly(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 3 * atOnce {
			all.Go(func() {
				if _, err := feed.Refresh(ctx, fmt.Sprintf("r%d", i), 0); err == nil {
					t.Error("there was an answer")
				}
			})
		}
		settle(time.Second)
		cancel()
		all.Wait()
		asked := time.Now()
		if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil || time.Since(asked) > 100*time.Millisecond {
			t.Errorf("error %v after %s", err, time.Since(asked))
		}
		settle(time.Second)
		s := &feed.schedule
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.acting != 0 || len(s.turns) != 0 {
			t.Errorf("%d turns last, and %d are awaited", s.acting, len(s.turns))
		}
	})
}

// Those who ask all the time keep nobody from being read who only waits for his grace to end.
func TestWhatIsKeptIsReadAlsoWhileAnActAsksAllTheTime(t *testing.T) {
	const many, takes = 200, 20 * time.Millisecond
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.slowly(takes)
		keepAll(feed, many, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 100 { // the first ones
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = feed.Refresh(ctx, fmt.Sprintf("r%d", i), 0)
				}
			})
		}
		settle(5 * time.Second)
		if longest := gap(feed, many, 20*time.Second); longest > 2*time.Second {
			t.Errorf("one was not read for %s", longest)
		}
		cancel()
		all.Wait()
	})
}

// One by one the definitions would take as long again.
func TestAnActThatAsksForManyDoesNotReadEachDefinition(t *testing.T) {
	const many = 100
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, many, time.Minute)
		settle(10 * time.Second)
		for range 10 {
			fake.forget()
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					if _, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i), 0); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			fake.change(func() {
				for path, n := range fake.requests {
					if strings.HasPrefix(path, "/v1/resource-definitions/") && !strings.HasSuffix(path, "/resources") {
						t.Errorf("%s was read %d times", path, n)
					}
				}
			})
			settle(777 * time.Millisecond)
		}
		for i := range many {
			if age := time.Since(feed.store.definitionReadAt(fmt.Sprintf("r%d", i))); age > definitionAge {
				t.Errorf("a definition was read %s ago", age)
			}
		}
	})
}

func TestAStandbyReadsWhatIsWantedEveryFiveSeconds(t *testing.T) {
	elected := make(chan struct{})
	inCrowdWith(t, Options{Elected: elected}, 3, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		feed.Keep("r1", time.Now().Add(time.Hour))
		settle(5 * time.Second)
		fake.forget()
		settle(20 * time.Second)
		if got := fake.singles(); got != 4 {
			t.Errorf("a standby has read it %d times in 20 s", got)
		}
		before, _ := feed.store.Resource("r1")
		close(elected)
		settle(5 * time.Second)
		fake.forget()
		settle(20 * time.Second)
		if got := fake.singles(); got < 19 || got > 21 {
			t.Errorf("the leader has read it %d times in 20 s", got)
		}
		if now, _ := feed.store.Resource("r1"); !now.SetSince.Equal(before.SetSince) {
			t.Error("the clock was restarted meanwhile")
		}
	})
}

// LINSTOR's time belongs to the process that acts, however many events come at once.
func TestAStandbyReadsSixteenResourcesASecond(t *testing.T) {
	const many = 300
	inCrowdWith(t, Options{Elected: make(chan struct{})}, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, many, time.Hour)
		fake.mayPromote(many, new(true))
		for range 30 {
			fake.forget()
			settle(time.Second)
			if got := fake.singles(); got < 15 || got > 17 {
				t.Errorf("a standby has read %d resources in a second", got)
			}
		}
		if longest := gap(feed, many, time.Minute); longest > many*standbyApart+time.Second {
			t.Errorf("one was not read for %s", longest)
		}
	})
}

// An act does not wait for a poll to end before it asks.
func TestALiveReadDoesNotWaitForAPoll(t *testing.T) {
	const takes = 900 * time.Millisecond
	inCrowd(t, 1, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, 1, time.Hour)
		settle(time.Second)
		fake.slowly(takes)
		for range 10 {
			settle(1370 * time.Millisecond)
			asked := time.Now()
			if _, err := feed.Refresh(t.Context(), "r0", 0); err != nil || time.Since(asked) > takes+50*time.Millisecond {
				t.Errorf("a live read took %s: %v", time.Since(asked), err)
			}
		}
	})
}
