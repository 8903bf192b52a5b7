package recordings_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

const ms = time.Millisecond

// scene is what the simulated LINSTOR needs to play a recording. All times in it are drawn by chance in a real cluster, and are here what
// they were in the lab.
type scene struct {
	// replicas are those of the volume when the recording begins, which is in use on the pod's node. Nil is the usual three.
	replicas []drbd.ReplicaSpec
	// quorum and autoTieBreaker are what a person has set on the definition and its group.
	quorum, autoTieBreaker string
	// drbd is when DRBD notices and connects, linstor when LINSTOR does.
	drbd    drbd.Options
	linstor linstorsim.Options
	// adjusting is how long satellites take for what LINSTOR tells them.
	adjusting map[string]time.Duration
	// deeds are what happens, by what the recording calls it, beside what happens in others as well.
	deeds map[string]func(*lab)
	// unasked is what LINSTOR does by itself at some time, and the recording does not name.
	unasked []deed
}

// deed is something that is done at a time.
type deed struct {
	at recordings.Seconds
	do func(*lab)
}

// Replicas of the volume.
var (
	usual = []drbd.ReplicaSpec{{Node: "node-a"}, {Node: "node-b"}, {Node: "node-c", TieBreaker: true}}
	two   = []drbd.ReplicaSpec{{Node: "node-a"}, {Node: "node-b"}}
)

