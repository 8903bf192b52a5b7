package recordings_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// used are the keys that the product reads, and some that people look at, by their place in an object. The simulated LINSTOR may leave
// out all others.
var used = []string{
	".name", ".node_name", ".props", ".flags", ".state", ".state.in_use",
	".layer_object", ".layer_object.type", ".layer_object.drbd", ".layer_object.drbd.promotion_score",
	".layer_object.drbd.may_promote", ".layer_object.drbd.connections", ".layer_object.drbd.connections.*",
	".layer_object.drbd.connections.*.connected", ".layer_object.drbd.connections.*.message", ".layer_object.drbd.drbd_volumes",
	".volumes", ".volumes[].state", ".volumes[].state.disk_state", ".volumes[].storage_pool_name",
	".reports", ".reports[].ret_code", ".reports[].message", ".free_capacity",
	".type", ".connection_status", ".layer_data", ".layer_data[].type", ".resource_group_name",
}

// poolsPath is where the storage pools of all nodes are.
const poolsPath = "/v1/view/storage-pools"

// picture is which keys objects of a kind have.
type picture struct {
	always, ever map[string]bool
}

// gallery is the pictures by kind of object, such as "list, diskful, reports".
type gallery map[string]*picture

// hang adds the objects of an answer.
func (g gallery) hang(t *testing.T, path string, body []byte) {
	t.Helper()
	var objects []map[string]any
	if json.Unmarshal(body, &objects) != nil {
		return // properties have keys of their own
	}
	for _, object := range objects {
		kind := kindOf(path, object)
		if kind == "" {
			continue
		}
		keys := map[string]bool{}
		collect(keys, "", object)
		p := g[kind]
		if p == nil {
			g[kind] = &picture{always: maps.Clone(keys), ever: keys}
			continue
		}
		maps.DeleteFunc(p.always, func(key string, _ bool) bool { return !keys[key] })
		maps.Copy(p.ever, keys)
	}
}

// kindOf returns what kind of object it is; empty for one that is on its way to be another.
func kindOf(path string, object map[string]any) string {
	path, _, _ = strings.Cut(path, "?")
	switch {
	case path == "/v1/nodes":
		return "node, " + object["connection_status"].(string)
	case path == "/v1/resource-definitions":
		return "definition"
	case path == poolsPath:
		if object["reports"] == nil {
			return "storage pool"
		}
		return "storage pool, no connection"
	case !strings.HasSuffix(path, "/resources"):
		return ""
	}
	kind := "list"
	if strings.HasPrefix(path, "/v1/view/") {
		kind = "view"
	}
	var flags []string
	if all, ok := object["flags"].([]any); ok {
		for _, flag := range all {
			flags = append(flags, flag.(string))
		}
	}
	switch {
	case len(flags) == 0:
		kind += ", diskful"
	case slices.Contains(flags, "TIE_BREAKER") && !slices.Contains(flags, "DELETE"):
		kind += ", tie-breaker"
	default:
		return ""
	}
	state, ok := object["state"].(map[string]any)
	switch {
	case !ok:
		return kind + ", silent"
	case len(state) == 0:
		return "" // its values are coming
	}
	return kind + ", reports"
}

// collect collects the places of keys in a value; peers are all the same.
func collect(keys map[string]bool, place string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			switch {
			case strings.HasSuffix(place, ".props"):
				continue
			case strings.HasSuffix(place, ".connections"), strings.HasSuffix(place, ".replication_states"):
				key = "*"
			}
			keys[place+"."+key] = true
			collect(keys, place+"."+key, element)
		}
	case []any:
		for _, element := range v {
			collect(keys, place+"[]", element)
		}
	}
}

// simulated takes pictures of a simulated LINSTOR, of which a node crashes and comes back.
func simulated(t *testing.T) gallery {
	t.Helper()
	g := gallery{}
	synctest.Test(t, func(t *testing.T) {
		cluster := drbd.NewCluster(drbd.Options{})
		sim := linstorsim.New(cluster, linstorsim.Options{})
		defer cluster.Stop()
		defer sim.Close()
		for _, node := range []string{"node-a", "node-b", "node-c"} {
			sim.AddNode(node)
		}
		spec := linstorsim.ResourceSpec{Spec: drbd.Spec{Name: "pvc-db", Replicas: []drbd.ReplicaSpec{
			{Node: "node-a"}, {Node: "node-b"}, {Node: "node-c", TieBreaker: true},
		}}}
		if err := sim.CreateResource(spec); err != nil {
			t.Fatal(err)
		}
		deeds := map[int]func(){20: func() { sim.Crash("node-a") }, 120: func() { sim.Return("node-a") }}
		for step := range 240 {
			if deed := deeds[step]; deed != nil {
				deed()
			}
			<-time.After(250 * time.Millisecond) // virtual time; a satellite that returns is CONNECTED for longer
			for _, path := range []string{"/v1/nodes", "/v1/resource-definitions", listPath, viewPath, poolsPath} {
				answer := httptest.NewRecorder()
				sim.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
				if answer.Code == http.StatusOK {
					g.hang(t, path, answer.Body.Bytes())
				}
			}
		}
	})
	return g
}

func TestTheSimulatedLinstorLooksLikeARealOne(t *testing.T) {
	t.Parallel()
	recorded := gallery{}
	for _, name := range recordings.Names(t) {
		for _, line := range recordings.Load(t, name).Lines {
			if line.Status == http.StatusOK && line.Get != "" {
				recorded.hang(t, line.Get, line.Body)
			}
		}
	}
	sim := simulated(t)
	if len(sim) != 12 {
		t.Errorf("the simulated LINSTOR showed only %q", slices.Sorted(maps.Keys(sim)))
	}
	for _, kind := range slices.Sorted(maps.Keys(sim)) {
		if recorded[kind] == nil {
			t.Errorf("%s: no real LINSTOR showed one", kind)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(sim[kind].ever)) {
			if !recorded[kind].ever[key] {
				t.Errorf("%s: only the simulated one has %s", kind, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(recorded[kind].always)) {
			if slices.Contains(used, key) && !sim[kind].always[key] {
				t.Errorf("%s: the simulated one is without %s", kind, key)
			}
		}
	}
}
