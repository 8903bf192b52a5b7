package linstorsim_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// peers are the peers that each resource of the list reports a connection to, with its flags, as "node-a FLAG: node-b".
func (b *bed) list() []string {
	b.t.Helper()
	var list []string
	for _, rsc := range decode[[]replica](b, "/v1/resource-definitions/pvc-1/resources") {
		words := append([]string{rsc.NodeName}, rsc.Flags...)
		connections := rsc.LayerObject.DRBD.Connections
		for _, peer := range slices.Sorted(maps.Keys(connections)) {
			if connections[peer].Message != drbd.Connected {
				peer += "?"
			}
			words = append(words, peer)
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

func (b *bed) wantList(when string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.list()); diff != "" {
		b.t.Errorf("%s LINSTOR lists (-want +got):\n%s", when, diff)
	}
}

const tie = " DISKLESS DRBD_DISKLESS TIE_BREAKER"

// automatic is a pair of which LINSTOR is to want a tie-breaker.
func automatic() linstorsim.ResourceSpec {
	spec := pair()
	spec.Props = nil
	return spec
}

func TestALostNodeWritesOn(t *testing.T) {
	cases := map[string]struct {
		quorum string
		writes bool
	}{
		"quorum off":            {"off", true},
		"quorum from the start": {"majority", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				spec := automatic()
				spec.Quorum = tc.quorum
				must(t, b.linstor.CreateResource(spec))
				must(t, b.cluster.Open(pvc, "node-a", false))
				if err := b.linstor.LoseNode("node-a"); !errors.Is(err, linstorsim.ErrNodeOnline) {
					t.Errorf("losing an ONLINE node = %v, want a refusal", err)
				}
				b.linstor.Isolate("node-a")
				pass(20 * time.Second)
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
				b.wantList("while node-a is away", "node-a", "node-b node-a? node-c", "node-c"+tie+" node-a? node-b")
				must(t, b.linstor.LoseNode("node-a"))
				b.wantList("without node-a", "node-b node-c", "node-c"+tie+" node-b")
				if status, _ := b.get("/v1/nodes/node-a"); status != http.StatusNotFound || b.linstor.ConnectionStatus("node-a") != "" {
					t.Errorf("LINSTOR answers %d for the lost node, status %q", status, b.linstor.ConnectionStatus("node-a"))
				}
				if got := b.cluster.CanWrite(pvc, "node-a"); got != tc.writes {
					t.Errorf("node-a can write: %t, want %t", got, tc.writes)
				}
				b.linstor.Rejoin("node-a")
				pass(time.Minute)
				if got := b.cluster.CanWrite(pvc, "node-a"); got != tc.writes {
					t.Errorf("back on the network node-a can write: %t, want %t", got, tc.writes)
				}
				b.wantList("whatever node-a does", "node-b node-c", "node-c"+tie+" node-b")
			})
		})
	}
}

func TestALostNodeIsMadeKnownAgain(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		uuid := func() string {
			return decode[struct{ UUID string }](b, "/v1/resource-definitions/pvc-1/resources/node-a").UUID
		}
		before := uuid()
		b.linstor.Isolate("node-a")
		pass(20 * time.Second)
		must(t, b.linstor.LoseNode("node-a"))
		b.linstor.AddNode("node-a")
		pass(time.Minute)
		if got := b.linstor.ConnectionStatus("node-a"); got != linstorsim.Offline {
			t.Errorf("made known while it is cut off, node-a is %s, want OFFLINE", got)
		}
		b.linstor.Rejoin("node-a")
		pass(time.Minute)
		if got := b.linstor.ConnectionStatus("node-a"); got != linstorsim.Online {
			t.Errorf("back on the network node-a is %s, want ONLINE", got)
		}
		b.wantList("without a replica on node-a", "node-b node-c", "node-c"+tie+" node-b")
		must(t, b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: "node-a"}))
		pass(time.Minute)
		b.wantList("with a replica on node-a", "node-a node-b node-c", "node-b node-a node-c", "node-c"+tie+" node-a node-b")
		if after := uuid(); after == before {
			t.Errorf("the replica that was made again has the UUID %s of the one before", after)
		}
	})
}