// scenes are all recordings.
var scenes = map[string]scene{
	"01-calm": {
		replicas:  usual,
		adjusting: map[string]time.Duration{"node-a": 450 * ms, "node-b": 100 * ms, "node-c": 170 * ms, "node-d": 450 * ms},
		linstor:   linstorsim.Options{CommitDelay: 300 * ms},
		deeds: map[string]func(*lab){
			"replica on node-d is made": func(l *lab) { l.must(l.linstor.AddReplica(resourceName, drbd.ReplicaSpec{Node: "node-d"})) },
			"replica on node-d is deleted": func(l *lab) {
				l.adjusting = map[string]time.Duration{}
				l.must(l.linstor.RemoveReplica(resourceName, "node-d"))
			},
		},
	},
	"02-volume-made": {
		adjusting: map[string]time.Duration{"node-a": 920 * ms},
		linstor:   linstorsim.Options{PartialConnections: 50 * ms},
		deeds: map[string]func(*lab){
			"definition is made": func(l *lab) {
				l.must(l.linstor.CreateResource(linstorsim.ResourceSpec{Group: groupName, Spec: drbd.Spec{Name: resourceName}}))
			},
			"first replica, on node-a": func(l *lab) { l.must(l.linstor.Place(resourceName, drbd.ReplicaSpec{Node: "node-a"})) },
			"auto-place to two replicas": func(l *lab) {
				l.adjusting = map[string]time.Duration{"node-a": 530 * ms, "node-b": 800 * ms, "node-d": 1260 * ms}
				l.must(l.linstor.Place(resourceName, drbd.ReplicaSpec{Node: "node-d"}))
			},
			"node-a opens the volume (Primary)": func(l *lab) { l.must(l.cluster.Open(resourceName, "node-a", false)) },
		},
	},
	"03-power-loss": {
		replicas: usual,
		drbd:     drbd.Options{ReconnectDelay: 6600 * ms},
		linstor:  linstorsim.Options{PingTimeout: 6715 * ms, FirstReconnect: 9200 * ms, SyncDuration: 780 * ms},
	},
	"04-real-crash": {
		replicas: usual,
		drbd: drbd.Options{
			Detect: noticing(map[string]time.Duration{"node-c node-a": 8600 * ms, "node-b node-a": 9050 * ms}), NoticeEach: true, Flap: 7 * ms,
			ReconnectDelay: 400 * ms, ResyncDuration: time.Minute,
		},
		linstor: linstorsim.Options{
			PingTimeout: 6360 * ms, FirstReconnect: 7100 * ms, SyncDuration: 700 * ms, ValuesBeforeOnline: 100 * ms, PartialConnections: 200 * ms,
		},
	},
	"05-real-links-cut": {
		replicas: usual,
		drbd: drbd.Options{
			Detect: noticing(map[string]time.Duration{
				"node-a node-c": 6540 * ms, "node-c node-a": 6500 * ms, "node-b node-a": 7078 * ms, "node-a node-b": 7200 * ms,
			}),
			NoticeEach: true, Flap: 16 * ms,
			Reconnect: connecting(map[string]time.Duration{"node-a node-c": 1410 * ms, "node-a node-b": 2000 * ms}),
		},
	},
	"06-real-short-cut": {replicas: usual, drbd: drbd.Options{DetectionDelay: 6 * time.Second}},
	"07-real-one-link-cut": {
		replicas: usual,
		drbd: drbd.Options{
			DetectionDelay: 10400 * ms, ReconnectDelay: 10350 * ms, ResyncDelay: 60 * ms, ResyncDuration: 140 * ms,
		},
	},
	"08-satellite-killed": {
		replicas: usual,
		linstor: linstorsim.Options{
			FirstReconnect: 9200 * ms, SyncDuration: 350 * ms, ValuesBeforeOnline: 160 * ms, PartialConnections: 100 * ms,
		},
	},
	"09-satellite-cut": {
		replicas: usual,
		linstor: linstorsim.Options{
			PingTimeout: 6900 * ms, FirstReconnect: 10100 * ms, SyncDuration: 400 * ms, ValuesBeforeOnline: 100 * ms,
		},
	},
	"10-linstor-restart": {
		replicas: usual,
		linstor: linstorsim.Options{
			StartDuration: 5550 * ms, ConnectDelay: 400 * ms, SyncDuration: 850 * ms,
		},
	},
	"11-linstor-restart-in-loss": {
		replicas: usual,
		linstor: linstorsim.Options{
			StartDuration: 3470 * ms, ConnectDelay: 300 * ms, SyncDuration: 600 * ms, ValuesBeforeOnline: 250 * ms,
		},
	},
	"12-quorum-on-controller": {
		replicas: two, autoTieBreaker: "false",
		linstor: linstorsim.Options{PingTimeout: 6370 * ms},
		deeds: map[string]func(*lab){
			"majority set on the controller": func(l *lab) { l.call("/v1/controller/properties") },
		},
	},
	"13-adjust-fails": {
		replicas: two, quorum: drbd.QuorumOff,
		drbd:      drbd.Options{ConnectDelay: 100 * ms},
		linstor:   linstorsim.Options{PingTimeout: 6990 * ms},
		adjusting: map[string]time.Duration{"node-c": 430 * ms},
		deeds: map[string]func(*lab){
			"majority set on the definition, adjust fails on node-a": func(l *lab) {
				l.linstor.SetAdjustFault("node-a", resourceName, linstorsim.AdjustFailsAtOptions)
				l.call("/v1/resource-definitions/pvc-db")
			},
		},
	},
	"14-node-lost": {
		replicas: two, quorum: drbd.QuorumOff,
		drbd:      drbd.Options{ConnectDelay: 100 * ms},
		linstor:   linstorsim.Options{PingTimeout: 6070 * ms},
		adjusting: map[string]time.Duration{"node-c": 80 * ms},
		deeds: map[string]func(*lab){
			"majority set on the definition while node-a is OFFLINE": func(l *lab) { l.call("/v1/resource-definitions/pvc-db") },
			"linstor node lost node-a":                               func(l *lab) { l.call("/v1/nodes/node-a/lost") },
		},
	},
	"15-blind-controller": {
		replicas: []drbd.ReplicaSpec{{Node: "node-a"}, {Node: "node-c"}, {Node: "node-d", TieBreaker: true}},
		linstor:  linstorsim.Options{PingTimeout: 6400 * ms},
		deeds: map[string]func(*lab){
			"network of node-b cut":    func(l *lab) { l.linstor.CutSatellite("node-b") },
			"linstor node lost node-b": func(l *lab) { l.call("/v1/nodes/node-b/lost") },
			"network of node-b back": func(l *lab) {
				l.linstor.RestoreSatellite("node-b")
				for _, node := range []string{"node-a", "node-c", "node-d"} {
					l.linstor.FreezeSatellite(node)
				}
			},
		},
	},
	"16-events-end": {
		replicas: usual,
		linstor:  linstorsim.Options{EventsDelay: 6 * ms},
		deeds: map[string]func(*lab){
			"events2 stream of node-a ends":                 func(l *lab) { l.linstor.EndEvents("node-a") },
			"node-a closes the volume while nobody listens": func(l *lab) { l.cluster.Close(resourceName, "node-a") },
			"node-a opens it again while nobody listens":    func(l *lab) { l.must(l.cluster.Open(resourceName, "node-a", false)) },
		},
	},
	"17-no-tie-breaker": {
		replicas: two, autoTieBreaker: "false",
		linstor: linstorsim.Options{PingTimeout: 6965 * ms},
	},
	"18-demoted": {
		replicas: usual,
		deeds: map[string]func(*lab){
			"volume closed on node-a: Secondary": func(l *lab) { l.cluster.Close(resourceName, "node-a") },
		},
	},
	"19-evacuate": {
		replicas:  usual,
		adjusting: map[string]time.Duration{"node-c": 200 * ms, "node-d": 250 * ms},
		linstor:   linstorsim.Options{CommitDelay: 300 * ms},
		deeds: map[string]func(*lab){
			"linstor node evacuate node-a": func(l *lab) { l.call("/v1/nodes/node-a/evacuate") },
		},
	},
	"20-evicted": {
		replicas:  usual,
		drbd:      drbd.Options{ConnectDelay: 100 * ms},
		linstor:   linstorsim.Options{PingTimeout: 6988 * ms},
		adjusting: map[string]time.Duration{"node-b": 60 * ms, "node-c": 60 * ms, "node-d": 550 * ms},
		unasked:   []deed{{seconds(79.1), func(l *lab) { l.must(l.linstor.Evict("node-a")) }}},
	},
	"21-adjust-fails-again": {
		replicas: two, quorum: drbd.QuorumOff,
		linstor:   linstorsim.Options{PingTimeout: 6445 * ms, FirstReconnect: 21 * time.Second, SyncDuration: 900 * ms},
		adjusting: map[string]time.Duration{"node-c": 700 * ms},
		deeds: map[string]func(*lab){
			"majority set on the definition, adjust fails on node-a": func(l *lab) {
				l.linstor.SetAdjustFault("node-a", resourceName, linstorsim.AdjustFailsAtOptions)
				l.call("/v1/resource-definitions/pvc-db")
			},
			"satellite of node-a killed and started again; adjust goes on failing": func(l *lab) {
				l.linstor.StopSatellite("node-a")
				l.linstor.RestoreSatellite("node-a")
			},
			"node-a ONLINE again": func(*lab) {}, // LINSTOR connects to it by itself
		},
	},
	"22-lost-after-eviction": {
		replicas: usual,
		drbd: drbd.Options{ConnectDelay: 100 * ms, Detect: noticing(map[string]time.Duration{
			"node-a node-b": 10030 * ms, "node-c node-b": 10030 * ms, "node-c node-a": 10764 * ms, "node-d node-a": 10764 * ms,
		})},
		linstor:   linstorsim.Options{PingTimeout: 6828 * ms, CommitDelay: 400 * ms},
		adjusting: map[string]time.Duration{"node-c": 200 * ms, "node-d": 550 * ms},
		deeds: map[string]func(*lab){
			"power loss of node-b": func(l *lab) { l.linstor.Crash("node-b") },
			"linstor node evict node-b": func(l *lab) {
				time.AfterFunc(100*ms, func() { l.must(l.linstor.Evict("node-b")) })
			},
			"power loss of node-a: satellite silent without FIN, DRBD gone": func(l *lab) {
				l.linstor.SetPingTimeout("node-a", 6020*ms)
				l.linstor.Crash("node-a")
			},
		},
	},
	"23-tie-breaker-evicted": {
		replicas: usual,
		linstor:  linstorsim.Options{PingTimeout: 7009 * ms},
		deeds: map[string]func(*lab){
			"power loss of node-c":      func(l *lab) { l.linstor.Crash("node-c") },
			"linstor node evict node-c": func(l *lab) { l.must(l.linstor.Evict("node-c")) },
		},
	},
}

