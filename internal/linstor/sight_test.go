package linstor

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

func TestWhatAStoragePoolSaysOfTheConnection(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pool string
		want string
	}{
		"there is one":                   {`{"node_name":"a","free_capacity":0}`, "yes"},
		"there is none":                  {`{"node_name":"a","reports":[{"ret_code":-9223372036854774806,"message":"No active connection"}]}`, "no"},
		"none and an old capacity":       {`{"node_name":"a","free_capacity":1,"reports":[{"ret_code":-9223372036854774806}]}`, "no"},
		"something else is wrong":        {`{"node_name":"a","free_capacity":1,"reports":[{"ret_code":-4611686018427386906}]}`, "unknown"},
		"a report without a code":        {`{"node_name":"a","free_capacity":1,"reports":[{"message":"No active connection"}]}`, "unknown"},
		"it says nothing":                {`{"node_name":"a"}`, "unknown"},
		"it says nothing in empty lists": {`{"node_name":"a","reports":[]}`, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pool client.Pool
			if err := json.Unmarshal([]byte(tc.pool), &pool); err != nil {
				t.Fatal(err)
			}
			got := "unknown"
			if is := pool.IsConnected(); is != nil {
				got = map[bool]string{true: "yes", false: "no"}[*is]
			}
			if got != tc.want {
				t.Errorf("connected: %s, want %s", got, tc.want)
			}
		})
	}
}

// A real LINSTOR went blind when node A lost its power: it called all nodes ONLINE. Before, it had seen, and node B was OFFLINE for a while.
func TestARealLinstorThatWentBlind(t *testing.T) {
	t.Parallel()
	var before, after []string
	var nodes []client.Node
	for _, line := range recordings.Load(t, "15-blind-controller").Lines {
		switch {
		case line.Status != 200:
		case strings.HasPrefix(line.Get, "/v1/nodes"):
			nodes = nil
			if err := json.Unmarshal(line.Body, &nodes); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line.Get, "/v1/view/storage-pools"):
			var pools []client.Pool
			if err := json.Unmarshal(line.Body, &pools); err != nil {
				t.Fatal(err)
			}
			found := blindIn(t, nodes, pools)
			if line.T < 0 {
				before = append(before, found...)
			} else {
				after = append(after, found...)
			}
		}
	}
	if len(before) > 0 {
		t.Errorf("it is blind for %v while it sees", before)
	}
	if want := []string{"node-a", "node-c", "node-d"}; !slices.Equal(after, want) {
		t.Errorf("it is blind for %v, want %v", after, want)
	}
}

// blindIn returns the nodes for which an answer says that LINSTOR is blind.
func blindIn(t *testing.T, nodes []client.Node, pools []client.Pool) (blind []string) {
	t.Helper()
	store, now := NewStore(), time.Now()
	store.applyNodes(nodes, instant(now))
	for name, node := range store.sight(pools, instant(now)).Nodes {
		if node.Online.Known && node.Online.Value && node.Connected.Known && !node.Connected.Value {
			blind = append(blind, name)
		}
	}
	slices.Sort(blind)
	return blind
}

// pools are the storage pools of nodes, each "a" or, without a connection, "-a".
func poolsOf(nodes ...string) (pools []client.Pool) {
	for _, node := range nodes {
		pool := client.Pool{NodeName: strings.ToUpper(strings.TrimPrefix(node, "-")), FreeCapacity: new(int64(1))}
		if strings.HasPrefix(node, "-") {
			pool.FreeCapacity, pool.Reports = nil, []client.Report{{RetCode: new(int64(-9223372036854774806))}}
		}
		pools = append(pools, pool)
	}
	return pools
}

func TestASightIsOfListsThatAllAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "majority")
	w.nodes["b"] = "OFFLINE"
	w.readNodes()
	w.now = 1
	began := w.read(w.now).start
	w.now = 2
	w.nodes["c"] = "OFFLINE"
	w.readNodes()
	w.now = 3
	w.nodes["c"] = client.StatusOnline
	w.nodes["d"] = ""
	w.readNodes()
	s := w.sight(poolsOf("a", "-a", "-b", "c", "-c", "-e", "-e"), span{start: began, end: w.read(w.now).end})
	said := func(f failover.Fact[bool]) string {
		if !f.Known {
			return "unknown"
		}
		return map[bool]string{true: "yes", false: "no"}[f.Value]
	}
	for node, want := range map[string]string{
		"a": "yes, unknown", // its pools contradict each other
		"b": "no, no",
		"c": "no, unknown", // it was OFFLINE in between
		"d": "unknown, unknown",
		"e": "yes, no",
	} {
		if got := said(s.Nodes[node].Online) + ", " + said(s.Nodes[node].Connected); got != want {
			t.Errorf("%s: ONLINE and connected are %q, want %q", node, got, want)
		}
	}
	if !s.Began.Equal(began) || len(s.Nodes) != 5 {
		t.Errorf("the sight began at %s, of %d nodes", s.Began, len(s.Nodes))
	}
}

