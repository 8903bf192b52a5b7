package linstor

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// keepAll keeps many resources for d.
func keepAll(feed *Feed, many int, d time.Duration) {
	until := time.Now().Add(d)
	for i := range many {
		feed.Keep(fmt.Sprintf("R%d", i), until)
	}
}

// forget forgets the requests.
func (f *fakeLinstor) forget() { f.change(func() { clear(f.requests) }) }

// gap returns the longest time for which one of many resources was not read in d.
func gap(feed *Feed, many int, d time.Duration) (longest time.Duration) {
	last := make([]time.Time, many)
	for begin := time.Now(); time.Since(begin) < d; settle(50 * time.Millisecond) {
		for i := range many {
			at := feed.store.listReadAt(fmt.Sprintf("r%d", i))
			if !last[i].IsZero() {
				longest = max(longest, at.Sub(last[i]))
			}
			last[i] = at
		}
	}
	return longest
}

func TestAKeptResourceIsReadEverySecondUntilTheEnd(t *testing.T) {
	inCrowd(t, 3, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		feed.Poll("r1")
		settle(400 * time.Millisecond)
		fake.forget()
		feed.Keep("R1", time.Now().Add(10*time.Second))
		settle(500 * time.Millisecond)
		if got := fake.singles(); got != 0 {
			t.Errorf("read %d times while the last reading was not a second old", got)
		}
		settle(200 * time.Millisecond)
		if got := fake.singles(); got != 1 {
			t.Errorf("read %d times when the last reading was a second old", got)
		}
		settle(4 * time.Second)
		if got := fake.singles(); got != 5 {
			t.Errorf("read %d times in 4 s and once before", got)
		}
		feed.Keep("r1", time.Now().Add(10*time.Second)) // in other words, 5 s longer
		feed.Keep("r1", time.Now())                     // takes nothing from another's wish
		settle(10 * time.Second)
		if got := fake.singles(); got < 14 || got > 15 {
			t.Errorf("read %d times in 14 s and once before", got)
		}
		settle(nodesAwaited) // since the feed has begun, until which the nodes are read anyway
		fake.forget()
		settle(30 * time.Second)
		if got := fake.singles() + fake.count("/v1/nodes"); got != 0 {
			t.Errorf("%d requests after the end", got)
		}
		feed.Keep("r2", time.Now().Add(time.Second))
		settle(bulkGather)
		if got := fake.count("/v1/resource-definitions/r2/resources"); got != 1 {
			t.Errorf("what was not read for long was read %d times at once", got)
		}
	})
}

func TestAKeptResourceIsNotReadAgainWhereOthersHaveItRead(t *testing.T) {
	inCrowd(t, 3, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, 1, time.Minute)
		settle(5 * time.Second)
		fake.forget()
		for range 20 {
			feed.Poll("r0")
			settle(500 * time.Millisecond)
		}
		if got := fake.singles(); got != 20 {
			t.Errorf("read %d times where 20 readings were asked for", got)
		}
	})
}

func TestThousandKeptResourcesAreReadTogetherEverySecond(t *testing.T) {
	const many = 1000
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delayBulk(500 * time.Millisecond)
		for i := range many { // over three seconds, in any order
			feed.Keep(fmt.Sprintf("r%d", i*7%many), time.Now().Add(time.Hour))
			settle(3 * time.Millisecond)
		}
		settle(10 * time.Second)
		fake.forget()
		begin := time.Now()
		if got := gap(feed, many, 20*time.Second); got > 1300*time.Millisecond {
			t.Errorf("a gap of %s between two readings", got)
		}
		if got := restarted(feed, many, begin); got > 0 {
			t.Errorf("%d clocks of %d restarted", got, many)
		}
		if lists, bulk := fake.singles(), fake.count(bulkLists); lists > 0 || bulk > 20*10 {
			t.Errorf("%d lists read one by one and %d in bulk in 20 s", lists, bulk)
		}
		if definitions := fake.singleDefinitions() + fake.count(bulkDefinitions); definitions > 0 {
			t.Errorf("%d requests for definitions in 20 s although no replica has changed", definitions)
		}
		if got := fake.count("/v1/nodes"); got < 20 || got > 45 {
			t.Errorf("%d node lists read in 20 s", got)
		}
	})
}