func TestALostPeerStaysConnectedWithWhoWasNotTold(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.SetAdjustFault("node-a", pvc, linstorsim.AdjustFailsAtOptions)
		b.linstor.StopSatellite("node-b")
		pass(2 * time.Second)
		must(t, b.linstor.LoseNode("node-b"))
		b.linstor.AddNode("node-b")
		b.linstor.RestoreSatellite("node-b")
		pass(time.Minute)
		must(t, b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: "node-b"}))
		if got := b.replica("node-a").LayerObject.DRBD.Connections["node-b"].Message; got != drbd.Connected {
			t.Errorf("node-a, which heard nothing of it, is %v to node-b, want Connected", got)
		}
	})
}

func TestARestoredDatabase(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.AddNode("node-d")
		must(t, b.linstor.CreateResource(pair()))
		snapshot := b.linstor.Snapshot()
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "majority")
		must(t, b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: "node-c"}))
		must(t, b.linstor.RemoveReplica(pvc, "node-b"))
		must(t, b.cluster.Open(pvc, "node-c", false))
		b.linstor.DelayAdjust("node-c", time.Hour)
		b.linstor.RestoreDatabase(snapshot)
		if response, err := b.client.Get(base + "/v1/nodes"); err == nil {
			_ = response.Body.Close()
			t.Error("the controller answers while it starts")
		}
		pass(1600 * time.Millisecond)
		if got := b.wanted(); got != "off" {
			t.Errorf("the definition shows %s, want off again", got)
		}
		if diff := cmp.Diff(map[string]string{"node-a": "majority", "node-c": "majority"}, b.running()); diff != "" {
			t.Errorf("before anything is adjusted DRBD runs (-want +got):\n%s", diff)
		}
		b.wantList("right after the start", "node-a node-c", "node-b")
		pass(time.Minute)
		want := map[string]string{"node-a": "off", "node-b": "off", "node-c": "majority"}
		if diff := cmp.Diff(want, b.running()); diff != "" {
			t.Errorf("after the adjusts DRBD runs (-want +got):\n%s", diff)
		}
		b.wantList("at last", "node-a node-b", "node-b node-a")
		if state, ok := b.cluster.Replica(pvc, "node-c"); !ok || state.Role != drbd.Primary {
			t.Errorf("the replica that LINSTOR does not know any more: %v, want a Primary still", state)
		}
	})
}

func TestARestoredDatabaseKnowsALostNodeAgain(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		snapshot := b.linstor.Snapshot()
		b.linstor.AddNode("node-d")
		b.linstor.Isolate("node-a")
		pass(20 * time.Second)
		must(t, b.linstor.LoseNode("node-a"))
		b.linstor.RestoreDatabase(snapshot)
		pass(time.Minute)
		if a, d := b.linstor.ConnectionStatus("node-a"), b.linstor.ConnectionStatus("node-d"); a != linstorsim.Offline || d != "" {
			t.Errorf("node-a is %q and node-d is %q, want OFFLINE and unknown", a, d)
		}
		b.linstor.Rejoin("node-a")
		pass(time.Minute)
		b.wantList("with node-a back", "node-a node-b node-c", "node-b node-a node-c", "node-c"+tie+" node-a node-b")
	})
}

