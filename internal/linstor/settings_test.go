package linstor

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// asked is a request and when it came.
type asked struct {
	path string
	at   time.Time
}

// record has each answer take a moment, and returns the requests that have come since.
func (f *fakeLinstor) record() func() []asked {
	var all []asked
	f.change(func() {
		f.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			f.change(func() { all = append(all, asked{r.URL.Path, time.Now()}) })
			if r.URL.Path != client.StreamPath {
				select {
				case <-time.After(10 * time.Millisecond):
				case <-r.Context().Done(): // the story has ended
				}
			}
			return false
		}
	})
	return func() (copied []asked) {
		f.change(func() { copied = slices.Clone(all) })
		return copied
	}
}

// inCalm runs a story with a feed of PVC-1, of which it is known what the nodes run.
func inCalm(t *testing.T, story func(t *testing.T, fake *fakeLinstor, feed *Feed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(time.Second)
		alive(feed)
		settle(20 * time.Second)
		confirmed(t, feed, "node-a")
		story(t, fake, feed)
	})
}

// alive has all nodes show that they are alive.
func alive(feed *Feed) {
	for _, node := range feed.store.Nodes() {
		feed.store.Alive(node.Name, time.Now())
	}
}

// confirmed checks that a node is known to run the quorum of PVC-1, and unconfirmed that it is not.
func confirmed(t *testing.T, feed *Feed, node string) { t.Helper(); isConfirmed(t, feed, node, true) }

func unconfirmed(t *testing.T, feed *Feed, node string) {
	t.Helper()
	isConfirmed(t, feed, node, false)
}

func isConfirmed(t *testing.T, feed *Feed, node string, want bool) {
	t.Helper()
	r, _ := feed.store.Resource("PVC-1")
	if replica, _ := r.Replica(node); replica.Confirmed != want {
		t.Errorf("%s is confirmed: %t, want %t", node, replica.Confirmed, want)
	}
}

// linked has some replicas report connections to each other, and nobody else.
func (f *fakeLinstor) linked(nodes ...string) {
	f.change(func() {
		for i := range f.resources {
			f.resources[i].LayerObject.DRBD.Connections = map[string]client.Connection{}
			for _, peer := range nodes {
				if slices.Contains(nodes, f.resources[i].NodeName) && peer != f.resources[i].NodeName {
					f.resources[i].LayerObject.DRBD.Connections[peer] = client.Connection{Connected: new(true)}
				}
			}
		}
	})
}

// LINSTOR writes replicas and quorum in one step: only in this order a reading is of settings that there were.
func TestAnEventOfAnUnknownReplicaHasTheListReadAndThenTheDefinition(t *testing.T) {
	inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		requests := fake.record()
		fake.change(func() {
			fake.nodes = append(fake.nodes, client.Node{Name: "node-c", Type: "SATELLITE", ConnectionStatus: client.StatusOnline})
			fake.resources = append(fake.resources, resource("PVC-1", "node-c", false, 1, false))
			fake.definitions[0] = definition("PVC-1", "all")
		})
		event := time.Now()
		fake.promotion("PVC-1", "node-c", new(false))
		settle(200 * time.Millisecond)
		list, read := -1, -1
		for i, r := range requests() {
			switch r.path {
			case "/v1/resource-definitions/PVC-1/resources":
				list = i
			case "/v1/resource-definitions/PVC-1":
				read = i
			}
		}
		if list < 0 || read < list || requests()[read].at.Before(requests()[list].at.Add(10*time.Millisecond)) {
			t.Errorf("asked for %+v", requests())
		} else if took := requests()[read].at.Sub(event); took > 100*time.Millisecond {
			t.Errorf("the definition was read after %s", took)
		}
		confirmed(t, feed, "node-a")
		settle(6 * time.Second)
		fake.linked("Node-A", "node-b", "node-c")
		settle(3 * time.Second)
		confirmed(t, feed, "node-a")
		confirmed(t, feed, "node-c")
	})
}

// LINSTOR says the same again where a replica has got a disk, or lost it (recordings 01, 19, 22).
func TestAReplicaOfWhichLinstorSaysTheSameAgainIsRead(t *testing.T) {
	inCalm(t, func(t *testing.T, fake *fakeLinstor, _ *Feed) {
		fake.promotion("PVC-1", "node-b", new(false)) // the replay, with which the stream opens
		settle(time.Minute)
		requests := fake.record()
		fake.promotion("PVC-1", "node-b", new(false))
		settle(time.Second)
		for _, r := range requests() {
			if r.path == "/v1/resource-definitions/PVC-1/resources" {
				return
			}
		}
		t.Errorf("asked for %+v, want the replicas of PVC-1", requests())
	})
}

