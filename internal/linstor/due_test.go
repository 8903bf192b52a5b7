package linstor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

func TestRefreshReadsEverythingThatDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		feed.store.Alive("node-a", time.Now())
		settle(time.Minute + 2*nodesAge)

		fake.change(func() {
			fake.nodes[0].ConnectionStatus = "OFFLINE"
			fake.definitions[0].Props[client.PropQuorum] = "off"
			fake.resources[0] = silent("PVC-1", "Node-A")
		})
		now := time.Now()
		r, err := feed.Refresh(t.Context(), "pvc-1", 0)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := r.Replica("node-a")
		if a.Online.Value || !a.Online.Known || r.Quorum != "off" || a.Reports.Value || !r.Confirmed.Equal(now) {
			t.Errorf("resource: %+v", r)
		}
		if a.Confirmed {
			t.Error("node-a is confirmed, and LINSTOR wants quorum off")
		}
	})
}

func TestRefreshSharesWhatResourcesHaveInCommon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		for i := range 20 {
			name := fmt.Sprintf("r%d", i)
			fake.definitions = append(fake.definitions, definition(name, "majority"))
			fake.resources = append(fake.resources, resource(name, "node-b", false, 1, false))
		}
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(12*time.Second + 2*nodesAge)
		before := fake.count("/v1/nodes")
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				if _, err := feed.Refresh(t.Context(), fmt.Sprintf("r%d", i), 0); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if got := fake.count("/v1/nodes") - before; got != 1 {
			t.Errorf("%d node lists read, want 1", got)
		}
		if got := fake.count("/v1/resource-definitions/r7/resources"); got != 1 {
			t.Errorf("%d lists of r7 read, want 1", got)
		}
	})
}

func TestRefreshIsContentWithAReadingThatIsYoungEnough(t *testing.T) {
	for name, c := range map[string]struct {
		age, maxAge time.Duration
		asked       bool
	}{
		"of half a second, where it may be a second old":      {500 * time.Millisecond, time.Second, false},
		"of half a second, where it must be new":              {500 * time.Millisecond, 0, true},
		"of more than a second, where it may be a second old": {1100 * time.Millisecond, time.Second, true},
		"that is under way, where it may be a second old":     {0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, fake := newNetwork(), newFakeLinstor()
				fake.pvc1()
				n.serve(t, host, fake)
				feed := startFeed(t, n, "http://linstor", logr.Discard())
				settle(10 * time.Second)
				fake.change(func() {
					fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
						if strings.HasSuffix(r.URL.Path, "/resources") {
							<-time.After(300 * time.Millisecond)
						}
						return false
					}
				})
				begin := time.Now()
				go func() { _, _ = feed.Refresh(t.Context(), "PVC-1", 0) }()
				settle(max(c.age, 100*time.Millisecond))
				before := fake.count("/v1/resource-definitions/PVC-1/resources")
				r, err := feed.Refresh(t.Context(), "PVC-1", c.maxAge)
				if err != nil {
					t.Fatal(err)
				}
				if asked := fake.count("/v1/resource-definitions/PVC-1/resources") > before; asked != c.asked {
					t.Errorf("LINSTOR was asked anew: %t", asked)
				}
				if got := r.Confirmed.After(begin.Add(100 * time.Millisecond)); got != c.asked {
					t.Errorf("what is known was read at %s, the reading before began at %s", r.Confirmed, begin)
				}
				settle(time.Second)
			})
		})
	}
}

func TestRefreshFailsWhenLinstorCanNotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)

		if _, err := feed.Refresh(t.Context(), "nothing", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("a definition that does not exist: %v", err)
		}
		fake.change(func() {
			fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := feed.Refresh(ctx, "PVC-1", 0)
		if err == nil || errors.Is(err, ErrNotFound) || time.Since(begin) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		// A caller that goes away does not take the others' answer along.
		fake.change(func() { fake.intercept = nil })
		if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
			t.Error(err)
		}
	})
}

func TestRefreshOfADeletedDefinitionReadsTheNodesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		fake.change(func() {
			fake.definitions, fake.resources = nil, nil
			fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v1/nodes" {
					<-time.After(500 * time.Millisecond) // longer than the answer on the definition takes
				}
				return false
			}
		})
		settle(time.Second)
		begin := time.Now()
		if _, err := feed.Refresh(t.Context(), "PVC-1", 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("a definition that was deleted: %v", err)
		}
		if node, _ := feed.store.Node("node-a"); node.Online.Confirmed.Before(begin) {
			t.Errorf("the nodes were read %v before, not with the resource", begin.Sub(node.Online.Confirmed))
		}
		settle(time.Second)
	})
}

func TestADeletedDefinitionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		fake.change(func() { fake.definitions, fake.resources = nil, nil })
		fake.promotion("PVC-1", "node-b", nil)
		settle(time.Second)
		if names := feed.store.Names(); len(names) != 0 {
			t.Errorf("still there: %v", names)
		}
	})
}

