package sim_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// TestRegressions plays histories that once broke an invariant, or what is expected of one, each with the steps that it takes.
func TestRegressions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes the race detector minutes: make test-all plays it")
	}
	histories := crowdedTimes()
	maps.Copy(histories, untidyWorlds())
	maps.Copy(histories, leavingNodes())
	for name, h := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 { // what is due at the same instant runs in any order
				o := sim.Run(t, h, true)
				for _, v := range o.Violations {
					t.Error(v)
				}
				if t.Failed() {
					t.Fatalf("%s\n\n%s", h, strings.Join(o.Story, "\n"))
				}
			}
		})
	}
}

// crowdedTimes are histories in which much happens at nearly the same time.
func crowdedTimes() map[string]sim.History {
	return map[string]sim.History{
		"a pod comes back to a node that has no replica while its attachment is taken away": {
			World: world(4, []sim.Volume{{
				Name: "v0", Handle: "pvc-v0", Kind: sim.BlockUnused, Diskful: nodes("d", "c", "b"), Quorum: "all",
			}}, pod("pod-0", "b", "v0"), pod("pod-1", "b", "v0"), pod("pod-2", "b", "v0")),
			Steps:  []sim.Step{at("25.98s", sim.RemoveReplica, "b", "v0")},
			Length: 70 * time.Second,
		},
		"a webhook holds the deletion of a pod while the satellites of the other nodes are lost": {
			World: world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, pod("pod-0", "c", "v0")),
			Steps: []sim.Step{
				{At: 3 * time.Second, What: sim.HangAPI, Value: "delete Pod", For: 29 * time.Second},
				at("6s", sim.Crash, "c", ""), at("13.8s", sim.CutSatellite, "b", ""), at("14s", sim.CutSatellite, "a", ""),
				{At: 40 * time.Second, What: sim.UnhangAPI, Value: "delete Pod"},
			},
			Length: 60 * time.Second,
		},
		"a node crashes right after the controller has begun, while LINSTOR hears of less than half of the replicas": {
			World: world(5, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
				{Name: "v1", Handle: "pvc-v1", Kind: sim.Filesystem, Diskful: nodes("a", "b", "d"), TieBreaker: "node-e"},
				{Name: "v2", Handle: "pvc-v2", Kind: sim.Filesystem, Diskful: nodes("c", "b"), TieBreaker: "node-d"},
				{Name: "v3", Handle: "pvc-v3", Kind: sim.Filesystem, Diskful: nodes("c", "b"), TieBreaker: "node-d"},
			}, pod("pod-0", "b", "v1"), pod("pod-1", "b", "v0")),
			Steps:  []sim.Step{at("10s", sim.Crash, "b", ""), at("14s", sim.CutSatellite, "c", "")},
			Length: 50 * time.Second,
		},
		"a pod comes back with its node while LINSTOR still takes that for lost": {
			World: world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b")},
				{Name: "v1", Handle: "pvc-v1", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")},
			}, pod("pod-0", "b", "v0"), pod("pod-1", "b", "v1", "v0")),
			Steps:  []sim.Step{at("19.671s", sim.Crash, "b", "")},
			Length: 117 * time.Second,
		},
		"a fail-over is overtaken on a volume that nobody need hold open": {
			World: lagging(slowly(world(3, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.BlockUnused, Diskful: nodes("a", "b", "c")}},
				pod("pod-0", "b", "v0")), "c", 5109*time.Millisecond), 2*time.Second),
			Steps: []sim.Step{
				at("43.946s", sim.StopSatellite, "b", ""), at("48.056s", sim.SilenceKubelet, "b", ""),
				at("56.939s", sim.IsolateDRBD, "b", ""), at("61.081s", sim.RestoreKubelet, "b", ""),
				at("65.96s", sim.RestoreSatellite, "b", ""), at("68.221s", sim.SilenceKubelet, "b", ""),
				at("79.717s", sim.RejoinDRBD, "b", ""),
			},
			Length: 130 * time.Second,
		},
		"a peer without a connection to the Primary knows of it through one that is cut off from LINSTOR": {
			World: slowly(world(3, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("c", "b", "a")}},
				pod("pod-0", "b", "v0")), "a", 10017*time.Millisecond),
			Steps: []sim.Step{
				at("35.148s", sim.Isolate, "b", ""),
				{At: 44981 * time.Millisecond, What: sim.CutLink, Node: "node-c", Peer: "node-b"},
				at("47.305s", sim.CutSatellite, "a", ""), at("47.354s", sim.RejoinDRBD, "b", ""),
			},
			Length: 100 * time.Second,
		},
		"a tie-breaker knows of the Primary through a survivor whose old words stand": {
			World: world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				at("39.015s", sim.Crash, "a", ""), at("40.09s", sim.Return, "a", ""),
				{At: 40203 * time.Millisecond, What: sim.CutLink, Node: "node-a", Peer: "node-c"},
				at("41.008s", sim.CutSatellite, "b", ""),
			},
			Length: 88 * time.Second,
		},
		"a frozen survivor claims a connection that its peer denies": {
			World: slowly(world(3, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")}},
				pod("pod-0", "a", "v0")), "c", 9531*time.Millisecond),
			Steps: []sim.Step{
				at("31.233s", sim.IsolateDRBD, "a", ""), at("41.511s", sim.FreezeSatellite, "b", ""),
				at("43.184s", sim.IsolateDRBD, "c", ""), at("43.466s", sim.RejoinDRBD, "a", ""),
				at("51.505s", sim.SilenceKubelet, "a", ""),
			},
			Length: 86 * time.Second,
		},
		"a frozen tie-breaker claims to be promotable by a disk that is Outdated": {
			World: world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("c", "a"), TieBreaker: "node-b"},
			}, pod("pod-0", "c", "v0")),
			Steps: []sim.Step{
				at("37.882s", sim.Crash, "c", ""), at("47.195s", sim.FreezeSatellite, "b", ""), at("49.538s", sim.Return, "c", ""),
				at("54.68s", sim.Crash, "a", ""), at("57.071s", sim.IsolateDRBD, "c", ""), at("62.119s", sim.SilenceKubelet, "c", ""),
				at("67.117s", sim.Return, "a", ""),
			},
			Length: 120 * time.Second,
		},
		"a survivor whose old words stand has the Primary back that it had lost": {
			World: world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				at("36.464s", sim.IsolateDRBD, "a", ""),
				{At: 40028 * time.Millisecond, What: sim.CutLink, Node: "node-c", Peer: "node-b"},
				at("43.327s", sim.FreezeSatellite, "b", ""), at("43.924s", sim.RejoinDRBD, "a", ""), at("44.585s", sim.SilenceKubelet, "a", ""),
				{At: 46746 * time.Millisecond, What: sim.CutLink, Node: "node-a", Peer: "node-c"},
				at("48.599s", sim.StopSatellite, "a", ""),
			},
			Length: 134 * time.Second,
		},
		"a Primary meets newer data before the loss behind it is noticed": {
			World: slowly(world(4, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("b", "c", "d")}},
				pod("pod-0", "b", "v0")), "c", 7303*time.Millisecond),
			Steps: []sim.Step{
				at("10.733s", sim.Isolate, "b", ""),
				{At: 55749 * time.Millisecond, What: sim.CutLink, Node: "node-d", Peer: "node-c", On: "v0"},
				at("61.634s", sim.Rejoin, "b", ""),
			},
			Length: 101 * time.Second,
		},
		"quorum is switched off and, where the node never hears of it, on again": {
			World: slowly(world(4, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")}},
				pod("pod-0", "a", "v0")), "c", 226*time.Millisecond),
			Steps: []sim.Step{
				{At: 691 * time.Millisecond, What: sim.SetQuorum, On: "v0", Value: "off"},
				at("7.889s", sim.Isolate, "a", ""),
				{At: 12488 * time.Millisecond, What: sim.SetQuorum, On: "v0", Value: "2"},
			},
			Length: 81 * time.Second,
		},
		"a node crashes while the event stream is half-open": {
			World: world(3, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")}},
				pod("pod-0", "b", "v0")),
			Steps:  []sim.Step{{At: 16378 * time.Millisecond, What: sim.SilenceStreams}, at("31.098s", sim.Crash, "b", "")},
			Length: 60 * time.Second,
		},
		"a node that nobody writes on is back before its old word that its IO fails is": {
			World: slowly(world(3, []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Block, Diskful: nodes("b", "c"), TieBreaker: "node-a"}},
				pod("pod-0", "b", "v0")), "a", 9038*time.Millisecond),
			Steps: []sim.Step{
				at("6.964s", sim.CloseVolume, "b", "v0"), at("14.492s", sim.IsolateDRBD, "b", ""),
				at("14.718s", sim.FreezeSatellite, "b", ""), at("17.334s", sim.RejoinDRBD, "b", ""),
			},
			Length: 95 * time.Second,
		},
		"a node is lost while a volume on another one was closed under its pod, which is no second node for the guard": {
			World: world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")},
				{Name: "v1", Handle: "pvc-v1", Kind: sim.Filesystem, Diskful: nodes("b", "c", "a")},
			}, pod("pod-0", "a", "v0"), pod("pod-1", "b", "v1")),
			Steps:  []sim.Step{at("27.54s", sim.CloseVolume, "a", "v0"), at("31.098s", sim.IsolateDRBD, "b", "")},
			Length: 100 * time.Second,
		},
	}
}

