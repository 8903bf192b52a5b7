package linstor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	bulkLists       = "/v1/view/resources?"
	bulkDefinitions = "/v1/resource-definitions?"
)

// inCrowd runs a story with a feed of many resources r0, r1, … that have one replica each.
func inCrowd(t *testing.T, many int, story func(t *testing.T, fake *fakeLinstor, feed *Feed)) {
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
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(time.Second)
		for _, node := range feed.store.Nodes() {
			feed.store.Alive(node.Name, time.Now())
		}
		settle(beginAfter + 2*time.Second) // so that it is known what the nodes run
		fake.forget()
		story(t, fake, feed)
	})
}

// reshape takes the disk of each replica, or gives it back: LINSTOR may adapt all settings to that.
func (f *fakeLinstor) reshape() {
	for i := range f.resources {
		r := &f.resources[i]
		if r.Flags != nil {
			r.Flags = nil
		} else {
			r.Flags = []string{client.FlagDiskless}
		}
	}
}

// delayBulk makes every bulk list take a while.
func (f *fakeLinstor) delayBulk(d time.Duration) {
	f.change(func() {
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path+"?" == bulkLists && r.URL.RawQuery != "" {
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
		if n := fake.singles(); fake.count(bulkLists) != 0 || n < 100 || n > 200 {
			t.Errorf("%d lists read one by one, %d in bulk; want 100 to 200 and none", n, fake.count(bulkLists))
		}
	})
}

func TestThousandPollsEverySecondKeepAllClocksRunning(t *testing.T) {
	const many = 1000
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delayBulk(500 * time.Millisecond)
		for range 3 {
			pollAll(feed, many)
			settle(time.Second)
		}
		begin := time.Now()
		fake.forget()
		for range 20 {
			pollAll(feed, many)
			settle(time.Second)
		}
		if got := restarted(feed, many, begin); got > 0 {
			t.Errorf("%d clocks of %d restarted", got, many)
		}
		if got := fake.singles(); got > 20*200+16 {
			t.Errorf("%d lists read one by one in 20 s, want at most 200 a second", got)
		}
		if got := fake.count(bulkLists); got > 20*10 {
			t.Errorf("%d bulk lists read in 20 s, want at most 10 a second", got)
		}
	})
}

// A request for one costs LINSTOR, and every replica, about as much as one for a hundred.
func TestOfManyReadingsAtATimeOnlyAFewAreAlone(t *testing.T) {
	const many = 500
	for name, read := range map[string]func(*testing.T, *Feed){
		"polls": func(_ *testing.T, feed *Feed) { pollAll(feed, many) },
		"fresh readings": func(t *testing.T, feed *Feed) {
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					if _, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i), 0); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.change(fake.reshape) // so that the settings are to be read, too
				fake.change(func() {
					fake.intercept = func(http.ResponseWriter, *http.Request) bool {
						<-time.After(10 * time.Millisecond) // so that others come meanwhile
						return false
					}
				})
				fake.forget()
				read(t, feed)
				settle(500 * time.Millisecond)
				lists, definitions := fake.singles(), fake.singleDefinitions()
				if lists > many/5 || definitions > many/5 || fake.count(bulkLists) == 0 || fake.count(bulkDefinitions) == 0 {
					t.Errorf("%d lists and %d definitions read one by one, %d and %d requests in bulk; want at most %d one by one",
						lists, definitions, fake.count(bulkLists), fake.count(bulkDefinitions), many/5)
				}
			})
		})
	}
}

// A request that is full leaves at once, and so is no reason for the next one to wait.
func TestTheLastOfManyReadingsDoNotWaitForRequestsThatWereFull(t *testing.T) {
	const many = 1050
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		began := time.Now()
		var readings sync.WaitGroup
		for i := range many {
			readings.Go(func() {
				if _, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i), 0); err != nil {
					t.Error(err)
				}
			})
		}
		readings.Wait()
		// First the definitions are read, then the lists.
		if took := time.Since(began); took > 2*bulkApart {
			t.Errorf("it took %s", took)
		}
		if alone := fake.singles() + fake.singleDefinitions(); alone > many/10 {
			t.Errorf("%d were read alone", alone)
		}
	})
}