func TestAFreshReadingDoesNotQueueBehindAllThatIsKept(t *testing.T) {
	const many = 3000
	for name, slow := range map[string]time.Duration{"slow": time.Second, "hanging": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.delayBulk(slow)
				keepAll(feed, many, time.Minute)
				settle(100 * time.Millisecond)
				if got := fake.count(bulkLists); got == 0 || got > bulkFlights {
					t.Errorf("%d requests in bulk at a time", got)
				}
				for range 10 {
					asked := time.Now()
					if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(asked); took > bulkTimeout+bulkGather+200*time.Millisecond {
						t.Errorf("a fresh read took %s", took)
					}
					settle(300 * time.Millisecond)
				}
			})
		})
	}
}

func TestWhatIsNotServedInBulkIsKeptOneByOne(t *testing.T) {
	const many = 100
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.change(func() {
			fake.definitions = slices.DeleteFunc(fake.definitions, func(d client.Definition) bool { return d.Name == "r99" })
			fake.resources = slices.DeleteFunc(fake.resources, func(r client.Resource) bool { return r.Name == "r99" })
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path+"?" != bulkLists || r.URL.RawQuery == "" {
					return false
				}
				fake.answer(w, func() any {
					return slices.DeleteFunc(chosen(fake.resources, r.URL.Query()["resources"],
						func(r client.Resource) string { return r.Name }), func(r client.Resource) bool { return r.Name == "r0" })
				})
				return true
			}
		})
		keepAll(feed, many, time.Minute)
		feed.Keep("never-heard-of", time.Now().Add(time.Minute))
		settle(5 * time.Second)
		fake.forget()
		if got := gap(feed, 99, 10*time.Second); got > 1300*time.Millisecond {
			t.Errorf("a gap of %s between two readings", got)
		}
		if got := fake.singles(); got < 3*9 || got > 3*11 {
			t.Errorf("%d lists read one by one in 10 s, want those of three resources", got)
		}
		if r, ok := feed.store.Resource("r99"); ok {
			t.Errorf("a resource that is gone: %+v", r)
		}
	})
}

func TestKeptResourcesAreReadOneByOneWhereNothingIsAnsweredInBulk(t *testing.T) {
	const many = 150
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.RawQuery == "" {
					return false
				}
				w.WriteHeader(http.StatusBadRequest)
				return true
			}
		})
		keepAll(feed, many, time.Hour)
		settle(5 * time.Second)
		if got := gap(feed, many, 10*time.Second); got > 1900*time.Millisecond {
			t.Errorf("a gap of %s between two readings", got)
		}
		fake.change(func() { fake.intercept = nil })
		settle(bulkPauseMax + 30*time.Second)
		fake.forget()
		settle(5 * time.Second)
		if lists, bulk := fake.singles(), fake.count(bulkLists); lists > 6*crowd || bulk < 5 {
			t.Errorf("%d lists read one by one and %d in bulk after LINSTOR has recovered, want no more than a few at a time", lists, bulk)
		}
	})
}

func TestKeptResourcesAreReadAgainWhenLinstorIsBack(t *testing.T) {
	const many = 100
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, many, time.Hour)
		settle(3 * time.Second)
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		})
		settle(30 * time.Second)
		if feed.Status().LastError == "" {
			t.Error("nothing is said of the outage")
		}
		fake.change(func() { fake.intercept = nil })
		back := time.Now()
		settle(keepRetry + 100*time.Millisecond)
		for i := range many {
			if at := feed.store.listReadAt(fmt.Sprintf("r%d", i)); at.Before(back) {
				t.Fatalf("r%d was not read within %s", i, time.Since(back))
			}
		}
	})
}

