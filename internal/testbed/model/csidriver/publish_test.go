package csidriver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
)

// world is a LINSTOR with the volume "data" on nodes a and b with tie-breaker t, free nodes c and d, another volume on a and c, and the
// driver, which has asked for everything once: its caches are warm.
type world struct {
	*testing.T
	cluster *drbd.Cluster
	linstor *linstorsim.Server
	driver  *Driver
	options Options
	// asked are the driver's requests.
	asked []string
}

func inWorld(t *testing.T, options Options, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := drbd.NewCluster(drbd.Options{})
		linstor := linstorsim.New(cluster, linstorsim.Options{
			TieBreakers: true, Durations: linstorsim.RealDurations(), SyncDuration: 3 * time.Second,
		})
		listener := pipenet.Listen()
		served := make(chan error, 1)
		go func() { served <- linstor.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.DialContext}
		defer func() {
			transport.CloseIdleConnections()
			linstor.Close()
			cluster.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		options.URL, options.Client = "http://linstor:3370", &http.Client{Transport: transport}
		w := &world{T: t, cluster: cluster, linstor: linstor, options: options}
		for _, node := range []string{"a", "b", "c", "d", "t"} {
			linstor.AddNode(node)
		}
		w.must(linstor.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: "data", Replicas: []drbd.ReplicaSpec{
			{Node: "a"}, {Node: "b"}, {Node: "t", TieBreaker: true},
		}}}))
		w.must(linstor.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: "other", Replicas: []drbd.ReplicaSpec{
			{Node: "a"}, {Node: "c"}, {Node: "t", TieBreaker: true},
		}}}))
		w.driver = New(options)
		w.must(w.unpublish("other", "c"))
		w.must(w.publish("other", "c"))
		linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			w.asked = append(w.asked, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/"))
			return false
		})
		test(w)
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// attacherTimeout is what the Piraeus Operator gives the attacher.
const attacherTimeout = time.Minute

func (w *world) publish(volume, node string) error {
	ctx, cancel := context.WithTimeout(w.Context(), attacherTimeout)
	defer cancel()
	return w.driver.Publish(ctx, volume, node, Use{})
}

func (w *world) unpublish(volume, node string) error {
	ctx, cancel := context.WithTimeout(w.Context(), attacherTimeout)
	defer cancel()
	return w.driver.Unpublish(ctx, volume, node)
}

// took tells how long a call took, and fails the test where that is not what was measured.
func (w *world) took(what string, low, high time.Duration, call func() error) error {
	w.Helper()
	begin := time.Now()
	err := call()
	if d := time.Since(begin); d < low || d > high {
		w.Errorf("%s took %s, want %s to %s: %v", what, d, low, high, err)
	}
	return err
}

// states of a, in which it was measured.
func cutMomentsAgo(w *world) { w.linstor.CutSatellite("a"); time.Sleep(3 * time.Second) }
func offline(w *world)       { w.linstor.CutSatellite("a"); time.Sleep(10 * time.Second); w.warm() }
func adjustHangs(w *world)   { w.linstor.SetAdjustFault("a", "", linstorsim.AdjustHangs) }
func poolsHang(w *world)     { w.linstor.HangPools("a", true) }
func cold(w *world)          { w.driver.Restart(w.options) }

// warm lets the driver learn what there is.
func (w *world) warm() { cold(w); w.must(w.unpublish("data", "b")); w.must(w.publish("data", "b")) }