func TestTieBreakersComeAndGo(t *testing.T) {
	type step func(t *testing.T, b *bed)
	quorum := func(value string) step {
		return func(_ *testing.T, b *bed) { b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, value) }
	}
	property := func(value string) step {
		return func(_ *testing.T, b *bed) { b.linstor.SetDefinitionProperty(pvc, linstorsim.PropAutoTieBreaker, value) }
	}
	add := func(node string) step {
		return func(t *testing.T, b *bed) { must(t, b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: node})) }
	}
	remove := func(node string) step {
		return func(t *testing.T, b *bed) { must(t, b.linstor.RemoveReplica(pvc, node)) }
	}
	withTie := []string{"node-a node-b node-c", "node-b node-a node-c", "node-c" + tie + " node-a node-b"}
	without := []string{"node-a node-b", "node-b node-a"}
	cases := map[string]struct {
		steps  []step
		quorum string
		want   []string
	}{
		"not at creation":                         {nil, "off", without},
		"with the first change":                   {[]step{property("")}, "majority", withTie},
		"with a quorum":                           {[]step{quorum("off"), quorum("majority")}, "majority", withTie},
		"with a quorum that nobody sets any more": {[]step{quorum("off"), quorum("")}, "majority", withTie},
		"not where quorum is off":                 {[]step{property(""), quorum("off")}, "off", without},
		"not where the property forbids it":       {[]step{property(""), property("False")}, "off", without},
		"not again where somebody removed it":     {[]step{property(""), remove("node-c"), quorum("")}, "off", without},
		"not beside a third disk": {[]step{property(""), add("node-d")}, "majority", []string{
			"node-a node-b node-d", "node-b node-a node-d", "node-d node-a node-b",
		}},
		"instead of a third disk that is removed": {[]step{add("node-d"), remove("node-d")}, "majority", []string{
			"node-a node-b node-d", "node-b node-a node-d", "node-d" + tie + " node-a node-b",
		}},
		"not beside a diskless replica that votes": {[]step{
			property(""), func(t *testing.T, b *bed) { must(t, b.linstor.MakeAvailable(pvc, "node-d")) },
		}, "majority", []string{"node-a node-b node-d", "node-b node-a node-d", "node-d DISKLESS DRBD_DISKLESS node-a node-b"}},
		"with the controller's quorum, which it brings to the nodes": {[]step{func(_ *testing.T, b *bed) {
			b.linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
		}}, "majority", withTie},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				b.linstor.AddNode("node-d")
				must(t, b.linstor.CreateResource(automatic()))
				for _, step := range tc.steps {
					step(t, b)
				}
				pass(time.Minute)
				b.wantList("at last", tc.want...)
				for node, got := range b.running() {
					if got != tc.quorum {
						t.Errorf("%s runs quorum %s, want %s", node, got, tc.quorum)
					}
				}
			})
		})
	}
}

func TestADeletionDisconnectsFirstAndChangesTheQuorumLater(t *testing.T) {
	inBubble(t, linstorsim.Options{CommitDelay: 300 * time.Millisecond}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.linstor.RemoveReplica(pvc, "node-c"))
		pass(100 * time.Millisecond)
		b.wantList("first", "node-a node-b", "node-b node-a", "node-c"+tie+" DELETE")
		if diff := cmp.Diff(both("majority"), b.running()); diff != "" {
			t.Errorf("DRBD runs first (-want +got):\n%s", diff)
		}
		pass(time.Second)
		b.wantList("then", "node-a node-b", "node-b node-a")
		if diff := cmp.Diff(both("off"), b.running()); diff != "" {
			t.Errorf("DRBD runs then (-want +got):\n%s", diff)
		}
	})
}

func TestAReplicaThatIsWantedAgainWhileItIsDeletedStays(t *testing.T) {
	inBubble(t, linstorsim.Options{CommitDelay: 300 * time.Millisecond}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(pair()))
		must(t, b.linstor.MakeAvailable(pvc, "node-c"))
		must(t, b.linstor.RemoveReplica(pvc, "node-c"))
		pass(100 * time.Millisecond)
		must(t, b.linstor.MakeAvailable(pvc, "node-c"))
		pass(time.Minute)
		b.wantList("at last", "node-a node-b node-c", "node-b node-a node-c", "node-c DISKLESS DRBD_DISKLESS node-a node-b")
	})
}

func TestADiskThatIsToGoIsAskedForFirst(t *testing.T) {
	inBubble(t, linstorsim.Options{CommitDelay: 300 * time.Millisecond, TieBreakers: true}, func(t *testing.T, b *bed) {
		spec := automatic()
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: "node-c"})
		must(t, b.linstor.CreateResource(spec))
		must(t, b.linstor.RemoveReplica(pvc, "node-c"))
		b.wantList("first", "node-a node-b node-c", "node-b node-a node-c", "node-c DISK_REMOVE_REQUESTED node-a node-b")
		pass(time.Second)
		b.wantList("then", "node-a node-b node-c", "node-b node-a node-c", "node-c"+tie+" node-a node-b")
		if diff := cmp.Diff("majority", b.wanted()); diff != "" {
			t.Errorf("quorum (-want +got):\n%s", diff)
		}
	})
}

func TestThePeersOfADeletedReplicaOnADeadNodeDisconnect(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.Crash("node-a")
		pass(20 * time.Second)
		must(t, b.linstor.RemoveReplica(pvc, "node-a"))
		b.wantList("while node-a is dead", "node-a DELETE", "node-b node-c", "node-c"+tie+" node-b")
	})
}