func TestTheWordsOfABlindLinstorAreUnknown(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "majority", "a", "b")
	told := 0
	defer w.Subscribe(func(string) { told++ })()
	since := w.read(w.now).start
	w.Void(map[string]time.Time{"a": since, "elsewhere": since}, since)
	if told != 1 {
		t.Errorf("the change was told %d times, want once", told)
	}
	a, b := w.replica(t, "a"), w.replica(t, "b")
	facts := []Fact[bool]{a.Online, a.Reports, a.MayPromote, a.InUse, {Known: a.Score.Known, Since: a.Score.Since}}
	for _, c := range a.Connections {
		facts = append(facts, c)
	}
	for i, f := range facts {
		if f.Known || !f.Since.Equal(since) {
			t.Errorf("fact %d of A is known: %t, since %s, want unknown since %s", i, f.Known, f.Since, since)
		}
	}
	if !a.Blind || len(a.Connections) == 0 || !a.Confirmed {
		t.Errorf("A is %+v", a)
	}
	if b.Blind || !b.Online.Known || !b.Score.Known {
		t.Errorf("what is said of B is void too: %+v", b)
	}
	if node, _ := w.Node("a"); !node.Blind || node.Word().Known || !node.Online.Value {
		t.Errorf("node A is %+v", node)
	}

	// It reads on, and nothing of that counts from before LINSTOR sees again.
	w.live(20)
	sees := w.read(w.now).end
	w.Void(nil, sees)
	if told != 2 {
		t.Errorf("the end was told %d times, want once", told-1)
	}
	a = w.replica(t, "a")
	if a.Blind || !a.Online.Known || !a.Online.Since.Equal(sees) || !a.Score.Known || !a.Score.Since.Equal(sees) || !a.InUse.Since.Equal(sees) {
		t.Errorf("A is %+v, want known since %s", a, sees)
	}
	if c := a.Connections["b"]; !c.Known || !c.Since.Equal(sees) {
		t.Errorf("the connection to B is %+v, want known since %s", c, sees)
	}
	w.Void(nil, sees.Add(time.Second))
	if told != 2 || !w.replica(t, "a").Online.Since.Equal(sees) {
		t.Error("what has not changed is told")
	}
}

// That LINSTOR calls a node ONLINE to which it has no connection shows of no setting that the node has applied it.
func TestWhatABlindLinstorShowsIsNoEvidence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "majority", "a", "b")
	w.first()
	w.Void(map[string]time.Time{"a": time.Now()}, time.Now())
	w.live(60)
	if w.replica(t, "a").Confirmed || !w.replica(t, "b").Confirmed {
		t.Errorf("it is known what A runs: %t, and what B runs: %t", w.replica(t, "a").Confirmed, w.replica(t, "b").Confirmed)
	}
	w.Void(nil, time.Now())
	w.live(12)
	if !w.replica(t, "a").Confirmed {
		t.Error("it is not known what A runs although LINSTOR sees it again")
	}
}

// LINSTOR forgets a replica once its node has taken it down. It has no connection to hear that by of a node that it is blind for.
func TestAReplicaThatABlindLinstorForgetsIsKept(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "majority", "a", "b", "c")
	w.Void(map[string]time.Time{"a": w.at(w.now)}, w.at(w.now))
	w.remove("a")
	w.remove("b")
	w.live(1)
	w.isGone("a", true, false)
	w.isGone("b", false, true)
}

// A satellite comes back, and LINSTOR goes blind within the minute that it may take to apply a setting.
func TestAMinuteUnderABlindLinstorShowsOfNoSettingThatItWasApplied(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "off", "a", "b")
	w.set("majority")
	w.define()
	w.restart("a")
	w.live(30)
	w.Void(map[string]time.Time{"a": w.at(w.now)}, w.at(w.now))
	w.live(300)
	w.unconfirmed("a")
	w.Void(nil, w.at(w.now))
	w.live(59)
	w.unconfirmed("a")
	w.live(2)
	w.confirmed("a")
}

// A volume that LINSTOR shows in use as it was an hour ago need not have been since.
func TestABlindLinstorDoesNotShowThatAVolumeIsInUse(t *testing.T) {
	t.Parallel()
	w := knownWorld(t, "majority", "a", "b")
	w.replicas["a"].inUse = true
	w.live(1)
	before := w.replica(t, "a").LastInUse
	w.Void(map[string]time.Time{"a": w.at(w.now)}, w.at(w.now))
	w.live(60)
	if got := w.replica(t, "a").LastInUse; !got.Equal(before) || before.IsZero() {
		t.Errorf("A was last in use at %s, want %s", got, before)
	}
	w.Void(nil, w.at(w.now))
	w.live(1)
	if got := w.replica(t, "a").LastInUse; !got.After(before) {
		t.Errorf("LINSTOR sees again, and A was last in use at %s", got)
	}
}