// common are the deeds of more than one recording.
var common = map[string]func(*lab){
	"power loss of node-a: satellite silent without FIN, DRBD gone": func(l *lab) { l.linstor.Crash("node-a") },
	"node-a dies as a whole":                                                       func(l *lab) { l.linstor.Crash("node-a") },
	"node-a has booted: satellite starts anew, DRBD Secondary":                     func(l *lab) { l.linstor.Return("node-a") },
	"node-a has booted: satellite starts anew, drbdadm up done":                    func(l *lab) { l.linstor.Return("node-a") },
	"node-a cut off from everything; it lives and writes (its Lease falls silent)": func(l *lab) { l.linstor.Isolate("node-a") },
	"both DRBD links of node-a cut":                                                func(l *lab) { l.cluster.Isolate("node-a") },
	"links healed":                                                                 func(l *lab) { l.cluster.Rejoin("node-a") },
	"DRBD link between node-a and node-b cut":                                      func(l *lab) { l.cluster.CutLink("node-a", "node-b") },
	"link healed":                   func(l *lab) { l.cluster.HealLink("node-a", "node-b") },
	"satellite of node-a killed":    func(l *lab) { l.linstor.StopSatellite("node-a") },
	"satellite of node-a started":   func(l *lab) { l.linstor.RestoreSatellite("node-a") },
	"LINSTOR network of node-a cut": func(l *lab) { l.linstor.CutSatellite("node-a") },
	"network of node-a back":        func(l *lab) { l.linstor.RestoreSatellite("node-a") },
	"LINSTOR controller killed":     func(l *lab) { l.linstor.Stop() },
	"LINSTOR controller started":    func(l *lab) { time.AfterFunc(l.starts, l.linstor.Start) },
}