func TestDisksAreToggled(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-c", false))
		must(t, b.linstor.ToggleDisk(pvc, "node-c", true))
		b.wantList("with a third disk", "node-a node-b node-c", "node-b node-a node-c", "node-c node-a node-b")
		if state, _ := b.cluster.Replica(pvc, "node-c"); state.DiskState != drbd.UpToDate || state.Score != 10103 {
			t.Errorf("the new disk is %s, score %d", state.DiskState, state.Score)
		}
		if err := b.linstor.ToggleDisk(pvc, "node-c", false); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("removing the disk of a Primary = %v, want in use", err)
		}
		b.cluster.Close(pvc, "node-c")
		must(t, b.linstor.ToggleDisk(pvc, "node-c", false))
		b.wantList("without it", "node-a node-b node-c", "node-b node-a node-c", "node-c DISKLESS DRBD_DISKLESS node-a node-b")
		b.linstor.StopSatellite("node-c")
		pass(2 * time.Second)
		if err := b.linstor.ToggleDisk(pvc, "node-c", true); !errors.Is(err, linstorsim.ErrNodeOffline) {
			t.Errorf("adding a disk on an OFFLINE node = %v, want a refusal", err)
		}
	})
}

func TestANewVolumeIsPlacedOnThePodsNodeFirst(t *testing.T) {
	inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		spec := automatic()
		spec.Replicas = spec.Replicas[:1]
		must(t, b.linstor.CreateResource(spec))
		if got := b.wanted(); got != "off" || b.running()["node-a"] != "off" {
			t.Errorf("alone, node-a runs %s, the definition shows %s, want off", b.running()["node-a"], got)
		}
		must(t, b.linstor.Place(pvc, drbd.ReplicaSpec{Node: "node-b"}))
		b.wantList("placed", "node-a node-b node-c", "node-b node-a node-c", "node-c"+tie+" node-a node-b")
		want := map[string]string{"node-a": "majority", "node-b": "majority", "node-c": "majority"}
		if diff := cmp.Diff(want, b.running()); diff != "" {
			t.Errorf("DRBD runs (-want +got):\n%s", diff)
		}
	})
}

func TestAnEvictedNode(t *testing.T) {
	inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.linstor.AddNode("node-d")
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		if err := b.linstor.Evict("node-a"); !errors.Is(err, linstorsim.ErrNodeOnline) {
			t.Errorf("evicting an ONLINE node = %v, want a refusal", err)
		}
		b.linstor.Crash("node-a")
		pass(79 * time.Second)
		must(t, b.linstor.Evict("node-a"))
		b.wantList("evicted", "node-a INACTIVE EVICTED", "node-b node-c node-d", "node-c node-b node-d", "node-d"+tie+" node-b node-c")
		if diff := cmp.Diff([]string{"DELETE", "EVICTED"}, decode[struct{ Flags []string }](b, "/v1/nodes/node-a").Flags); diff != "" {
			t.Errorf("flags of the node (-want +got):\n%s", diff)
		}
		if got := *b.replica("node-c").LayerObject.DRBD.Score; got != 10102 {
			t.Errorf("the tie-breaker with its new disk has score %d, want 10102", got)
		}
		b.linstor.Return("node-a")
		pass(time.Minute)
		if got := b.linstor.ConnectionStatus("node-a"); got != linstorsim.Offline {
			t.Errorf("back, the evicted node is %s, want OFFLINE still", got)
		}
		must(t, b.linstor.RestoreNode("node-a"))
		pass(time.Minute)
		b.wantList("restored", "node-a node-b node-c", "node-b node-a node-c", "node-c node-a node-b")
	})
}

func TestAnEvacuatedNode(t *testing.T) {
	inBubble(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.linstor.AddNode("node-d")
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		before := []string{"node-a node-b node-c", "node-b node-a node-c", "node-c" + tie + " node-a node-b"}
		if err := b.linstor.Evacuate("node-a"); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("evacuating the node that uses the volume = %v, want a refusal", err)
		}
		pass(time.Minute)
		b.wantList("refused", before...)

		must(t, b.linstor.Evacuate("node-b"))
		pass(time.Minute)
		b.wantList("evacuated", "node-a node-c node-d", "node-c node-a node-d", "node-d"+tie+" node-a node-c")
		if got := b.linstor.ConnectionStatus("node-b"); got != linstorsim.Online {
			t.Errorf("the evacuated node is %s, want ONLINE", got)
		}
	})
}