// The durations of a real driver with a real LINSTOR, by the state of a node a.
func TestWhatTakesHowLong(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	publish := func(node string) func(*world) error {
		return func(w *world) error { return w.publish("data", node) }
	}
	unpublish := func(node string) func(*world) error {
		return func(w *world) error { return w.unpublish("data", node) }
	}
	both := func(states ...func(*world)) func(*world) {
		return func(w *world) {
			for _, state := range states {
				state(w)
			}
		}
	}
	temporary := func(node string) func(*world) {
		return func(w *world) { w.must(w.publish("data", node)) }
	}
	for name, c := range map[string]struct {
		state     func(*world)
		call      func(*world) error
		low, high time.Duration
		fails     bool
		// again must then succeed within that time; 0 does not try again.
		again time.Duration
	}{
		"publish, diskful target":                              {call: publish("b"), low: 30 * ms, high: 200 * ms},
		"publish, diskful target, a cut":                       {state: cutMomentsAgo, call: publish("b"), low: 2900 * ms, high: 5700 * ms, fails: true},
		"publish, diskful target, a OFFLINE":                   {state: offline, call: publish("b"), high: 200 * ms},
		"publish, diskful target, adjust of a hangs":           {state: adjustHangs, call: publish("b"), high: 200 * ms},
		"publish, diskful target, pools of a hang":             {state: poolsHang, call: publish("b"), low: 45 * s, high: 46 * s},
		"publish, diskful target, pools of a hang, cold":       {state: both(poolsHang, cold), call: publish("b"), low: 60 * s, high: 61 * s, fails: true},
		"publish, tie-breaker's node":                          {call: publish("t"), low: 30 * ms, high: 200 * ms},
		"publish, no replica":                                  {call: publish("d"), low: 400 * ms, high: 600 * ms},
		"publish, no replica, a cut":                           {state: cutMomentsAgo, call: publish("d"), low: 2900 * ms, high: 5800 * ms, fails: true, again: 200 * ms},
		"publish, no replica, a OFFLINE":                       {state: offline, call: publish("d"), low: 400 * ms, high: 600 * ms},
		"publish, no replica, adjust of a hangs":               {state: adjustHangs, call: publish("d"), low: 45 * s, high: 46 * s, fails: true, again: 300 * ms},
		"unpublish a, diskful":                                 {call: unpublish("a"), high: 50 * ms},
		"unpublish a, diskful, a cut":                          {state: cutMomentsAgo, call: unpublish("a"), high: 50 * ms},
		"unpublish a, diskful, a cut, cold":                    {state: both(cutMomentsAgo, cold), call: unpublish("a"), low: 2800 * ms, high: 3100 * ms, fails: true},
		"unpublish a, diskful, a OFFLINE":                      {state: offline, call: unpublish("a"), high: 50 * ms},
		"unpublish a, diskful, adjust hangs":                   {state: adjustHangs, call: unpublish("a"), high: 50 * ms},
		"unpublish a, diskful, pools hang, cold":               {state: both(poolsHang, cold), call: unpublish("a"), low: 45 * s, high: 61 * s},
		"unpublish a diskless":                                 {state: temporary("d"), call: unpublish("d"), low: 250 * ms, high: 550 * ms},
		"unpublish another node's diskless, adjust of a hangs": {state: both(temporary("d"), adjustHangs), call: unpublish("d"), low: 60 * s, high: 61 * s, fails: true},
		"publish, node OFFLINE":                                {state: offline, call: publish("a"), high: 50 * ms, fails: true},
		"publish, LINSTOR away":                                {state: func(w *world) { w.linstor.Stop() }, call: publish("b"), high: 50 * ms, fails: true},
		"unpublish, LINSTOR away, warm":                        {state: func(w *world) { w.linstor.Stop() }, call: unpublish("a"), high: 50 * ms},
		"unpublish with two primaries, adjust of a hangs":      {state: both(migrated, adjustHangs), call: unpublish("a"), low: 45 * s, high: 46 * s, fails: true, again: 400 * ms},
		"publish, no replica, the target takes none":           {state: noTarget, call: publish("d"), high: 200 * ms, fails: true},
		"publish, diskful target that takes none":              {state: noTarget, call: publish("b"), high: 200 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				if c.state != nil {
					c.state(w)
				}
				err := w.took("the call", c.low, c.high, func() error { return c.call(w) })
				if (err != nil) != c.fails {
					t.Errorf("the call ended with %v", err)
				}
				if c.again > 0 {
					w.must(w.took("the next call", 0, c.again, func() error { return c.call(w) }))
				}
			})
		})
	}
}

// migrated is the moment in a live migration from a to b in which only b is Primary.
func migrated(w *world) {
	w.must(w.cluster.Open("data", "b", false))
	w.warm()
	w.must(w.driver.linstor.allowTwoPrimaries(w.Context(), "data", true))
}

// noTarget makes all nodes take no new replicas.
func noTarget(w *world) {
	for _, node := range []string{"b", "d"} {
		w.must(w.linstor.SetNodeProperty(node, linstorsim.PropAutoplaceTarget, "False"))
	}
}

func TestWhatIsAskedForInWhichOrder(t *testing.T) {
	const definition, volumes, nodes, view = "GET resource-definitions/data", "GET resource-definitions/data/volume-definitions", "GET nodes", "GET view/resources"
	available := func(node string) string {
		return "POST resource-definitions/data/resources/" + node + "/make-available"
	}
	for name, c := range map[string]struct {
		options Options
		call    func(*world) error
		want    []string
	}{
		"publish": {call: func(w *world) error { return w.publish("data", "b") }, want: []string{definition, volumes, nodes, view, available("b"), view}},
		"publish by 1.10": {
			options: Options{Old: true}, call: func(w *world) error { return w.publish("data", "b") },
			want: []string{definition, volumes, nodes, view},
		},
		"publish by 1.10 without a replica": {
			options: Options{Old: true}, call: func(w *world) error { return w.publish("data", "d") },
			want: []string{definition, volumes, nodes, view, available("d"), view},
		},
		"publish an NFS export": {
			call: func(w *world) error { return w.driver.Publish(w.Context(), "data", "b", Use{NFS: true}) },
			want: []string{definition, volumes},
		},
		"publish raw block beside a user": {
			call: func(w *world) error {
				w.must(w.cluster.Open("data", "a", false))
				return w.driver.Publish(w.Context(), "data", "b", Use{SharedBlock: true})
			},
			want: []string{definition, volumes, nodes, view, "PUT resource-definitions/data", available("b"), view},
		},
		"unpublish": {call: func(w *world) error { return w.unpublish("data", "b") }, want: []string{view}},
		"unpublish what is diskless": {
			call: func(w *world) error { return w.unpublish("data", "t") },
			want: []string{view, "DELETE resource-definitions/data/resources/t"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, c.options, func(w *world) {
				cold(w)
				w.must(c.call(w))
				if !slices.Equal(w.asked, c.want) {
					t.Errorf("asked %q, want %q", w.asked, c.want)
				}
			})
		})
	}
}

