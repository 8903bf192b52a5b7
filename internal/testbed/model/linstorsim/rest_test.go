package linstorsim_test

import (
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

var update = flag.Bool("update", false, "write the golden files")

func TestReplicaOnTheWire(t *testing.T) {
	cases := map[string]struct {
		path string
		do   func(*bed)
	}{
		"resource-primary": {path: "/v1/resource-definitions/pvc-1/resources/node-a"},
		"resource-offline": {
			path: "/v1/resource-definitions/pvc-1/resources/node-a",
			do:   func(b *bed) { b.linstor.StopSatellite("node-a") },
		},
		"view-tie-breaker":    {path: "/v1/view/resources?nodes=node-c"},
		"view-primary":        {path: "/v1/view/resources?nodes=node-a"},
		"node":                {path: "/v1/nodes/node-a"},
		"resource-definition": {path: "/v1/resource-definitions/pvc-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				must(t, b.linstor.CreateResource(standard()))
				must(t, b.cluster.Open(pvc, "node-a", false))
				if tc.do != nil {
					tc.do(b)
				}
				_, body := b.get(tc.path)
				golden := filepath.Join("testdata", name+".json")
				if *update {
					must(t, os.WriteFile(golden, []byte(body), 0o644))
				}
				want, err := os.ReadFile(golden)
				must(t, err)
				if diff := cmp.Diff(string(want), body); diff != "" {
					t.Errorf("GET %s (-want +got):\n%s", tc.path, diff)
				}
			})
		})
	}
}

func TestViewFilters(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		second := standard()
		second.Name = "PVC-2"
		must(t, b.linstor.CreateResource(second))
		empty := standard()
		empty.Name, empty.VolumeLess = "empty", true
		must(t, b.linstor.CreateResource(empty))
		cases := map[string]int{
			"":                              6,
			"?nodes=NODE-A":                 2,
			"?resources=pvc-2":              3,
			"?nodes=node-a&nodes=node-b":    4,
			"?resources=pvc-1&nodes=node-c": 1,
			"?storage_pools=thin":           4,
			"?props=StorPoolName=DfltDisklessStorPool": 2,
			"?props=StorPoolName":                      6,
			"?props=none":                              0,
			"?resources=empty":                         0,
			"?limit=4":                                 4,
			"?limit=4&offset=4":                        2,
			"?offset=4":                                6,
			"?limit=4&offset=40":                       0,
			"?cached=true":                             6,
		}
		for query, want := range cases {
			if got := len(decode[[]replica](b, "/v1/view/resources"+query)); got != want {
				t.Errorf("view%s lists %d resources, want %d", query, got, want)
			}
		}
		if got := len(decode[[]replica](b, "/v1/resource-definitions/empty/resources")); got != 3 {
			t.Errorf("a definition without volumes lists %d resources, want 3", got)
		}
	})
}

func TestAbsentObjects(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(linstorsim.ResourceSpec{Spec: drbd.Spec{Name: pvc}, VolumeLess: true}))
		for path, want := range map[string]int{
			"/v1/resource-definitions/none":                  http.StatusNotFound,
			"/v1/resource-definitions/none/resources":        http.StatusNotFound,
			"/v1/resource-definitions/none/resources/node-a": http.StatusNotFound,
			"/v1/resource-definitions/pvc-1/resources/none":  http.StatusNotFound,
			"/v1/nodes/none":                 http.StatusNotFound,
			"/v1/resource-groups/none":       http.StatusNotFound,
			"/v1/anything":                   http.StatusNotFound,
			"/v1/resource-groups/dfltrscgrp": http.StatusOK,
			"/v1/nodes/NODE-A":               http.StatusOK,
			"/health":                        http.StatusOK,
			"/v1/controller/version":         http.StatusOK,
		} {
			if got, body := b.get(path); got != want {
				t.Errorf("GET %s = %d %s, want %d", path, got, body, want)
			}
		}
		if _, body := b.get("/v1/resource-definitions/pvc-1/resources"); body != "[]" {
			t.Errorf("resources of a definition without any = %s, want []", body)
		}
		_, body := b.get("/v1/nodes/none")
		if want := `[{"ret_code":-4611686018427387603,"message":"The node 'none' does not exist."}]`; body != want {
			t.Errorf("error body = %s", body)
		}
	})
}