func TestAnEvacuationThatLosesASatelliteOnTheWay(t *testing.T) {
	slow := func(node string) time.Duration { return map[string]time.Duration{"node-c": 10 * time.Second}[node] }
	inBubble(t, linstorsim.Options{AdjustTime: slow}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.linstor.Evacuate("node-b"))
		pass(5 * time.Second)
		b.linstor.StopSatellite("node-c")
		pass(5 * time.Second)
		b.linstor.RestoreSatellite("node-c")
		pass(time.Minute)
		b.wantList("back", "node-a node-b node-c", "node-b EVACUATE node-a node-c", "node-c node-a node-b")
		must(t, b.linstor.RestoreNode("node-b"))
		pass(time.Minute)
		b.wantList("restored", "node-a node-b node-c", "node-b node-a node-c", "node-c node-a node-b")
	})
}

func TestTheWordsOfANodeWhoseEventsEndAreFrozenForAMoment(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		s := b.subscribe("")
		before := b.replica("node-a")
		b.linstor.EndEvents("node-a")
		pass(2 * time.Second)
		b.cluster.Close(pvc, "node-a")
		if diff := cmp.Diff(events(event("node-b", "true")+event("node-c", "true")), events(s.text())); diff != "" {
			t.Errorf("events at the close (-want +got):\n%s", diff)
		}
		b.cluster.Isolate("node-a")
		pass(2990 * time.Millisecond)
		if diff := cmp.Diff(before, b.replica("node-a")); diff != "" || b.linstor.ConnectionStatus("node-a") != linstorsim.Online {
			t.Errorf("after 4.99 s node-a is %s and shows (-before +after):\n%s", b.linstor.ConnectionStatus("node-a"), diff)
		}
		pass(20 * time.Millisecond)
		got := b.replica("node-a")
		if drbd := got.LayerObject.DRBD; drbd.MayPromote != nil || drbd.Score != nil || !*got.State.InUse || len(drbd.Connections) != 2 {
			t.Errorf("after 5.01 s: may promote %v, score %v, in use %t, connections %v", drbd.MayPromote, drbd.Score, *got.State.InUse, drbd.Connections)
		}
		pass(30 * time.Millisecond)
		if got := b.replica("node-a"); *got.State.InUse || !*got.LayerObject.DRBD.MayPromote {
			t.Errorf("after 5.04 s: in use %t, may promote %t, want the truth", *got.State.InUse, *got.LayerObject.DRBD.MayPromote)
		}
		if diff := cmp.Diff(event("node-a", "")+event("node-a", "true"), s.text()); diff != "" {
			t.Errorf("events of node-a (-want +got):\n%s", diff)
		}
		s.cancel()
	})
}

func TestEventsThatEndWithTheirSatellite(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.EndEvents("node-a")
		pass(time.Second)
		b.linstor.StopSatellite("node-a")
		b.linstor.RestoreSatellite("node-a")
		pass(time.Minute)
		must(t, b.cluster.Open(pvc, "node-a", false))
		if got := b.replica("node-a"); !*got.State.InUse {
			t.Error("node-a, whose satellite was started anew, does not tell that it is Primary")
		}
	})
}

func TestEachSatelliteIsMissedAfterItsOwnTime(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetPingTimeout("node-a", 5*time.Second)
		b.linstor.SetPingTimeout("node-b", 7*time.Second)
		missed := map[string]time.Duration{}
		begin := time.Now()
		for _, node := range []string{"node-a", "node-b", "node-c"} {
			b.linstor.CutSatellite(node)
		}
		for time.Since(begin) < 10*time.Second {
			for _, node := range []string{"node-a", "node-b", "node-c"} {
				if b.linstor.ConnectionStatus(node) == linstorsim.Offline && missed[node] == 0 {
					missed[node] = time.Since(begin).Round(50 * time.Millisecond)
				}
			}
			pass(10 * time.Millisecond)
		}
		want := map[string]time.Duration{"node-a": 5 * time.Second, "node-b": 7 * time.Second, "node-c": 6 * time.Second}
		if diff := cmp.Diff(want, missed); diff != "" {
			t.Errorf("missed after (-want +got):\n%s", diff)
		}
	})
}