// As linstor-csi makes a volume: one replica alone, and then the rest.
func TestANewVolumeIsKnownASecondAfterItsFirstReport(t *testing.T) {
	inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.record()
		fake.change(func() {
			fake.definitions = append(fake.definitions, definition("PVC-2", "off"))
			fake.resources = append(fake.resources, resource("PVC-2", "Node-A", false, 1, false))
		})
		fake.promotion("PVC-2", "Node-A", new(true))
		settle(time.Second)
		fake.change(func() {
			fake.definitions[1] = definition("PVC-2", "majority")
			fake.nodes = append(fake.nodes, client.Node{Name: "node-c", Type: "SATELLITE", ConnectionStatus: client.StatusOnline})
			fake.resources = append(fake.resources, resource("PVC-2", "node-b", false, 1, false), resource("PVC-2", "node-c", false, 1, false))
		})
		settle(400 * time.Millisecond)
		fake.linked("Node-A", "node-b", "node-c")
		fake.promotion("PVC-2", "node-b", new(true))
		settle(time.Second)
		r, _ := feed.store.Resource("PVC-2")
		if a, _ := r.Replica("node-a"); !a.Confirmed {
			t.Error("node-a is not confirmed")
		}
	})
}

// gaps returns the longest times between requests of some paths from begin to end.
func gaps(all []asked, begin, end time.Time, paths ...string) map[string]time.Duration {
	longest := map[string]time.Duration{}
	for _, path := range paths {
		last := begin
		for _, r := range append(slices.Clone(all), asked{path, end}) {
			if r.path == path && !r.at.Before(begin) && !r.at.After(end) {
				longest[path] = max(longest[path], r.at.Sub(last))
				last = r.at
			}
		}
	}
	return longest
}

// LINSTOR rewrites all definitions with the controller's quorum, and tells nobody.
func TestTheLevelsAboveTheDefinitionsAreReadOften(t *testing.T) {
	const controller, groups, definitions = "/v1/controller/properties", "/v1/resource-groups", "/v1/resource-definitions"
	user := map[string]string{client.PropQuorum: "all", client.PropQuorumSetBy: setByUser}
	for name, tc := range map[string]struct {
		change func(fake *fakeLinstor)
		within time.Duration
	}{
		"a quorum set on the controller": {func(fake *fakeLinstor) {
			fake.controller, fake.definitions[0] = user, definition("PVC-1", "all")
		}, 21 * time.Second},
		"a quorum set on the group": {func(fake *fakeLinstor) {
			fake.groups[0].Props, fake.definitions[0] = user, definition("PVC-1", "")
		}, 21 * time.Second},
		"a quorum set on the definition": {func(fake *fakeLinstor) {
			fake.definitions[0] = definition("PVC-1", "all")
		}, definitionsEvery + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				requests, begin := fake.record(), time.Now()
				settle(5 * time.Minute)
				got := gaps(requests(), begin, time.Now(), controller, groups, definitions)
				if got[controller] > 21*time.Second || got[groups] > 21*time.Second ||
					got[definitions] > definitionsEvery+time.Second || got[definitions] < definitionsEvery-time.Second {
					t.Errorf("longest time between two readings: %v", got)
				}
				fake.change(func() { tc.change(fake) })
				settle(tc.within)
				confirmed(t, feed, "node-a")
			})
		})
	}
}

// A replica that came before a quorum was set must be found when that is, and not as if it had come long after it.
func TestTheReplicasAreReadWhereTheQuorumHasChanged(t *testing.T) {
	user := map[string]string{client.PropQuorum: "all", client.PropQuorumSetBy: setByUser}
	for name, tc := range map[string]struct {
		definition string
		set        func(fake *fakeLinstor)
	}{
		"on the group": {"", func(fake *fakeLinstor) { fake.groups[0].Props = user }},
		"on the controller, which rewrites the definition": {"off", func(fake *fakeLinstor) {
			fake.controller, fake.definitions[0] = user, definition("PVC-1", "all")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.change(func() { fake.definitions[0] = definition("PVC-1", tc.definition) })
				settle(2 * time.Minute)
				fake.change(func() {
					fake.resources = append(fake.resources, silent("PVC-1", "node-c")) // without any event: its node is OFFLINE
					tc.set(fake)
				})
				settle(31 * time.Second)
				fake.linked("Node-A", "node-b", "node-c")
				feed.Poll("PVC-1")
				settle(time.Minute)
				unconfirmed(t, feed, "node-a")
			})
		})
	}
}

// A quorum that a person sets on the controller is in the definition, too, without a word of who has set it. A replica that comes at the same moment does
// not prove it.
func TestWhoHasSetAQuorumIsReadWithIt(t *testing.T) {
	user := map[string]string{client.PropQuorum: "majority", client.PropQuorumSetBy: setByUser}
	for name, set := range map[string]func(fake *fakeLinstor){
		"on the controller": func(fake *fakeLinstor) { fake.controller, fake.definitions[0] = user, definition("PVC-1", "majority") },
		"on the group":      func(fake *fakeLinstor) { fake.groups[0].Props, fake.definitions[0] = user, definition("PVC-1", "") },
	} {
		t.Run(name, func(t *testing.T) {
			inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.change(func() { fake.definitions[0] = definition("PVC-1", "off") })
				feed.Poll("PVC-1")
				settle(2 * time.Minute)
				unconfirmed(t, feed, "node-a")
				fake.change(func() {
					fake.resources = append(fake.resources, silent("PVC-1", "node-c"))
					set(fake)
				})
				fake.linked("Node-A", "node-b", "node-c")
				feed.Poll("PVC-1")
				settle(5 * time.Minute)
				unconfirmed(t, feed, "node-a")
			})
		})
	}
}