// LINSTOR adapts the quorum of a definition when replicas come and go.
func TestTheSettingsOfKeptResourcesAreKnownAsThoseOfPolledOnes(t *testing.T) {
	const many = 100
	quorums := func(feed *Feed, quorum string) (known int) {
		for i := range many {
			r, _ := feed.store.Resource(fmt.Sprintf("r%d", i))
			if b, _ := r.Replica("node-b"); r.Quorum == quorum && !r.InDoubt && len(b.MayRun) > 0 && b.MayRun[len(b.MayRun)-1].Quorum == quorum {
				known++
			}
		}
		return known
	}
	setQuorum := func(fake *fakeLinstor, quorum string) {
		for i, d := range fake.definitions {
			fake.definitions[i] = definition(d.Name, quorum)
		}
	}
	for name, reshape := range map[string]func(*fakeLinstor){
		"a replica comes": func(fake *fakeLinstor) {
			for i := range many {
				fake.resources = append(fake.resources, resource(fmt.Sprintf("r%d", i), "node-a", false, 1, false))
			}
		},
		"a disk goes": func(fake *fakeLinstor) {
			for i := range fake.resources {
				fake.resources[i].Flags = []string{client.FlagDiskless}
			}
		},
		"a replica is about to go": func(fake *fakeLinstor) {
			for i := range fake.resources {
				fake.resources[i].Flags = []string{client.FlagDelete}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				keepAll(feed, many, time.Hour)
				settle(3 * time.Second)
				fake.change(func() { setQuorum(fake, "off"); reshape(fake) })
				settle(2500 * time.Millisecond)
				if got := quorums(feed, "off"); got != many {
					t.Errorf("the new quorum of %d resources of %d is known", got, many)
				}
				fake.forget()
				settle(12 * time.Second)
				if got := fake.singles() + fake.singleDefinitions() + fake.count(bulkDefinitions); got > 0 {
					t.Errorf("%d requests for what is known", got)
				}
			})
		})
	}
	t.Run("nothing else changes", func(t *testing.T) {
		inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
			keepAll(feed, many, time.Hour)
			settle(3 * time.Second)
			fake.change(func() { setQuorum(fake, "off") })
			settle(compareInterval + 2500*time.Millisecond)
			if got := quorums(feed, "off"); got != many {
				t.Errorf("the new quorum of %d resources of %d is known", got, many)
			}
		})
	})
	t.Run("of the group", func(t *testing.T) {
		inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
			fake.change(func() { setQuorum(fake, "") })
			keepAll(feed, many, time.Hour)
			settle(compareInterval + 3*time.Second)
			fake.change(func() {
				fake.groups = []client.Group{{Name: "DfltRscGrp", Props: map[string]string{client.PropQuorum: "all"}}}
			})
			settle(levelsInterval + 500*time.Millisecond)
			if got := quorums(feed, "all"); got != many {
				t.Errorf("the new quorum of %d resources of %d is known", got, many)
			}
		})
	})
}

// A round of readings that ends one by one wakes who reads for the first of them only.
func TestReadingsThatEndWakeNobodyForLater(t *testing.T) {
	now := time.Now()
	a := agenda{wake: make(chan struct{}, 1), dues: map[string]*due{}}
	never := func(string) time.Time { return time.Time{} }
	woken := func() bool {
		select {
		case <-a.wake:
			return true
		default:
			return false
		}
	}
	end := func(resource string) {
		a.change(resource, func(d *due) { d.reading, d.next = false, now.Add(keepInterval) })
	}
	take := func() int {
		taken, _ := a.take(now, never)
		if len(taken) > 0 {
			_, _ = a.take(now, never) // until nothing is due
		}
		return len(taken)
	}
	for i := range 10 {
		a.change(fmt.Sprintf("r%d", i), func(d *due) { d.until = now.Add(time.Minute) })
	}
	if got := take(); got != 10 {
		t.Fatalf("%d of 10 are read", got)
	}
	woken()
	end("r0")
	if !woken() {
		t.Error("nobody looks when r0 is due, before which nothing was")
	}
	take()
	for i := range 9 {
		if end(fmt.Sprintf("r%d", i+1)); woken() {
			t.Errorf("r%d wakes somebody, and is not due before r0", i+1)
		}
	}
	a.change("r5", func(d *due) { d.at = now })
	if !woken() {
		t.Error("nobody reads r5, which is due at once")
	}
}
