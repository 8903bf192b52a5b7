package linstorsim_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const autoplacePath = "/v1/resource-definitions/pvc-1/autoplace"

// oneMore asks for one disk more on one of some nodes, written as JSON; empty means that no list is sent.
func oneMore(nodes string) string {
	if nodes == "" {
		return `{"select_filter":{"additional_place_count":1}}`
	}
	return `{"select_filter":{"additional_place_count":1,"node_name_list":` + nodes + `}}`
}

func TestWhereAutoPlaceMakesADisk(t *testing.T) {
	t.Parallel()
	const gib = 1024 * 1024
	zones := func(of map[string]string) func(*bed) {
		return func(b *bed) {
			for node, zone := range of {
				must(b.t, b.linstor.SetNodeProperty(node, "Aux/zone", zone))
			}
		}
	}
	apart := linstorsim.Placement{OnDifferent: "Aux/zone"}
	cases := map[string]struct {
		replicas  []string
		placement linstorsim.Placement
		before    func(*bed)
		body      string
		status    int
		said      string
		// on are the nodes with a disk afterwards.
		on string
	}{
		"on the first node that is free": {
			replicas: []string{"node-a"}, body: oneMore(""), status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"on the node with the most room": {
			replicas: []string{"node-a"}, body: oneMore(""),
			before: func(b *bed) {
				b.linstor.SetPool("node-b", 10*gib)
				b.linstor.SetPool("node-c", 20*gib)
				b.linstor.SetPool("node-d", 5*gib)
			},
			status: http.StatusCreated, said: "done 1", on: "node-a node-c",
		},
		"on one of the nodes that are named": {
			replicas: []string{"node-a"}, body: oneMore(`["node-c","node-d"]`), status: http.StatusCreated, said: "done 1",
			on: "node-a node-c",
		},
		"on one of the group's nodes if none are named": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{NodeNames: []string{"node-a", "node-d"}}, body: oneMore(""),
			status: http.StatusCreated, said: "done 1", on: "node-a node-d",
		},
		"on a node that is named instead of the group's": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{NodeNames: []string{"node-a", "node-d"}},
			body: oneMore(`["node-c"]`), status: http.StatusCreated, said: "done 1", on: "node-a node-c",
		},
		"on any node where the list is empty, whatever the group says": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{NodeNames: []string{"node-a", "node-d"}}, body: oneMore(`[]`),
			status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"instead of a tie-breaker": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, body: oneMore(`["node-c"]`), status: http.StatusCreated, said: "done 1",
			on: "node-a node-b node-c",
		},
		"instead of a diskless replica that is in use": {
			replicas: []string{"node-a", "node-c diskless"}, body: oneMore(`["node-c"]`),
			before: func(b *bed) { must(b.t, b.cluster.Open(pvc, "node-c", false)) },
			status: http.StatusCreated, said: "done 1", on: "node-a node-c",
		},
		"while another one is in use": {
			replicas: []string{"node-a"}, body: oneMore(`["node-c"]`),
			before: func(b *bed) { must(b.t, b.cluster.Open(pvc, "node-a", false)) },
			status: http.StatusCreated, said: "done 1", on: "node-a node-c",
		},
		"not where there is one": {
			replicas: []string{"node-a"}, body: oneMore(`["node-a"]`), status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"not where the pool has no room": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`), before: func(b *bed) { b.linstor.SetPool("node-b", gib-1) },
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"where the pool has just enough room": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`), before: func(b *bed) { b.linstor.SetPool("node-b", gib) },
			status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"not where another volume has taken the room": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`), before: func(b *bed) {
				b.linstor.SetPool("node-b", 2*gib-1)
				must(b.t, b.linstor.CreateResource(volumeNamed("pvc-2", "node-b")))
			},
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"not on a node that is no target": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`),
			before: func(b *bed) { must(b.t, b.linstor.SetNodeProperty("node-b", linstorsim.PropAutoplaceTarget, "no")) },
			status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"not on a node whose property says that it is no target": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`),
			before: func(b *bed) { must(b.t, b.linstor.SetNodeProperty("node-b", linstorsim.PropAutoplaceTarget, "False")) },
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"not on a node that is OFFLINE": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`),
			before: func(b *bed) { b.linstor.StopSatellite("node-b"); pass(2 * time.Second) },
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"not on a node that is evacuated": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`),
			before: func(b *bed) { b.linstor.SetNodeFlags("node-b", linstorsim.FlagEvacuate) },
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"not on a node that is evicted": {
			replicas: []string{"node-a"}, body: oneMore(`["node-b"]`),
			before: func(b *bed) { b.linstor.SetNodeFlags("node-b", linstorsim.FlagEvicted) },
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"in another zone where the group wants that": {
			replicas: []string{"node-a"}, placement: apart, before: zones(map[string]string{"node-a": "1", "node-b": "1", "node-c": "2"}),
			body: oneMore(`["node-b","node-c"]`), status: http.StatusCreated, said: "done 1", on: "node-a node-c",
		},
		"not in the zone of a replica where the group wants another": {
			replicas: []string{"node-a"}, placement: apart, before: zones(map[string]string{"node-a": "1", "node-b": "1"}),
			body: oneMore(`["node-b"]`), status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"in the zone of a replica that leaves": {
			replicas: []string{"node-a"}, placement: apart, body: oneMore(`["node-b"]`), before: func(b *bed) {
				zones(map[string]string{"node-a": "1", "node-b": "1"})(b)
				b.linstor.SetNodeFlags("node-a", linstorsim.FlagEvacuate)
			},
			status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"on a node without a zone": {
			replicas: []string{"node-a"}, placement: apart, before: zones(map[string]string{"node-a": "1"}), body: oneMore(`["node-b"]`),
			status: http.StatusCreated, said: "done 1", on: "node-a node-b",
		},
		"as many more as are asked for": {
			replicas: []string{"node-a"}, body: `{"select_filter":{"additional_place_count":2}}`, status: http.StatusCreated, said: "done 1",
			on: "node-a node-b node-c",
		},
		"all or none": {
			replicas: []string{"node-a"}, body: `{"select_filter":{"additional_place_count":2,"node_name_list":["node-b"]}}`,
			status: http.StatusInternalServerError, said: "error 996", on: "node-a",
		},
		"as many as the group wants where nothing is said": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 3}, body: `{}`, status: http.StatusCreated,
			said: "done 1", on: "node-a node-b node-c",
		},
		"as many as are wanted altogether": {
			replicas: []string{"node-a"}, body: `{"select_filter":{"place_count":2}}`, status: http.StatusCreated, said: "done 1",
			on: "node-a node-b",
		},
		"none where there are as many as are wanted": {
			replicas: []string{"node-a", "node-b"}, body: `{"select_filter":{"place_count":2}}`, status: http.StatusCreated,
			said: "warning 1006", on: "node-a node-b",
		},
		"none where there are more": {
			replicas: []string{"node-a", "node-b"}, body: `{"select_filter":{"place_count":1}}`, status: http.StatusInternalServerError,
			said: "error 219", on: "node-a node-b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, tc.placement)
				b.volume(tc.replicas...)
				if tc.before != nil {
					tc.before(b)
				}
				b.wantCall(http.MethodPost, autoplacePath, tc.body, tc.status, tc.said)
				pass(3 * syncTime)
				var on []string
				for _, disk := range b.disks() {
					if strings.HasSuffix(disk, " UpToDate") {
						on = append(on, strings.Fields(disk)[0])
					}
				}
				if got := strings.Join(on, " "); got != tc.on {
					t.Errorf("disks are on %s, want %s: %q", got, tc.on, b.disks())
				}
			})
		})
	}
}

func TestAutoPlaceOfAnUnknownDefinition(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(_ *testing.T, b *bed) {
		b.wantCall(http.MethodPost, autoplacePath, oneMore(""), http.StatusNotFound, "error 301")
	})
}

func TestTheQuorumFollowsAutoPlace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		nodes, replicas     []string
		tieBreaker          string
		quorum, quorumAfter string
	}{
		"two disks on three nodes get a tie-breaker": {
			[]string{"node-a", "node-b", "node-c"}, []string{"node-a"}, "node-c", "off", "majority",
		},
		"two disks on two nodes get none": {[]string{"node-a", "node-b"}, []string{"node-a"}, "", "off", "off"},
		"three disks need none": {
			[]string{"node-a", "node-b", "node-c"}, []string{"node-a", "node-b", "node-c tie"}, "", "majority", "majority",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				b.volume(tc.replicas...)
				if got := b.wanted(); got != tc.quorum {
					t.Errorf("before, the quorum is %s, want %s", got, tc.quorum)
				}
				b.wantCall(http.MethodPost, autoplacePath, oneMore(""), http.StatusCreated, "done 1")
				pass(time.Second)
				tieBreaker := ""
				for _, disk := range b.disks() {
					if strings.Contains(disk, linstorsim.FlagTieBreaker) {
						tieBreaker = strings.Fields(disk)[0]
					}
				}
				if got := b.wanted(); got != tc.quorumAfter || tieBreaker != tc.tieBreaker {
					t.Errorf("after, the quorum is %s, the tie-breaker on %q, want %s and %q", got, tieBreaker, tc.quorumAfter, tc.tieBreaker)
				}
			}, tc.nodes...)
		})
	}
}

func TestTheViewShowsHowFarASyncIs(t *testing.T) {
	t.Parallel()
	// With thin pools the view would wait for the silent satellite.
	planned(t, linstorsim.Options{ThickPools: true}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b")
		b.wantCall(http.MethodPost, autoplacePath, oneMore(`["node-c"]`), http.StatusCreated, "done 1")
		states := func() map[string]string {
			got := map[string]string{}
			for _, r := range decode[[]struct {
				NodeName string `json:"node_name"`
				Volumes  []struct {
					State json.RawMessage `json:"state"`
				} `json:"volumes"`
			}](b, "/v1/view/resources?resources=pvc-1") {
				got[r.NodeName] = string(r.Volumes[0].State)
			}
			return got
		}
		pass(5100 * time.Millisecond)
		// As LINSTOR 1.34 was recorded to show it.
		want := map[string]string{
			"node-a": `{"disk_state":"UpToDate","replication_states":{"node-b":{"replication_state":"Established"},` +
				`"node-c":{"replication_state":"SyncSource","done_percentage":48.828125}}}`,
			"node-b": `{"disk_state":"UpToDate","replication_states":{"node-a":{"replication_state":"Established"},` +
				`"node-c":{"replication_state":"Established"}}}`,
			"node-c": `{"disk_state":"SyncTarget(48.83%)","replication_states":{` +
				`"node-a":{"replication_state":"SyncTarget","done_percentage":48.828125},"node-b":{"replication_state":"Established"}}}`,
		}
		if diff := cmp.Diff(want, states()); diff != "" {
			t.Errorf("after 5 s of 10.24 s (-want +got):\n%s", diff)
		}
		b.linstor.CutSatellite("node-c")
		pass(3 * time.Second)
		if got := states()["node-c"]; got != want["node-c"] {
			t.Errorf("of a satellite that is silent it shows %s, want what it said last", got)
		}
		b.linstor.RestoreSatellite("node-c")
		pass(5 * time.Second)
		const done = `{"disk_state":"UpToDate","replication_states":{"node-a":{"replication_state":"Established"},"node-b":{"replication_state":"Established"}}}`
		if got := states()["node-c"]; got != done {
			t.Errorf("at last it shows %s", got)
		}
	})
}

func TestTheRoomOfAStoragePool(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetPool("node-a", 3*1024*1024)
		b.volume("node-a", "node-b")
		free := map[string]int64{}
		for _, pool := range decode[[]storagePool](b, "/v1/view/storage-pools?storage_pools=thin") {
			free[pool.NodeName] = *pool.FreeCapacity
		}
		want := map[string]int64{"node-a": 2 * 1024 * 1024, "node-b": 64 * 1024 * 1024, "node-c": 64 * 1024 * 1024, "node-d": 64 * 1024 * 1024}
		if diff := cmp.Diff(want, free); diff != "" {
			t.Errorf("free KiB (-want +got):\n%s", diff)
		}
	})
}

func TestAGroupShowsItsPlacement(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetPlacement("zoned", linstorsim.Placement{PlaceCount: 3, NodeNames: []string{"node-a"}, OnDifferent: "Aux/zone"})
		for group, want := range map[string]string{
			linstorsim.DefaultGroup: `{"place_count":2}`,
			"zoned":                 `{"place_count":3,"node_name_list":["node-a"],"replicas_on_different":["Aux/zone"]}`,
		} {
			got := decode[struct {
				SelectFilter json.RawMessage `json:"select_filter"`
			}](b, "/v1/resource-groups/"+group)
			if string(got.SelectFilter) != want {
				t.Errorf("%s: %s, want %s", group, got.SelectFilter, want)
			}
		}
	})
}
