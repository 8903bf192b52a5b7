package linstor

import (
	"fmt"
	"net/http"
	"strings"
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

// all counts the requests.
func (f *fakeLinstor) all() (total int) {
	f.change(func() {
		for _, n := range f.requests {
			total += n
		}
	})
	return total
}

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
		settle(time.Minute)
		fake.forget()
		settle(30 * time.Second)
		if got := fake.singles(); got != 0 {
			t.Errorf("%d requests after the end", got)
		}
		if got := fake.count("/v1/nodes"); got > 6 {
			t.Errorf("%d node lists in 30 s after the end", got)
		}
		feed.Keep("r2", time.Now().Add(time.Second))
		settle(20 * time.Millisecond)
		if got := fake.count("/v1/resource-definitions/r2/resources"); got != 1 {
			t.Errorf("what was not read for long was read %d times at once", got)
		}
	})
}

// A node with ten volumes is dead, and its fail-over is blocked for an hour: nothing changes any more.
func TestWhatHasNotChangedForTwoMinutesIsReadEveryEightSeconds(t *testing.T) {
	const many = 10
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, many, 2*time.Hour)
		rate := func() int {
			fake.forget()
			settle(time.Minute)
			return fake.singles() / many
		}
		if got := rate(); got < 59 || got > 61 {
			t.Errorf("each was read %d times in the first minute", got)
		}
		settle(time.Hour)
		began := time.Now()
		if got := rate(); got < 7 || got > 8 {
			t.Errorf("each is read %d times a minute after an hour", got)
		}
		if got := fake.all(); got > many*8+20 {
			t.Errorf("%d requests in a minute: %v", got, fake.requests)
		}
		if got := restarted(feed, many, began); got > 0 {
			t.Errorf("%d clocks of %d restarted", got, many)
		}
		for name, change := range map[string]func(){
			"a reading shows a change": func() {
				fake.change(func() {
					fake.resources[2].LayerObject.DRBD.PromotionScore = new(*fake.resources[2].LayerObject.DRBD.PromotionScore + 1)
				})
				settle(calmEvery)
			},
			"an event reports one": func() { fake.promotion("r0", "node-b", new(true)); settle(time.Second) },
			"a node has gone": func() {
				fake.change(func() { fake.nodes[1].ConnectionStatus = "OFFLINE" })
				settle(calmEvery)
			},
			"an act reads it live": func() {
				if _, err := feed.Refresh(t.Context(), "r0", 0); err != nil {
					t.Fatal(err)
				}
			},
		} {
			change()
			fake.forget()
			settle(time.Minute)
			if got := fake.count("/v1/resource-definitions/r0/resources"); got < 59 || got > 61 {
				t.Errorf("%s: it was read %d times in the minute after", name, got)
			}
			settle(calmAfter)
			if got := rate(); got > 8 {
				t.Errorf("%s: it is still read %d times a minute after that", name, got)
			}
		}
	})
}

// While no event comes, a gap of eight seconds would interrupt every fact.
func TestWithoutEventsNothingIsCalm(t *testing.T) {
	inCrowd(t, 1, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		keepAll(feed, 1, time.Hour)
		settle(10 * time.Minute)
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == client.StreamPath {
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				return false
			}
		})
		fake.cut()
		settle(10 * time.Second)
		began := time.Now()
		if longest := gap(feed, 1, time.Minute); longest > pollEvery+100*time.Millisecond || restarted(feed, 1, began) > 0 {
			t.Errorf("not read for %s, %d clocks restarted", longest, restarted(feed, 1, began))
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

func TestThousandKeptResourcesAreReadEverySecond(t *testing.T) {
	atLength(t)
	const many = 1000
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delaySingles(8 * time.Millisecond)
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
		if got := fake.singles(); got > 21*many {
			t.Errorf("%d lists read in 20 s", got)
		}
		if definitions := fake.singleDefinitions(); definitions > 0 {
			t.Errorf("%d requests for definitions in 20 s although no replica has changed", definitions)
		}
		if got := fake.count("/v1/nodes"); got < 19 || got > 45 {
			t.Errorf("%d node lists read in 20 s", got)
		}
	})
}

func TestAFreshReadingDoesNotQueueBehindAllThatIsKept(t *testing.T) {
	const many = 3000
	for name, slow := range map[string]time.Duration{"slow": time.Second, "hanging": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.change(func() {
					fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
						if strings.HasPrefix(r.URL.Path, "/v1/resource-definitions/r") {
							sleep(r.Context(), slow)
						}
						return false
					}
				})
				keepAll(feed, many, time.Minute)
				settle(100 * time.Millisecond)
				for range 10 {
					asked := time.Now()
					if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(asked); took > 200*time.Millisecond {
						t.Errorf("a fresh read took %s", took)
					}
					settle(300 * time.Millisecond)
				}
			})
		})
	}
}

// An event comes for each of three thousand resources, which takes LINSTOR seconds to answer. A volume that may be lost must stay known meanwhile.
func TestAStormOfEventsHoldsUpNoPoll(t *testing.T) {
	atLength(t)
	const many, storm = 3100, 3000
	inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.delaySingles(100 * time.Millisecond)
		for i := range many - storm { // more than can be read at a time
			feed.Keep(fmt.Sprintf("r%d", i), time.Now().Add(time.Hour))
		}
		settle(5 * time.Second)
		for i := many - storm; i < many; i++ {
			feed.Poll(fmt.Sprintf("r%d", i))
		}
		begin := time.Now()
		if got := gap(feed, many-storm, 45*time.Second); got > 2500*time.Millisecond {
			t.Errorf("a gap of %s between two readings of what is polled", got)
		}
		for i := many - storm; i < many; i++ {
			if read := feed.store.listReadAt(fmt.Sprintf("r%d", i)); read.Before(begin) {
				t.Fatalf("r%d has not been read within 45 s", i)
			}
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
		if gather(t, feed.metrics)["requests_total nodes 503"] == 0 {
			t.Error("no metric shows the outage")
		}
		fake.change(func() { fake.intercept = nil })
		back := time.Now()
		settle(pollEvery + 100*time.Millisecond)
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
			if b, _ := r.Replica("node-b"); r.Quorum == quorum && !r.InDoubt && b.Node != "" {
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
				if got := fake.singleDefinitions(); got > 0 {
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
			settle(definitionsEvery + 2500*time.Millisecond)
			if got := quorums(feed, "off"); got != many {
				t.Errorf("the new quorum of %d resources of %d is known", got, many)
			}
		})
	})
	t.Run("of the group", func(t *testing.T) {
		inCrowd(t, many, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
			fake.change(func() { setQuorum(fake, "") })
			keepAll(feed, many, time.Hour)
			settle(definitionsEvery + 3*time.Second)
			fake.change(func() {
				fake.groups = []client.Group{{Name: "DfltRscGrp", Props: map[string]string{client.PropQuorum: "all"}}}
			})
			settle(levelsEvery + 500*time.Millisecond)
			if got := quorums(feed, "all"); got != many {
				t.Errorf("the new quorum of %d resources of %d is known", got, many)
			}
		})
	})
}