// LINSTOR deletes a replica in one step, and adapts the quorum in the next.
func TestTheQuorumThatFollowsADeletionIsReadSoon(t *testing.T) {
	inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
		fake.change(func() { fake.resources = fake.resources[:1] })
		feed.Poll("PVC-1")
		settle(300 * time.Millisecond)
		confirmed(t, feed, "node-a")
		fake.change(func() { fake.definitions[0] = definition("PVC-1", "off") })
		settle(2 * time.Second)
		unconfirmed(t, feed, "node-a")
	})
}

func TestItBecomesKnownWhatNodesRunWithoutAnyEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		fake.record()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(9 * time.Second)
		alive(feed)
		begun := func() bool {
			r, _ := feed.store.Resource("PVC-1")
			a, _ := r.Replica("node-a")
			return a.Confirmed
		}
		settle(time.Second)
		if begun() {
			t.Error("known although no node list was begun ten seconds after the reading")
		}
		settle(7 * time.Second)
		if !begun() {
			t.Error("not known 17 s after the start")
		}
	})
}

// A satellite that restarts is back after 6 s, of which LINSTOR may miss most.
func TestASatelliteThatRestartsIsSeenAway(t *testing.T) {
	for name, away := range map[string]time.Duration{"for a moment": 1600 * time.Millisecond, "for long": time.Minute} {
		for later, delay := range map[string]time.Duration{"at once": 0, "after a while": 5 * time.Second} {
			t.Run(name+" "+later, func(t *testing.T) {
				inCalm(t, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
					fake.change(func() { fake.definitions[0] = definition("PVC-1", "off") })
					settle(definitionsEvery + 5*time.Second)
					fake.change(func() { fake.definitions[0] = definition("PVC-1", "majority") })
					settle(definitionsEvery + 5*time.Second)
					unconfirmed(t, feed, "node-a")
					requests, lost := fake.record(), time.Now()
					fake.change(func() { fake.resources[0] = silent("PVC-1", "Node-A") })
					fake.promotion("PVC-1", "Node-A", nil)
					settle(delay)
					fake.change(func() { fake.nodes[0].ConnectionStatus = "OFFLINE" })
					settle(away)
					fake.change(func() {
						fake.nodes[0].ConnectionStatus = client.StatusOnline
						fake.resources[0] = resource("PVC-1", "Node-A", true, 10102, false)
					})
					fake.linked("Node-A", "node-b")
					if away < time.Minute { // else the event is lost
						fake.promotion("PVC-1", "Node-A", new(false))
					}
					settle(10 * time.Second)
					if got := gaps(requests(), lost, lost.Add(10*time.Second), "/v1/nodes"); got["/v1/nodes"] > 1600*time.Millisecond {
						t.Errorf("longest time between two node lists: %v", got)
					}
					settle(45 * time.Second)
					unconfirmed(t, feed, "node-a")
					settle(15 * time.Second)
					confirmed(t, feed, "node-a")
					unconfirmed(t, feed, "node-b")
				})
			})
		}
	}
}

func TestAFeedWithNothingToDoAsksLittle(t *testing.T) {
	inCrowd(t, 50, func(t *testing.T, fake *fakeLinstor, _ *Feed) {
		settle(2 * time.Minute)
		requests, begin := fake.record(), time.Now()
		settle(5 * time.Minute)
		many := map[string]int{}
		for _, r := range requests() {
			many[r.path]++
		}
		perMinute := float64(len(requests())) / time.Since(begin).Minutes()
		t.Logf("%.1f requests a minute", perMinute)
		if perMinute > 20 {
			t.Errorf("%.1f requests a minute, want at most 20: %v", perMinute, many)
		}
	})
}

// The definitions are read by the clock: events do not put that off, and a reading that fails is repeated after a second.
func TestTheDefinitionsAreReadByTheClock(t *testing.T) {
	const definitions = "/v1/resource-definitions"
	inCalm(t, func(t *testing.T, fake *fakeLinstor, _ *Feed) {
		requests, begin := fake.record(), time.Now()
		for may := false; time.Since(begin) < 5*time.Minute; may = !may {
			fake.promotion("PVC-1", "node-b", new(may))
			settle(50 * time.Millisecond)
		}
		if got := gaps(requests(), begin, time.Now(), definitions); got[definitions] > definitionsEvery+time.Second {
			t.Errorf("longest time between two readings in a storm: %v", got)
		}
		failed := 0
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != definitions {
					return false
				}
				fake.change(func() { failed++ })
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		})
		settle(definitionsEvery + 10*time.Second)
		if failed < 10 || failed > 71 {
			t.Errorf("%d readings failed in 70 s", failed)
		}
	})
}