// world is a cluster in which everything takes the time that is usual.
func world(count int, volumes []sim.Volume, workloads ...sim.Workload) sim.World {
	w := sim.World{
		Nodes: nodes("a", "b", "c", "d", "e")[:count], Volumes: volumes, Workloads: workloads, Processes: 1,
		PingTimeout: 6 * time.Second, Replay: linstorsim.Immediately, Detect: map[string]time.Duration{},
	}
	for i := range w.Workloads {
		for _, node := range w.Nodes {
			if node != w.Workloads[i].Nodes[0] {
				w.Workloads[i].Nodes = append(w.Workloads[i].Nodes, node)
			}
		}
	}
	return w
}

// slowly is a cluster in which the DRBD of one node takes so long to notice that a peer is gone.
func slowly(w sim.World, node string, d time.Duration) sim.World {
	w.Detect["node-"+node] = d
	return w
}

// lagging is a cluster in which the controller's cache is so old.
func lagging(w sim.World, d time.Duration) sim.World {
	w.Lag = d
	return w
}

func nodes(names ...string) []string {
	var all []string
	for _, name := range names {
		all = append(all, "node-"+name)
	}
	return all
}

func pod(name, node string, volumes ...string) sim.Workload {
	return sim.Workload{Name: name, Volumes: volumes, Nodes: nodes(node), Selected: true, Stop: time.Second}
}

func at(when string, what sim.Deed, node, on string) sim.Step {
	d, err := time.ParseDuration(when)
	if err != nil {
		panic(err)
	}
	return sim.Step{At: d, What: what, Node: "node-" + node, On: on}
}

// stopping is a workload whose pod takes so long to stop.
func stopping(w sim.Workload, d time.Duration) sim.Workload {
	w.Stop = d
	return w
}