func TestConnectionStatus(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		type moment struct {
			After  time.Duration
			Status string
			Known  bool
		}
		observe := func(moments ...time.Duration) []moment {
			var list []moment
			start := time.Now()
			for _, at := range moments {
				pass(at - time.Since(start))
				list = append(list, moment{at, b.linstor.ConnectionStatus("node-b"), b.replica("node-b").State != nil})
			}
			return list
		}
		must(t, b.linstor.CreateResource(standard()))

		b.linstor.StopSatellite("node-b")
		want := []moment{{0, "ONLINE", false}, {1100 * time.Millisecond, "OFFLINE", false}}
		if diff := cmp.Diff(want, observe(0, 1100*time.Millisecond)); diff != "" {
			t.Errorf("after a stop (-want +got):\n%s", diff)
		}

		b.linstor.RestoreSatellite("node-b")
		want = []moment{{8 * time.Second, "OFFLINE", false}, {9 * time.Second, "CONNECTED", false}, {10 * time.Second, "ONLINE", true}}
		if diff := cmp.Diff(want, observe(8*time.Second, 9*time.Second, 10*time.Second)); diff != "" {
			t.Errorf("after a start (-want +got):\n%s", diff)
		}

		b.linstor.Crash("node-b")
		want = []moment{{5 * time.Second, "ONLINE", true}, {7 * time.Second, "OFFLINE", false}}
		if diff := cmp.Diff(want, observe(5*time.Second, 7*time.Second)); diff != "" {
			t.Errorf("after a crash (-want +got):\n%s", diff)
		}

		b.linstor.Return("node-b")
		want = []moment{{20 * time.Second, "ONLINE", true}}
		if diff := cmp.Diff(want, observe(20*time.Second)); diff != "" {
			t.Errorf("after a boot (-want +got):\n%s", diff)
		}
		if got := b.replica("node-b"); *got.LayerObject.DRBD.Score != 10102 {
			t.Errorf("score after a boot = %d", *got.LayerObject.DRBD.Score)
		}
	})
}

func TestFrozenSatelliteShowsOldWords(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.FreezeSatellite("node-b")
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.linstor.Crash("node-b")
		pass(time.Hour)
		got := b.replica("node-b")
		if b.linstor.ConnectionStatus("node-b") != "ONLINE" || got.State == nil || !*got.LayerObject.DRBD.MayPromote {
			t.Errorf("frozen node: %s, %+v", b.linstor.ConnectionStatus("node-b"), got)
		}
		b.linstor.UnfreezeSatellite("node-b")
		pass(0)
		if got := b.linstor.ConnectionStatus("node-b"); got != "OFFLINE" {
			t.Errorf("status of the thawed dead node = %s, want OFFLINE", got)
		}
	})
}

func TestViewWaitsForASilentSatelliteAndTheListDoesNot(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.Crash("node-b")
		start := time.Now()
		b.get("/v1/resource-definitions/pvc-1/resources")
		if took := time.Since(start); took != 0 {
			t.Errorf("the list of replicas took %s", took)
		}
		b.get("/v1/view/resources?nodes=node-a")
		if took := time.Since(start); took != 0 {
			t.Errorf("the view of another node took %s", took)
		}
		status, text := b.get("/v1/view/resources")
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("the view took %s, want the ping timeout", took)
		}
		if status != http.StatusInternalServerError || text != `[{"ret_code":-4611686018427386906}]` {
			t.Errorf("the view whose satellite was given up = %d %s", status, text)
		}
		b.linstor.CutSatellite("node-a")
		time.AfterFunc(3*time.Second, func() { b.linstor.RestoreSatellite("node-a") })
		if status, _ := b.get("/v1/view/resources"); status != http.StatusOK {
			t.Errorf("the view whose satellite was heard again = %d", status)
		}
	})
}