func TestAForeign404IsNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }
		})
		feed.Poll("PVC-1")
		settle(time.Second)
		if _, ok := feed.store.Resource("PVC-1"); !ok {
			t.Error("an ingress without a backend made the store forget")
		}
	})
}

func TestPollLearnsANewDefinitionWithItsQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		fake.change(func() {
			fake.definitions = append(fake.definitions, definition("new", "majority"))
			fake.resources = append(fake.resources, resource("new", "node-b", true, 1, false))
		})
		fake.promotion("new", "node-b", new(false))
		settle(time.Second)
		r, _ := feed.store.Resource("new")
		if _, ok := r.Replica("node-b"); !ok || r.Quorum != "majority" {
			t.Errorf("resource: %+v", r)
		}
		// LINSTOR turns quorum off by itself when too few replicas are left.
		fake.change(func() {
			fake.definitions[1] = definition("new", "off")
			fake.resources = append(fake.resources, resource("new", "node-a", false, 1, false))
		})
		feed.Poll("new")
		settle(time.Second)
		r, _ = feed.store.Resource("new")
		if b, _ := r.Replica("node-b"); r.Quorum != "off" {
			t.Errorf("replica: %+v", b)
		}
	})
}

func TestAPollEverySecondKeepsAllClocksRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		feed.Poll("PVC-1")
		settle(10 * time.Millisecond)
		begin := time.Now()
		for range 90 {
			settle(time.Second + 3*time.Millisecond)
			feed.Poll("PVC-1")
		}
		settle(0)
		r, _ := feed.store.Resource("PVC-1")
		a, _ := r.Replica("node-a")
		for name, since := range map[string]time.Time{
			"online": a.Online.Since, "in use": a.InUse.Since, "score": a.Score.Since, "set": r.SetSince,
		} {
			if since.After(begin) {
				t.Errorf("%s restarted %v after the first poll", name, since.Sub(begin))
			}
		}
	})
}

func TestMetricsCountWithoutBeingRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		fake.promotion("PVC-1", "node-b", new(true))
		settle(time.Second)
		fake.cut()
		settle(0)
		for name, want := range map[string]float64{
			"stream_connected":                        0,
			"stream_reconnects_total lost":            1,
			"events_total may-promote-change":         1,
			"requests_total resource_view ok":         1,
			"resync_duration_seconds":                 1,
			"requests_total event_stream error":       1,
			"requests_total controller_properties ok": 1,
		} {
			if got := gather(t, feed.metrics)[name]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// gather returns the metrics by name and label values.
func gather(t *testing.T, metrics *Metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := []string{strings.TrimPrefix(family.GetName(), metricsPrefix)}
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			for _, name := range []string{"kind", "code", "type", "reason"} {
				if value, ok := labels[name]; ok {
					key = append(key, value)
				}
			}
			values[strings.Join(key, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() +
				float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// mayPromote changes whether many resources may be promoted on node-b.
func (f *fakeLinstor) mayPromote(many int, value *bool) {
	f.change(func() {
		for _, r := range f.resources {
			r.LayerObject.DRBD.MayPromote = value
		}
	})
	for i := range many {
		f.promotion(fmt.Sprintf("r%d", i), "node-b", value)
	}
}

func TestWhatEventsAreAboutIsReadAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		events     int
		apart      time.Duration
		mayPromote *bool
		kept       bool
		// singles is how many lists may be read one by one, and within how long after its event each must be read.
		singles int
		within  time.Duration
	}{
		"of a few each is read at once":         {events: 10, mayPromote: new(true), singles: 10, within: 10 * time.Millisecond},
		"nor does one wait that calms":          {events: 8, mayPromote: new(false), singles: 8, within: 10 * time.Millisecond},
		"of many at a time each is read soon":   {events: 200, mayPromote: new(true), singles: 200, within: 200 * time.Millisecond},
		"and no less where LINSTOR lost them":   {events: 200, singles: 200, within: 200 * time.Millisecond},
		"of a trickle of what is kept each one": {events: 200, apart: 10 * time.Millisecond, mayPromote: new(true), kept: true, singles: 1000, within: 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, tc.events, func(t *testing.T, fake *fakeLinstor, feed *Feed) {
				fake.mayPromote(tc.events, new(tc.mayPromote != nil && !*tc.mayPromote)) // so that what an event says is news
				settle(5 * time.Second)
				if tc.kept {
					keepAll(feed, tc.events, time.Minute)
					settle(5 * time.Second)
				}
				fake.forget()
				var read sync.WaitGroup
				for i := range tc.events {
					name, event := fmt.Sprintf("r%d", i), time.Now()
					fake.promotion(name, "node-b", tc.mayPromote)
					read.Go(func() {
						if <-time.After(tc.within); feed.store.listReadAt(name).Before(event) {
							t.Errorf("%s was not read within %s", name, tc.within)
						}
					})
					<-time.After(tc.apart)
				}
				read.Wait()
				if got := fake.singles(); got > tc.singles {
					t.Errorf("%d lists read one by one, want at most %d", got, tc.singles)
				}
			})
		})
	}
}
