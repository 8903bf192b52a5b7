package linstor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// The feed's tests run in bubbles: time is virtual, and a bubble fails when a goroutine outlives the feed.

const host = "linstor:3370"

func TestFeedSyncsFromALinstorThatWithholdsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(streamSettle + 10*time.Millisecond)

		status := feed.Status()
		if !status.Connected || !status.Synced {
			t.Errorf("status of an idle LINSTOR: %+v", status)
		}
		r, ok := feed.store.Resource("pvc-1")
		if !ok || len(r.Replicas) != 2 || !r.DRBD || r.Name != "PVC-1" {
			t.Fatalf("resource: %+v, %v", r, ok)
		}
		a, _ := r.Replica("node-a")
		if !isTrue(a.Online) || !isTrue(a.InUse) || a.Score.Value != 10102 || r.Quorum != "majority" || r.InDoubt || a.Confirmed {
			t.Errorf("replica on node-a: %+v", a)
		}
	})
}

func TestFeedTakesOverEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(time.Second)

		fake.change(func() {
			fake.resources[0], fake.resources[1] = silent("PVC-1", "Node-A"), resource("PVC-1", "node-b", false, 10101, true)
		})
		fake.promotion("PVC-1", "Node-A", nil)
		fake.promotion("PVC-1", "node-b", new(true))
		lost := time.Now()
		settle(100 * time.Millisecond)

		r, _ := feed.store.Resource("PVC-1")
		a, _ := r.Replica("node-a")
		b, _ := r.Replica("node-b")
		if a.MayPromote.Known || !a.MayPromote.Since.Equal(lost) || a.Reports.Value || !a.Reports.Known {
			t.Errorf("the lost replica must be unknown: %+v", a)
		}
		if !isTrue(b.MayPromote) || !b.MayPromote.Since.Equal(lost) || b.Score.Value != 10101 {
			t.Errorf("the survivor: %+v", b)
		}
		if got := feed.Status().LastConfirmed; !got.Equal(lost) {
			t.Errorf("last confirmed at %v, want %v", got, lost)
		}
	})
}

func TestFeedReconnectsAfterADroppedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.logger())
		for range 3 {
			settle(time.Minute)
			fake.promotion("PVC-1", "node-b", new(false))
			settle(time.Second)
			if !feed.Status().Synced {
				t.Fatalf("not synced: %+v", feed.Status())
			}
			fake.change(func() { fake.resources = append(fake.resources, resource("PVC-1", "node-c", false, 1, false)) })
			fake.cut()
			settle(0)
			if feed.Status().Connected {
				t.Fatal("still connected after the stream ended")
			}
		}
		settle(2 * time.Second)
		if got := fake.streamsOpened(); got != 4 {
			t.Errorf("%d streams opened, want 4", got)
		}
		if r, _ := feed.store.Resource("PVC-1"); len(r.Replicas) != 3 {
			t.Errorf("what changed meanwhile was not read: %+v", r)
		}
		if got := strings.Count(lines.all(), "Following LINSTOR"); got != 4 {
			t.Errorf("%d connects logged, want 4:\n%s", got, lines.all())
		}
	})
}

// A token that is revoked ends no stream that was opened with it.
func TestFeedIsNotConnectedToALinstorThatRefusesToBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", lines.logger())
		settle(10 * time.Second)
		refuse := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		fake.change(func() { fake.intercept = refuse })
		settle(standbyEvery + time.Second)
		status := feed.Status()
		if status.Connected || status.Synced || !strings.Contains(status.Refused, envBearerTokenFile) {
			t.Errorf("status while every request is refused: %+v", status)
		}
		if got := strings.Count(lines.all(), envBearerTokenFile); got != 1 {
			t.Errorf("the log names the variable %d times:\n%s", got, lines.all())
		}
		fake.change(func() { fake.intercept = nil })
		settle(10 * time.Second)
		if status := feed.Status(); !status.Synced || status.Refused != "" {
			t.Errorf("status afterwards: %+v", status)
		}
	})
}