func TestQuorumSettings(t *testing.T) {
	quorum := func(t *testing.T, b *bed, node string) string {
		t.Helper()
		s, ok := b.cluster.Replica(pvc, node)
		if !ok {
			t.Fatalf("no replica on %s", node)
		}
		return s.Quorum
	}
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		type definition struct {
			Props map[string]string `json:"props"`
		}
		read := func() string {
			return decode[definition](b, "/v1/resource-definitions/pvc-1").Props[linstorsim.PropQuorum]
		}
		if got := read(); got != "majority" || quorum(t, b, "node-a") != "majority" {
			t.Errorf("automatic quorum with a tie-breaker = %s", got)
		}
		must(t, b.linstor.RemoveReplica(pvc, "node-c"))
		if got := read(); got != "off" || quorum(t, b, "node-a") != "off" {
			t.Errorf("automatic quorum of two = %s, DRBD runs %s", got, quorum(t, b, "node-a"))
		}
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "2")
		if a, c := quorum(t, b, "node-a"), quorum(t, b, "node-b"); a != "2" || c != "2" {
			t.Errorf("DRBD runs %s and %s, want 2", a, c)
		}
		b.linstor.StopSatellite("node-a")
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "all")
		if got := quorum(t, b, "node-a"); got != "2" {
			t.Errorf("a node without satellite runs %s, want what it had", got)
		}
		b.linstor.RestoreSatellite("node-a")
		pass(time.Minute)
		if got := quorum(t, b, "node-a"); got != "all" {
			t.Errorf("after the satellite is back, the node runs %s, want all", got)
		}
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "")
		if got := read(); got != "off" || quorum(t, b, "node-a") != "off" {
			t.Errorf("quorum of two that nobody sets any more = %s, DRBD runs %s", got, quorum(t, b, "node-a"))
		}
		b.linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, "2")
		if got := read(); got != "2" || quorum(t, b, "node-a") != "2" {
			t.Errorf("the group's quorum: the definition shows %s, DRBD runs %s, want 2", got, quorum(t, b, "node-a"))
		}
		for level, err := range map[string]error{
			"node":     b.linstor.SetNodeProperty("node-a", linstorsim.PropQuorum, "majority"),
			"resource": b.linstor.SetResourceProperty(pvc, "node-a", linstorsim.PropQuorum, "majority"),
		} {
			if !errors.Is(err, linstorsim.ErrInvalidProperty) {
				t.Errorf("setting a quorum on a %s = %v, want a refusal", level, err)
			}
		}
	})
}

func TestReplicasComeAndGo(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.AddNode("node-d")
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.linstor.MakeAvailable(pvc, "node-d"))
		if diff := cmp.Diff([]string{"DISKLESS", "DRBD_DISKLESS"}, b.replica("node-d").Flags); diff != "" {
			t.Errorf("flags (-want +got):\n%s", diff)
		}
		must(t, b.cluster.Open(pvc, "node-d", false))
		if err := b.linstor.RemoveReplica(pvc, "node-d"); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("removing a Primary = %v, want in use", err)
		}
		b.linstor.Crash("node-d")
		pass(10 * time.Second)
		must(t, b.linstor.RemoveReplica(pvc, "node-d"))
		if diff := cmp.Diff([]string{"DISKLESS", "DRBD_DISKLESS", "DELETE"}, b.replica("node-d").Flags); diff != "" {
			t.Errorf("flags of a deleted resource on a dead node (-want +got):\n%s", diff)
		}
		b.linstor.Return("node-d")
		pass(time.Minute)
		if status, _ := b.get("/v1/resource-definitions/pvc-1/resources/node-d"); status != http.StatusNotFound {
			t.Errorf("the resource is still there after its node returned: %d", status)
		}
		must(t, b.cluster.Open(pvc, "node-c", false))
		if diff := cmp.Diff([]string{"DISKLESS", "DRBD_DISKLESS"}, b.replica("node-c").Flags); diff != "" {
			t.Errorf("flags of a tie-breaker in use (-want +got):\n%s", diff)
		}
		b.linstor.StopSatellite("node-b")
		pass(2 * time.Second)
		if err := b.linstor.MakeAvailable(pvc, "node-b"); !errors.Is(err, linstorsim.ErrNodeOffline) {
			t.Errorf("making available on an offline node = %v", err)
		}
		b.cluster.Close(pvc, "node-c")
		must(t, b.linstor.DeleteResource(pvc))
		if got := decode[[]replica](b, "/v1/view/resources?limit=9"); len(got) != 0 {
			t.Errorf("deleted resource is listed: %v", got)
		}
	})
}