func TestOneRequestThatHangsHoldsUpEveryAttach(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		poolsHang(w)
		first := make(chan error, 1)
		go func() { first <- w.publish("data", "b") }()
		time.Sleep(10 * time.Second)
		if err := w.took("an attach of another volume", 35*time.Second, 61*time.Second, func() error { return w.publish("other", "c") }); err == nil {
			t.Error("an attach of another volume succeeds although it makes the next view necessary")
		}
		w.must(<-first)
	})
}

func TestReconnectingASatelliteWhosePoolsHangEndsIt(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		poolsHang(w)
		first := make(chan error, 1)
		go func() { first <- w.publish("data", "b") }()
		time.Sleep(10 * time.Second)
		w.linstor.Reconnect("a")
		if err := <-first; err == nil {
			t.Error("the attach that waited succeeds")
		}
		w.must(w.took("the next one", 0, 200*time.Millisecond, func() error { return w.publish("data", "b") }))
		time.Sleep(5 * time.Second)
		if got := w.linstor.ConnectionStatus("a"); got != linstorsim.Online {
			t.Errorf("a is %s", got)
		}
	})
}

func TestARestartedLinstorIsAskedInTheWrongMoment(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		time.Sleep(2 * time.Minute)
		w.linstor.Stop()
		w.linstor.Start()
		time.Sleep(time.Second)
		asked := time.Now()
		for {
			err := w.publish("data", "b")
			if err == nil {
				break
			}
			if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "CONNECTED") {
				t.Fatalf("the attach fails with %v", err)
			}
			time.Sleep(time.Second)
		}
		if got := time.Since(asked); got < 59*time.Second || got > 65*time.Second {
			t.Errorf("the node counts as CONNECTED for %s", got)
		}
	})
}

func TestAShortNodeCacheForgetsThatSoon(t *testing.T) {
	inWorld(t, Options{NodeCache: 5 * time.Second}, func(w *world) {
		w.linstor.Stop()
		w.linstor.Start()
		time.Sleep(time.Second + 5*time.Second)
		w.must(w.publish("data", "b"))
	})
}

func TestADisklessUserOnADeadNodeLeavesTheTieBreakerThere(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.must(w.publish("data", "d"))
		if got := w.linstor.ReplicaNodes("data"); !slices.Equal(got, []string{"a", "b", "d"}) {
			t.Fatalf("replicas on %v: a diskless user votes as well", got)
		}
		w.must(w.cluster.Open("data", "d", false))
		w.linstor.Crash("d")
		time.Sleep(20 * time.Second)
		w.must(w.unpublish("data", "d"))
		if got := w.linstor.ReplicaNodes("data"); !slices.Equal(got, []string{"a", "b", "d"}) {
			t.Errorf("replicas on %v, want the tie-breaker on the dead node", got)
		}
		if got := w.linstor.WantedQuorum("data"); got != drbd.QuorumMajority {
			t.Errorf("quorum is %s", got)
		}
	})
}

func TestADisklessPrimaryWhoseLinksAreCut(t *testing.T) {
	for name, old := range map[string]bool{"stays and counts as detached": false, "cannot be detached by 1.10": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{Old: old}, func(w *world) {
				w.must(w.publish("data", "d"))
				w.must(w.cluster.Open("data", "d", false))
				w.cluster.Isolate("d")
				time.Sleep(20 * time.Second)
				if err := w.unpublish("data", "d"); (err != nil) != old {
					t.Errorf("the detach ends with %v", err)
				}
			})
		})
	}
}

func TestTwoOtherUsersAreEnough(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.linstor.SetDefinitionProperty("data", linstorsim.PropAllowTwoPrimaries, "yes")
		w.must(w.cluster.Open("data", "a", false))
		w.must(w.cluster.Open("data", "b", false))
		cold(w)
		if err := w.publish("data", "d"); status.Code(err) != codes.Internal {
			t.Errorf("a third attach ends with %v", err)
		}
	})
}
