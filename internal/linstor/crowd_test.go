package linstor

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

const filteredView = "/v1/view/resources?"

// inCrowd runs a story with a feed of many resources r0, r1, … that have one replica each.
func inCrowd(t *testing.T, many int, story func(t *testing.T, fake *fakeLinstor, feed *Feed)) {
	t.Helper()
	inCrowdWith(t, Options{}, many, story)
}

// inCrowdWith is inCrowd for a feed with options.
func inCrowdWith(t *testing.T, opts Options, many int, story func(t *testing.T, fake *fakeLinstor, feed *Feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		for i := range many {
			name := fmt.Sprintf("r%d", i)
			fake.definitions = append(fake.definitions, definition(name, "majority"))
			fake.resources = append(fake.resources, resource(name, "node-b", true, 0, false))
		}
		n.serve(t, host, fake)
		feed := NewFeed(testClient(t, n, "http://linstor"), NewStore(), logr.Discard(), opts)
		runFeed(t, feed)
		settle(time.Second)
		for _, node := range feed.store.Nodes() {
			feed.store.Alive(node.Name, time.Now())
		}
		settle(beginAfter + 2*time.Second) // so that it is known what the nodes run
		fake.forget()
		story(t, fake, feed)
	})
}

// singles counts the lists that were read one by one.
func (f *fakeLinstor) singles() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for path, n := range f.requests {
		if strings.HasSuffix(path, "/resources") && path != "/v1/view/resources" {
			total += n
		}
	}
	return total
}

// singleDefinitions counts the definitions that were read one by one.
func (f *fakeLinstor) singleDefinitions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	total := 0
	for path, n := range f.requests {
		if name, ok := strings.CutPrefix(path, "/v1/resource-definitions/"); ok && !strings.Contains(name, "/") {
			total += n
		}
	}
	return total
}

func pollAll(feed *Feed, many int) {
	for i := range many {
		feed.Poll(fmt.Sprintf("R%d", i))
	}
}

// restarted counts the clocks that did not run on since begin.
func restarted(feed *Feed, many int, begin time.Time) int {
	count := 0
	for i := range many {
		r, _ := feed.store.Resource(fmt.Sprintf("r%d", i))
		b, _ := r.Replica("node-b")
		if b.Score.Since.After(begin) || r.SetSince.After(begin) {
			count++
		}
	}
	return count
}

func TestAFewPollsAreCoalescedAndReadOneByOne(t *testing.T) {
	inCrowd(t, 100, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		for i := range 100 {
			for range 10 { // the first is served at once, and what comes meanwhile by one more
				feed.Poll(fmt.Sprintf("R%d", i))
			}
			settle(6 * time.Millisecond)
		}
		settle(time.Second)
		if n := fake.singles(); fake.count(filteredView) != 0 || n < 100 || n > 200 {
			t.Errorf("%d lists read one by one, %d by a filtered view; want 100 to 200 and none", n, fake.count(filteredView))
		}
	})
}

// delaySingles makes every list of one resource take a while.
func (f *fakeLinstor) delaySingles(d time.Duration) {
	f.change(func() {
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/resources") && r.URL.Path != "/v1/view/resources" {
				select {
				case <-time.After(d):
				case <-r.Context().Done():
					return true
				}
			}
			return false
		}
	})
}

func TestThousandPollsEverySecondKeepAllClocksRunning(t *testing.T) {
	atLength(t)
	const many = 1000
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delaySingles(5 * time.Millisecond)
		for range 3 {
			pollAll(feed, many)
			settle(time.Second)
		}
		begin := time.Now()
		for range 20 {
			pollAll(feed, many)
			settle(time.Second)
		}
		if got := restarted(feed, many, begin); got > 0 {
			t.Errorf("%d clocks of %d restarted", got, many)
		}
		if got := fake.count(filteredView); got > 0 {
			t.Errorf("%d filtered views", got)
		}
	})
}

// One request is shared by callers that want the same, and none of them gets an answer that is older than its call.
func TestFreshReadingsAreNoOlderThanTheirCalls(t *testing.T) {
	const many, slow = 300, 30 * time.Millisecond
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delaySingles(slow)
		var callers sync.WaitGroup
		for i := range 3 * many {
			callers.Go(func() {
				asked := time.Now()
				r, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i%many), 0)
				if err != nil {
					t.Error(err)
					return
				}
				b, _ := r.Replica("node-b")
				if r.Confirmed.Before(asked) || !b.Score.Confirmed.Equal(r.Confirmed) {
					t.Errorf("%s was read %s before it was asked for", r.Name, asked.Sub(r.Confirmed))
				}
			})
			if i%10 == 0 {
				settle(time.Millisecond)
			}
		}
		callers.Wait()
	})
}

// Each time that anybody opens a stream, LINSTOR sends the values of all replicas to every stream.
func TestStreamsThatOthersOpenHaveNoResourceRead(t *testing.T) {
	const many = 300
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.twoReplicas(many)
		feed.schedule.ask(listResync)
		settle(time.Minute)
		fake.forget()
		for range 3 {
			for i := range many {
				fake.promotion(fmt.Sprintf("r%d", i), "node-b", new(false))
				fake.promotion(fmt.Sprintf("r%d", i), "node-c", new(false))
			}
			settle(5 * time.Minute)
		}
		if n := fake.singles(); n > 0 {
			t.Errorf("%d lists were read one by one", n)
		}
	})
}

// LINSTOR sends the value of a replica again that has got a disk, or lost it.
func TestAValueThatIsSentAgainHasItsResourceRead(t *testing.T) {
	inCrowd(t, 10, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.twoReplicas(10)
		feed.schedule.ask(listResync)
		settle(time.Minute)
		for range 3 {
			fake.forget()
			fake.promotion("r3", "node-b", new(false))
			settle(2 * time.Second)
			if n := fake.count("/v1/resource-definitions/r3/resources"); n != 1 || fake.singles() != 1 {
				t.Errorf("it was read %d times, and others %d times", n, fake.singles()-n)
			}
		}
	})
}

// twoReplicas gives each resource of a crowd another replica.
func (f *fakeLinstor) twoReplicas(many int) {
	f.change(func() {
		for i := range many {
			f.resources = append(f.resources, resource(fmt.Sprintf("r%d", i), "node-c", false, 0, false))
		}
	})
}