// noticed begins what DRBD does by itself: the model needs to know at the fault when that will be.
var noticed = []string{"the peers' DRBD notices the loss", "DRBD has noticed", "its peers notice"}

// deedsOf returns what is done in a recording, in order.
func (s scene) deedsOf(t *testing.T, transcript *recordings.Transcript) []deed {
	t.Helper()
	all := slices.Clone(s.unasked)
	for _, e := range transcript.Events {
		if slices.ContainsFunc(noticed, func(what string) bool { return strings.HasPrefix(e.What, what) }) {
			continue
		}
		do := s.deeds[e.What]
		if do == nil {
			do = common[e.What]
		}
		if do == nil {
			t.Fatalf("nobody knows how to play %q", e.What)
		}
		all = append(all, deed{began(transcript, e), do})
	}
	slices.SortStableFunc(all, func(a, b deed) int { return int(a.at - b.at) })
	return all
}

// began returns when an event began: one that is a call is noted with the time of its end in some recordings.
func began(transcript *recordings.Transcript, e recordings.Event) recordings.Seconds {
	for _, line := range transcript.Lines {
		if (line.Post != "" || line.Put != "" || line.Delete != "") && line.T == e.T {
			return line.Began
		}
	}
	return e.T
}

// detection returns after how long DRBD notices the fault, where the recording tells.
func detection(transcript *recordings.Transcript) time.Duration {
	for _, e := range transcript.Events {
		for _, what := range noticed {
			if strings.HasPrefix(e.What, what) {
				return time.Duration(e.T)
			}
		}
	}
	return 0
}

// noticing is how long an end of a connection takes to notice that it is dead, by "observer peer".
func noticing(delays map[string]time.Duration) func(observer, peer string) time.Duration {
	return func(observer, peer string) time.Duration { return delays[observer+" "+peer] }
}

// connecting is how long a connection takes to be made again, by "node node".
func connecting(delays map[string]time.Duration) func(a, b string) time.Duration {
	return func(a, b string) time.Duration { return delays[a+" "+b] }
}