// A proxy may end the stream once a minute, because LINSTOR sends nothing by it while nothing happens.
func TestAStreamThatIsOpenedAgainIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(10 * time.Second)
		since := feed.Status().SyncedSince
		for range 5 {
			fake.cut()
			settle(time.Minute)
			if status := feed.Status(); !status.Synced || !status.SyncedSince.Equal(since) {
				t.Errorf("status after the stream was opened again: %+v, want it followed since %s", status, since)
			}
		}
		fake.change(func() {
			fake.intercept = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true }
		})
		fake.cut()
		settle(10 * time.Second)
		if status := feed.Status(); !status.SyncedSince.IsZero() {
			t.Errorf("status while LINSTOR is away: %+v", status)
		}
	})
}

// A connection may stand although nothing comes by it any more, and no end of it either.
func TestFeedNoticesAHalfOpenStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.logger())
		settle(10 * time.Second)

		fake.mute()
		fake.change(func() { fake.resources[1] = resource("PVC-1", "node-b", false, 10101, true) })
		settle(streamLife + time.Second)
		r, _ := feed.store.Resource("PVC-1")
		if b, _ := r.Replica("node-b"); !isTrue(b.MayPromote) || b.Score.Value != 10101 {
			t.Errorf("what the dead stream has missed is not known: %+v", b)
		}
		if !strings.Contains(lines.all(), "silent although") {
			t.Errorf("the dead stream is not in the log:\n%s", lines.all())
		}
		settle(10 * time.Minute)
		if got := strings.Count(lines.all(), "silent although"); got != 1 {
			t.Errorf("a stream that lives was given up:\n%s", lines.all())
		}
		if status := feed.Status(); !status.Connected || time.Since(status.SyncedSince) < 9*time.Minute {
			t.Errorf("status: %+v", status)
		}
	})
}

// The next stream is open before the last one ends.
func TestFeedMissesNothingWhenItTakesAnotherStream(t *testing.T) {
	atLength(t)
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := NewFeed(testClient(t, n, "http://linstor"), NewStore(), lines.logger(), Options{ResyncInterval: time.Hour})
		runFeed(t, feed)
		settle(10 * time.Second)
		views, disconnected := fake.count("/v1/view/resources"), 0
		for i := range 4000 {
			may := i%2 == 0
			fake.change(func() { fake.resources[1] = resource("PVC-1", "node-b", false, 10101, may) })
			fake.promotion("PVC-1", "node-b", new(may))
			settle(463 * time.Millisecond)
			r, _ := feed.store.Resource("PVC-1")
			if b, _ := r.Replica("node-b"); b.MayPromote.Value != may {
				t.Fatalf("event %d was missed", i)
			}
			if !feed.Status().Synced {
				disconnected++
			}
		}
		if got := fake.streamsOpened(); got != 3 || disconnected > 0 || fake.count("/v1/view/resources") != views || strings.Count(lines.all(), "\n") > 0 {
			t.Errorf("%d streams, %d times disconnected, %d views, log:\n%s", got, disconnected, fake.count("/v1/view/resources")-views, lines.all())
		}
	})
}

func TestFeedRepairsAStaleReplayByREST(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(time.Second)

		fake.change(func() { fake.resources[1] = resource("PVC-1", "node-b", false, 10101, true) })
		fake.promotion("PVC-1", "node-b", new(true))
		fake.promotion("PVC-1", "node-b", new(false)) // the older snapshot, delivered after the change
		settle(100 * time.Millisecond)
		r, _ := feed.store.Resource("PVC-1")
		if b, _ := r.Replica("node-b"); !isTrue(b.MayPromote) {
			t.Errorf("the stale replay stands: %+v", b.MayPromote)
		}
	})
}

func TestFeedReportsTheErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != client.StreamPath {
				return false
			}
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: error\ndata: [{\"message\":\"Access\\nto NODES_MAP denied\"}]\n\n")
			return true
		}
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.logger())
		settle(5 * time.Minute)
		if status := feed.Status(); status.Connected || !strings.Contains(lines.all(), "Access to NODES_MAP denied") {
			t.Errorf("status: %+v", status)
		}
		if got := strings.Count(lines.all(), "\n"); got > 1 {
			t.Errorf("the log is flooded:\n%s", lines.all())
		}
	})
}

func TestFeedSkipsWhatItDoesNotUnderstand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.logger())
		settle(time.Second)
		fake.send("brand-new", "{}")
		fake.send(client.EventMayPromote, "{not json")
		fake.send(client.EventMayPromote, `{"node_name":"node-b","may_promote":true}`)
		fake.send(client.EventMayPromote, strings.Repeat("x", 200_000))
		fake.promotion("pvc-1", "NODE-B", new(true))
		settle(0)
		r, _ := feed.store.Resource("PVC-1")
		if b, _ := r.Replica("node-b"); b.MayPromote.Confirmed.IsZero() || fake.streamsOpened() != 1 {
			t.Errorf("the event after the odd ones was lost: %+v", b)
		}
		if got := strings.Count(lines.all(), "Skipping"); got != 1 {
			t.Errorf("logged %d times:\n%s", got, lines.all())
		}
	})
}

func TestFeedWaitsQuietlyForALinstorThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.logger())
		settle(time.Hour)
		if got := strings.Count(lines.all(), "\n"); got > 0 {
			t.Errorf("the log is flooded:\n%s", lines.all())
		}
		if status := feed.Status(); lines.all() == "" || !status.LastConfirmed.IsZero() {
			t.Errorf("status: %+v", status)
		}
		n.serve(t, host, fake)
		settle(11 * time.Second)
		if status := feed.Status(); !status.Synced {
			t.Errorf("status: %+v", status)
		}
	})
}

// What comes after the end of the stream is what the user must know: LINSTOR is up again, and refuses.
func TestFeedLogsEachReasonOfAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake, lines := newNetwork(), newFakeLinstor(), &logLines{}
		fake.pvc1()
		n.serve(t, host, fake)
		startFeed(t, n, "http://linstor", lines.logger())
		settle(time.Minute)
		answers := func(code int) {
			fake.change(func() {
				fake.intercept = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
			})
		}
		answers(http.StatusUnauthorized)
		fake.cut()
		settle(10 * time.Minute)
		answers(http.StatusServiceUnavailable)
		settle(10 * time.Minute)
		answers(http.StatusUnauthorized)
		settle(10 * time.Minute)
		for reason, want := range map[string]int{envBearerTokenFile: 1, "503 Service Unavailable": 1, "No promotion events": 3} {
			if got := strings.Count(lines.all(), reason); got != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", reason, got, want, lines.all())
			}
		}
		fake.change(func() { fake.intercept = nil })
		settle(time.Minute)
		answers(http.StatusUnauthorized)
		fake.cut()
		settle(10 * time.Minute)
		if got := strings.Count(lines.all(), envBearerTokenFile); got != 2 {
			t.Errorf("the next outage was logged %d times in all, want twice:\n%s", got, lines.all())
		}
	})
}

func TestFeedFollowsTheEndpointThatAnswers(t *testing.T) {
	for name, first := range map[string]func(*testing.T, *network){
		"the first refuses connections":            func(*testing.T, *network) {},
		"the first accepts requests and is silent": func(_ *testing.T, n *network) { n.silence("one:3370") },
		"the first is another kind of server": func(t *testing.T, n *network) {
			t.Helper()
			n.serve(t, "one:3370", http.NotFoundHandler())
		},
		"the first fails with 503": func(t *testing.T, n *network) {
			t.Helper()
			n.serve(t, "one:3370", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, fake := newNetwork(), newFakeLinstor()
				fake.pvc1()
				first(t, n)
				n.serve(t, "two:3370", fake)
				feed := startFeed(t, n, "http://one,http://two", logr.Discard())
				settle(8 * time.Second)
				if !feed.Status().Synced || fake.streamsOpened() != 1 {
					t.Errorf("status: %+v, %d streams", feed.Status(), fake.streamsOpened())
				}
				fake.promotion("PVC-1", "node-b", new(true))
				settle(0)
				if gather(t, feed.metrics)["events_total may-promote-change"] == 0 {
					t.Error("the stream does not come from the endpoint that answers")
				}
			})
		})
	}
}

func TestFeedMovesItsStreamWithTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, one, two := newNetwork(), newFakeLinstor(), newFakeLinstor()
		one.pvc1()
		two.pvc1()
		n.serve(t, "one:3370", one)
		n.serve(t, "two:3370", two)
		feed := startFeed(t, n, "http://one,http://two", logr.Discard())
		settle(time.Second)
		// The stream of the first stays open, but its REST API fails: the active controller is the second.
		one.change(func() {
			one.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		})
		if _, err := feed.Refresh(t.Context(), "PVC-1", 0); err != nil {
			t.Fatal(err)
		}
		settle(2 * time.Second)
		if two.streamsOpened() != 1 || !feed.Status().Synced {
			t.Errorf("%d streams to the second endpoint, status %+v", two.streamsOpened(), feed.Status())
		}
	})
}

func TestFeedReadsOneByOneWhenTheViewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/view/resources" {
				<-r.Context().Done() // a satellite hangs
				return true
			}
			return false
		}
		n.serve(t, host, fake)
		lines := &logLines{}
		feed := startFeed(t, n, "http://linstor", lines.verbose())
		settle(2*time.Minute + time.Second)
		if r, _ := feed.store.Resource("PVC-1"); len(r.Replicas) != 2 {
			t.Errorf("resource: %+v", r)
		}
		if status := feed.Status(); status.Synced || !strings.Contains(lines.all(), "no answer within") {
			t.Errorf("status: %+v", status)
		}
		if got := fake.streamsOpened(); got != 1 {
			t.Errorf("%d streams opened, want 1", got)
		}
	})
}

// A stream begins with an event for every replica, long before the view of thousands has come.
func TestFeedDoesNotWaitForTheFirstView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 300
		n, fake := newNetwork(), newFakeLinstor()
		fake.pvc1()
		fake.resources, fake.definitions = nil, nil
		for i := range many {
			name := fmt.Sprintf("PVC-%d", i)
			fake.definitions = append(fake.definitions, definition(name, "majority"))
			fake.resources = append(fake.resources, resource(name, "Node-A", true, 10102, false))
		}
		fake.intercept = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/view/resources" {
				sleep(r.Context(), time.Hour)
			}
			return false
		}
		fake.replays = true
		n.serve(t, host, fake)
		feed := startFeed(t, n, "http://linstor", logr.Discard())
		settle(time.Second)
		if replicas, _ := feed.store.Counts(); replicas != many {
			t.Errorf("%d replicas are known after a second, want %d", replicas, many)
		}
	})
}

func TestFeedLogsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "geheim"
		cfg, err := ConfigFromEnv(env(map[string]string{
			envControllers: "http://admin:" + secret + "@linstor,http://admin:" + secret + "@refused",
			envUsername:    "admin", envPassword: secret,
		}))
		if err != nil {
			t.Fatal(err)
		}
		n, lines := newNetwork(), &logLines{}
		n.serve(t, host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
		client, err := NewClient(cfg, nil, ClientOptions{DialContext: n.dial})
		if err != nil {
			t.Fatal(err)
		}
		feed := NewFeed(client, NewStore(), lines.verbose(), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := feed.Start(ctx); err != nil {
			t.Fatal(err)
		}
		logged := lines.all() + fmt.Sprintf("%+v %+v %#v", feed.Status(), cfg, cfg)
		if strings.Contains(logged, secret) || !strings.Contains(logged, "401 Unauthorized") {
			t.Errorf("logged:\n%s", logged)
		}
	})
}