func TestReadingsThatNobodyWaitsForAnyMoreTellNothingAboutLinstor(t *testing.T) {
	const many = 100
	readAll := func(t *testing.T, ctx context.Context, feed *Feed) {
		t.Helper()
		var readings sync.WaitGroup
		for i := range many {
			readings.Go(func() { _, _ = feed.Refresh(ctx, fmt.Sprintf("r%d", i), 0) })
		}
		readings.Wait()
	}
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		readAll(t, t.Context(), feed) // the settings are known after that for a while
		fake.delayBulk(time.Second)
		for patience := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(patience+1)*bulkGather)
			readAll(t, ctx, feed)
			cancel()
		}
		fake.delayBulk(0)
		before := fake.singles()
		readAll(t, t.Context(), feed)
		if alone := fake.singles() - before; alone > many/2 {
			t.Errorf("%d were read alone", alone)
		}
	})
}

func TestABulkReadThatHangsHoldsUpNobody(t *testing.T) {
	const many = 600
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delayBulk(time.Hour)
		begin := time.Now()
		pollAll(feed, many)
		for range 10 {
			settle(300 * time.Millisecond)
			asked := time.Now()
			if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(asked); took > bulkTimeout+bulkGather+200*time.Millisecond {
				t.Errorf("a fresh read took %s", took)
			}
		}
		settle(3 * time.Second)
		for i := range many {
			if r, _ := feed.store.Resource(fmt.Sprintf("r%d", i)); r.Confirmed.Before(begin) {
				t.Errorf("%s was not read within %s", r.Name, time.Since(begin))
			}
		}
		if got := fake.singles(); got > int(time.Since(begin).Seconds()*200)+16+10 {
			t.Errorf("%d lists read one by one within %s", got, time.Since(begin))
		}
		if got := fake.count(bulkLists); got > 10 {
			t.Errorf("%d bulk reads tried", got)
		}
		// It is tried again, and used once it works.
		fake.delayBulk(0)
		settle(bulkPauseMax)
		pollAll(feed, many)
		settle(2 * bulkPause)
		fake.forget()
		pollAll(feed, many)
		settle(300 * time.Millisecond)
		if fake.count(bulkLists) < 3 {
			t.Errorf("%d lists read one by one and %d in bulk after LINSTOR has recovered", fake.singles(), fake.count(bulkLists))
		}
	})
}

// Requests that run at the same time mostly fail for the same reason: together they lead to one pause, not to that of many
// failures in a row.
func TestBulkRequestsThatFailTogetherLeadToOnePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failing := true
		b := &bulk{read: func(context.Context, []string) (map[string]bool, error) {
			fails := failing
			<-time.After(time.Second)
			if fails {
				return nil, errors.New("busy")
			}
			return map[string]bool{"r": true}, nil
		}}
		r := &reader{bulk: b, queue: []*reading{{name: "r", ctx: t.Context()}}}
		var requests sync.WaitGroup
		for range bulkFlights {
			requests.Go(func() { _, _ = b.request(t.Context(), []string{"r"}) })
		}
		requests.Wait()
		failing = false
		<-time.After(bulkPause)
		b.open(r) // begins the trial
		<-time.After(1100 * time.Millisecond)
		if !b.open(r) {
			t.Errorf("nothing is asked in bulk %s after %d requests have failed", bulkPause+time.Second, bulkFlights)
		}
	})
}

func TestABulkAnswerIsAsOldAsItsRequest(t *testing.T) {
	const many, slow = 300, time.Second
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delayBulk(slow)
		asked := time.Now()
		var callers sync.WaitGroup
		for i := range many {
			callers.Go(func() {
				r, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i), 0)
				if err != nil {
					t.Error(err)
					return
				}
				b, _ := r.Replica("node-b")
				if r.Confirmed.Before(asked) || r.Confirmed.After(asked.Add(slow/2)) || !b.Score.Confirmed.Equal(r.Confirmed) {
					t.Errorf("%s was asked for at 0 s, and counts as read at %s", r.Name, r.Confirmed.Sub(asked))
				}
			})
		}
		callers.Wait()
		if lists, definitions := fake.count(bulkLists), fake.count(bulkDefinitions); lists == 0 || lists > 5 || definitions == 0 || definitions > 5 {
			t.Errorf("%d bulk reads of lists and %d of definitions for %d resources", lists, definitions, many)
		}
	})
}