func TestAReplicaThatCouldNotBeDeletedHasLearntTheSettings(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.linstor.CutSatellite("node-a")
		pass(10 * time.Second)
		must(t, b.linstor.RemoveReplica(pvc, "node-a"))
		b.linstor.SetDefinitionProperty(pvc, linstorsim.PropQuorum, "1")
		b.linstor.RestoreSatellite("node-a")
		pass(time.Minute)
		got, ok := b.cluster.Replica(pvc, "node-a")
		if !ok || got.Quorum != "1" || !slices.Contains(b.replica("node-a").Flags, linstorsim.FlagDelete) {
			t.Errorf("node-a has the replica: %t, it runs quorum %s, want 1, flags %v", ok, got.Quorum, b.replica("node-a").Flags)
		}
	})
}

func TestSettingsOfEachLevelComeAndGo(t *testing.T) {
	const second = "pvc-2"
	cases := map[string]struct {
		set  func(b *bed, key, value string)
		want []string
	}{
		"controller": {func(b *bed, key, value string) { b.linstor.SetControllerProperty(key, value) }, []string{pvc, second}},
		"group": {func(b *bed, key, value string) {
			b.linstor.SetGroupProperty(linstorsim.DefaultGroup, key, value)
		}, []string{pvc, second}},
		"nodes": {func(b *bed, key, value string) {
			must(b.t, b.linstor.SetNodeProperty("node-a", key, value))
			must(b.t, b.linstor.SetNodeProperty("node-b", key, value))
		}, []string{pvc, second}},
		"definition": {func(b *bed, key, value string) { b.linstor.SetDefinitionProperty("PVC-2", key, value) }, []string{second}},
		"resources": {func(b *bed, key, value string) {
			must(b.t, b.linstor.SetResourceProperty(pvc, "node-a", key, value))
			must(b.t, b.linstor.SetResourceProperty(pvc, "node-b", key, value))
		}, []string{pvc}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				// shared are the resources that two nodes can write to at once.
				shared := func() (list []string) {
					for _, name := range []string{pvc, second} {
						must(t, b.cluster.Open(name, "node-a", false))
						if b.cluster.Open(name, "node-b", false) == nil {
							list = append(list, name)
							b.cluster.Close(name, "node-b")
						}
						b.cluster.Close(name, "node-a")
					}
					return list
				}
				for _, name := range []string{pvc, second} {
					spec := standard()
					spec.Name = name
					must(t, b.linstor.CreateResource(spec))
				}
				tc.set(b, linstorsim.PropAllowTwoPrimaries, "yes")
				if diff := cmp.Diff(tc.want, shared()); diff != "" {
					t.Errorf("two Primaries are allowed of (-want +got):\n%s", diff)
				}
				tc.set(b, linstorsim.PropAllowTwoPrimaries, "")
				if got := shared(); got != nil {
					t.Errorf("two Primaries are still allowed of %q", got)
				}
			})
		})
	}
}

func TestEvictedImpliesDelete(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetNodeFlags("node-a", linstorsim.FlagEvicted)
		type node struct{ Flags []string }
		if diff := cmp.Diff([]string{"DELETE", "EVICTED"}, decode[node](b, "/v1/nodes/node-a").Flags); diff != "" {
			t.Errorf("flags (-want +got):\n%s", diff)
		}
	})
}

func TestRequestsAreCountedAndIntercepted(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		for _, path := range []string{"/v1/nodes", "/v1/nodes", "/v1/view/resources", "/v1/view/resources?resources=pvc-1", "/v1/resource-definitions/pvc-1/resources"} {
			b.get(path)
		}
		want := map[linstorsim.Kind]int{linstorsim.KindNodes: 2, linstorsim.KindView: 1, linstorsim.KindViewPart: 1, linstorsim.KindResources: 1}
		if diff := cmp.Diff(want, b.linstor.Requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		b.linstor.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		})
		if got, _ := b.get("/v1/nodes"); got != http.StatusServiceUnavailable {
			t.Errorf("status = %d, want the interceptor's", got)
		}
		b.linstor.Intercept(nil)
		if got, _ := b.get("/v1/nodes"); got != http.StatusOK {
			t.Errorf("status = %d after the interceptor is gone", got)
		}
	})
}

func TestServesOnARealSocket(t *testing.T) {
	cluster := drbd.NewCluster(drbd.Options{})
	defer cluster.Stop()
	linstor := linstorsim.New(cluster, linstorsim.Options{})
	linstor.AddNode("node-a")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- linstor.Serve(listener) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/v1/nodes")
	must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status = %d", response.StatusCode)
	}
	linstor.Close()
	must(t, <-served)
}
