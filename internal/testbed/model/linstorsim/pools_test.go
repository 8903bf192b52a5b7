package linstorsim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// storagePool is what a consumer reads of a storage pool.
type storagePool struct {
	NodeName     string `json:"node_name"`
	FreeCapacity *int64 `json:"free_capacity"`
	Reports      []struct {
		RetCode int64  `json:"ret_code"`
		Message string `json:"message"`
	} `json:"reports"`
}

// unconnected returns the nodes of which every storage pool says that there is no connection.
func (b *bed) unconnected() []string {
	b.t.Helper()
	nodes := map[string]bool{}
	for _, pool := range decode[[]storagePool](b, "/v1/view/storage-pools") {
		none := len(pool.Reports) == 1 && pool.Reports[0].RetCode == -9223372036854774806 && pool.FreeCapacity == nil &&
			pool.Reports[0].Message == "No active connection to satellite '"+pool.NodeName+"'"
		if was, known := nodes[pool.NodeName]; known && was != none {
			b.t.Errorf("the pools of %s do not agree", pool.NodeName)
		}
		nodes[pool.NodeName] = none
	}
	if len(nodes) != 3 {
		b.t.Errorf("there are pools of %v, want of three nodes", nodes)
	}
	var names []string
	for node, none := range nodes {
		if none {
			names = append(names, node)
		}
	}
	slices.Sort(names)
	return names
}

// away returns which nodes LINSTOR does not call ONLINE.
func (b *bed) away() string {
	b.t.Helper()
	var all []string
	for _, n := range decode[[]struct {
		Name   string `json:"name"`
		Status string `json:"connection_status"`
	}](b, "/v1/nodes") {
		if n.Status != linstorsim.Online {
			all = append(all, n.Name)
		}
	}
	return strings.Join(all, " ")
}

// So it was with a real LINSTOR, see recording 15.
func TestStoragePoolsTellToWhomThereIsNoConnection(t *testing.T) {
	all := []string{"node-a", "node-b", "node-c"}
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		must(t, b.cluster.Open(pvc, "node-a", false))
		expect := func(when, away string, unconnected ...string) {
			t.Helper()
			if diff := cmp.Diff(unconnected, b.unconnected()); diff != "" {
				t.Errorf("%s, nodes without a connection (-want +got):\n%s", when, diff)
			}
			if got := b.away(); got != away {
				t.Errorf("%s, nodes that are not ONLINE: %q, want %q", when, got, away)
			}
		}
		expect("at first", "")

		b.linstor.Crash("node-b")
		if status, _ := b.get("/v1/view/storage-pools"); status != http.StatusInternalServerError {
			t.Errorf("while LINSTOR gives a satellite up the answer is %d, want 500", status)
		}
		expect("after a crash", "node-b", "node-b")
		b.linstor.Return("node-b")
		<-time.After(time.Minute)
		expect("after the return", "")

		b.linstor.FreezeSatellite("node-b")
		expect("of a satellite that is frozen", "")
		b.linstor.UnfreezeSatellite("node-b")

		b.linstor.LoseConnector()
		expect("without the connector", "", all...)
		b.linstor.Crash("node-a")
		began := time.Now()
		<-time.After(time.Hour)
		expect("after a crash that it does not notice", "", all...)
		if a := b.replica("node-a"); a.State == nil || a.State.InUse == nil || !*a.State.InUse {
			t.Errorf("the values of node-a have not stayed: %+v", a)
		}
		if status, _ := b.get("/v1/view/resources"); status != http.StatusOK || time.Since(began) != time.Hour {
			t.Errorf("the view answers %d after %s, want at once", status, time.Since(began)-time.Hour)
		}

		b.linstor.Restart()
		<-time.After(time.Minute)
		expect("after a restart", "node-a", "node-a")
		if b.linstor.Blind() {
			t.Error("a new process has no connector")
		}
	})
}

func TestWithoutItsConnectorLinstorReachesNobody(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		must(t, b.linstor.CreateResource(standard()))
		b.linstor.CutSatellite("node-b")
		<-time.After(time.Minute)
		b.linstor.LoseConnector()
		b.linstor.RestoreSatellite("node-b")
		b.linstor.StopSatellite("node-c")
		<-time.After(time.Hour)
		if got := b.away(); got != "node-b" {
			t.Errorf("not ONLINE are %s", got)
		}
		b.linstor.RestoreSatellite("node-c")
		b.linstor.Restart()
		<-time.After(time.Minute)
		if got := b.away(); got != "" {
			t.Errorf("after a restart not ONLINE are %s", got)
		}
	})
}

func TestStoragePoolsAreFiltered(t *testing.T) {
	inBubble(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		for query, want := range map[string]int{
			"": 6, "?nodes=node-a": 2, "?nodes=NODE-A&nodes=node-b": 4, "?storage_pools=thin": 3, "?nodes=other": 0, "?limit=4&offset=3": 3,
		} {
			if got := len(decode[[]storagePool](b, "/v1/view/storage-pools"+query)); got != want {
				t.Errorf("%q shows %d pools, want %d", query, got, want)
			}
		}
	})
}