func TestABulkAnswerIsNoEvidenceForWhatItLacks(t *testing.T) {
	const many = 300
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		hidden := map[string]bool{}
		fake.change(func() {
			for i := range 20 {
				hidden[fmt.Sprintf("r%d", i)] = true // resources without volumes, which the view does not list
			}
			fake.definitions = slices.DeleteFunc(fake.definitions, func(d client.Definition) bool { return d.Name == "r299" })
			fake.resources = slices.DeleteFunc(fake.resources, func(r client.Resource) bool { return r.Name == "r299" })
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path+"?" != bulkLists || r.URL.RawQuery == "" {
					return false
				}
				fake.answer(w, func() any {
					return slices.DeleteFunc(chosen(fake.resources, r.URL.Query()["resources"],
						func(r client.Resource) string { return r.Name }), func(r client.Resource) bool { return hidden[r.Name] })
				})
				return true
			}
		})
		begin := time.Now()
		pollAll(feed, many)
		pollAll(feed, many)
		settle(2 * time.Second)
		if fake.count(bulkLists) == 0 {
			t.Fatal("nothing was read in bulk")
		}
		for i := range 20 {
			r, ok := feed.store.Resource(fmt.Sprintf("r%d", i))
			if !ok || len(r.Replicas) != 1 || r.Confirmed.Before(begin) {
				t.Errorf("a resource that the view hides: %+v", r)
			}
		}
		if r, ok := feed.store.Resource("r299"); ok {
			t.Errorf("a resource that is gone: %+v", r)
		}
	})
}

func TestDefinitionsAreReadInBulkAgainAfterAFailure(t *testing.T) {
	const many = 300
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		failing := true
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				<-time.After(10 * time.Millisecond) // so that others come meanwhile
				var fails bool
				fake.change(func() { fails = failing && r.URL.Path+"?" == bulkDefinitions && r.URL.RawQuery != "" })
				if fails {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				return fails
			}
		})
		fake.change(fake.reshape)
		pollAll(feed, many)
		settle(5 * time.Second)
		if fake.count(bulkDefinitions) == 0 {
			t.Fatal("no definitions were asked for in bulk")
		}
		fake.change(func() { failing = false })
		for range 2 {
			settle(10 * time.Second)
			fake.change(fake.reshape)
			fake.forget()
			pollAll(feed, many)
			settle(2 * time.Second)
		}
		if bulk, single := fake.count(bulkDefinitions), fake.singleDefinitions(); bulk == 0 || single > many/5 {
			t.Errorf("%d definitions read one by one and %d requests in bulk after LINSTOR has recovered", single, bulk)
		}
	})
}

func TestPollsAreLimitedWhereLinstorAnswersNothingInBulk(t *testing.T) {
	const many = 600
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.RawQuery == "" {
					return false
				}
				w.WriteHeader(http.StatusBadRequest) // the request line is too long for a proxy, say
				return true
			}
		})
		for range 3 {
			pollAll(feed, many)
		}
		settle(time.Second)
		if got := fake.singles(); got < 190 || got > 220 {
			t.Errorf("%d reads in the first second, want about 200", got)
		}
		settle(10 * time.Second)
		if got := fake.singles(); got < many || got > 2*many+many/10 { // those that were under way are read once more
			t.Errorf("%d reads for %d resources", got, many)
		}
	})
}

func TestABulkRequestFitsIntoOneHeader(t *testing.T) {
	const many = 500
	inCrowd(t, 0, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.change(func() {
			for i := range many {
				name := fmt.Sprintf("pvc-00000000-0000-4000-8000-%012d", i)
				fake.definitions = append(fake.definitions, definition(name, "majority"))
				fake.resources = append(fake.resources, resource(name, "node-b", true, 0, false))
			}
			fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if len(r.URL.RequestURI()) > 7000 {
					t.Errorf("a request of %d bytes", len(r.URL.RequestURI()))
				}
				return false
			}
		})
		settle(defaultResyncInterval)
		fake.forget()
		for _, name := range feed.store.Names() {
			feed.Poll(name)
		}
		settle(time.Second)
		if got := fake.count(bulkLists); got < 3 || got > 8 {
			t.Errorf("%d bulk requests for %d resources", got, many)
		}
	})
}
