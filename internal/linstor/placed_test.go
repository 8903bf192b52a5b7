package linstor

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// serving returns a feed of a LINSTOR that answers each path with a document, and everything else as it does without one.
func serving(t *testing.T, documents map[string]string) *Feed {
	t.Helper()
	fake := newFakeLinstor()
	fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		document, ok := documents[r.URL.RequestURI()]
		if ok {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, document)
		}
		return ok
	}
	n := newNetwork()
	n.serve(t, "linstor:3370", fake)
	return NewFeed(testClient(t, n, "linstor"), NewStore(), logr.Discard(), Options{})
}

// TestAPlacedReplica has what becomes of a resource as LINSTOR shows it.
func TestAPlacedReplica(t *testing.T) {
	t.Parallel()
	const disk = `"volumes":[{"volume_number":0,"state":{"disk_state":"UpToDate","replication_states":{"b":{"replication_state":"Established"}}}}]`
	upToDate := map[int]string{0: "UpToDate"}
	for name, tc := range map[string]struct {
		document string
		want     evacuation.Replica
	}{
		"a disk in use": {
			`{"node_name":"Node-A","state":{"in_use":true},` + disk + `}`, evacuation.Replica{Node: "node-a", InUse: evacuation.Yes, Disks: upToDate, Done: -1},
		},
		"one that is connected to some": {
			`{"node_name":"a","layer_object":{"type":"DRBD","drbd":{"connections":{"C":{"connected":true},"B":{"connected":true},"D":{"connected":false,"message":"Connecting"}}}}}`,
			evacuation.Replica{Node: "a", Peers: []string{"b", "c"}, Apart: []string{"d"}, Disks: map[int]string{}, Done: -1},
		},
		"one of which nothing is known": {
			`{"node_name":"a","volumes":[{"volume_number":1}]}`, evacuation.Replica{Node: "a", Disks: map[int]string{1: ""}, Done: -1},
		},
		"a tie-breaker": {
			`{"node_name":"a","flags":["DISKLESS","DRBD_DISKLESS","TIE_BREAKER"],"state":{"in_use":false},"volumes":[{"volume_number":0,"state":{"disk_state":"Diskless"}}]}`,
			evacuation.Replica{
				Node: "a", Diskless: true, Flags: []string{"DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER"}, InUse: evacuation.No,
				Disks: map[int]string{0: "Diskless"}, Done: -1,
			},
		},
		"a client": {
			`{"node_name":"a","flags":["DISKLESS","DRBD_DISKLESS"],"layer_object":{"type":"DRBD","drbd":{"flags":["DISKLESS","CLIENT"]}},"state":{"in_use":false},"volumes":[]}`,
			evacuation.Replica{Node: "a", Diskless: true, Client: true, Flags: []string{"DISKLESS", "DRBD_DISKLESS"}, InUse: evacuation.No, Disks: map[int]string{}, Done: -1},
		},
		"a copy on its way": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"SyncTarget(12.34%)"}}]}`,
			evacuation.Replica{Node: "a", Disks: map[int]string{0: "SyncTarget"}, Syncing: true, Done: 12.34},
		},
		"a copy on its way by the connection": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"Inconsistent","replication_states":{"b":{"replication_state":"SyncTarget","done_percentage":41.5}}}}]}`,
			evacuation.Replica{Node: "a", Disks: map[int]string{0: "Inconsistent"}, Syncing: true, Done: 41.5},
		},
		"a copy whose second volume is slower": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"SyncTarget(90%)"}},{"volume_number":1,"state":{"disk_state":"SyncTarget(10%)"}}]}`,
			evacuation.Replica{Node: "a", Disks: map[int]string{0: "SyncTarget", 1: "SyncTarget"}, Syncing: true, Done: 10},
		},
		"a sync that waits": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"Inconsistent","replication_states":{"b":{"replication_state":"PausedSyncT"}}}}]}`,
			evacuation.Replica{Node: "a", Disks: map[int]string{0: "Inconsistent"}, Syncing: true, Done: -1},
		},
		"a disk that is only verified": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"UpToDate","replication_states":{"b":{"replication_state":"VerifyS"},"c":{"replication_state":"Off"}}}}]}`,
			evacuation.Replica{Node: "a", Disks: upToDate, Done: -1},
		},
		"a percentage that makes no sense": {
			`{"node_name":"a","volumes":[{"volume_number":0,"state":{"disk_state":"SyncTarget(all)"}}]}`,
			evacuation.Replica{Node: "a", Disks: map[int]string{0: "SyncTarget"}, Syncing: true, Done: -1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r client.PlacedResource
			if err := json.Unmarshal([]byte(tc.document), &r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, placedReplica(&r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlacedVolumes(t *testing.T) {
	t.Parallel()
	feed := serving(t, map[string]string{
		"/v1/nodes": `[{"name":"A","type":"SATELLITE","connection_status":"ONLINE","flags":["EVACUATE"]}]`,
		"/v1/view/resources": `[{"name":"pvc-1","node_name":"a","layer_object":{"type":"DRBD"}},
			{"name":"local","node_name":"a","layer_object":{"type":"STORAGE"}},{"name":"PVC-1","node_name":"b","layer_object":{"type":"DRBD"}}]`,
		"/v1/resource-definitions": `[{"name":"pvc-1","resource_group_name":"fast","props":{"BalanceResourcesEnabled":"false"}}]`,
		"/v1/resource-groups":      `[{"name":"Fast","select_filter":{"place_count":2}}]`,
	})
	volumes, asked, err := feed.Placed(t.Context())
	if err != nil || asked.IsZero() || len(volumes) != 2 {
		t.Fatalf("%+v, asked %s, %v", volumes, asked, err)
	}
	if v := volumes[0]; v.Resource != "pvc-1" || !v.DRBD || len(v.Replicas) != 2 || v.Replicas[1].Node != "b" {
		t.Errorf("got %+v", v)
	}
	if v := volumes[0]; v.PlaceCount != 2 || v.Mark.Balance != "false" {
		t.Errorf("of a feed that follows nothing, as that of check, the group wants %d disks, and balancing is %q", v.PlaceCount, v.Mark.Balance)
	}
	if v := volumes[1]; v.DRBD || len(v.Replicas) != 1 {
		t.Errorf("got %+v", v)
	}
	if node, ok := feed.store.Node("a"); !ok || !node.Evacuating || node.Leaving || !node.Online.Value {
		t.Errorf("the node is %+v", node)
	}
	if _, _, err := serving(t, map[string]string{"/v1/view/resources": "[]", "/v1/nodes": "no"}).Placed(t.Context()); err == nil {
		t.Error("no error where the nodes cannot be read")
	}
}

// TestMixedLayers has that a volume is one of DRBD where any of its replicas is, in whatever order LINSTOR lists them: nothing of it may be taken for what
// LINSTOR leaves alone.
func TestMixedLayers(t *testing.T) {
	t.Parallel()
	feed := serving(t, map[string]string{
		"/v1/nodes": `[]`,
		"/v1/view/resources": `[{"name":"one","node_name":"a","layer_object":{"type":"STORAGE"}},{"name":"one","node_name":"b","layer_object":{"type":"DRBD"}},
			{"name":"two","node_name":"a","layer_object":{"type":"DRBD"}},{"name":"two","node_name":"b","layer_object":{"type":"STORAGE"}}]`,
		"/v1/resource-definitions": `[]`,
		"/v1/resource-groups":      `[]`,
	})
	volumes, _, err := feed.Placed(t.Context())
	if err != nil || len(volumes) != 2 || !volumes[0].DRBD || !volumes[1].DRBD {
		t.Errorf("got %+v, %v", volumes, err)
	}
}

// TestManyDefinitions has that more definitions are read than one request has room for: LINSTOR's HTTP server takes 8 KiB of headers.
func TestManyDefinitions(t *testing.T) {
	t.Parallel()
	fake := newFakeLinstor()
	fake.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		asked := r.URL.Query()["resource_definitions"]
		if len(asked) == 0 {
			return false
		}
		if len(r.URL.RequestURI()) > 7<<10 { // without the other headers
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			return true
		}
		var definitions []map[string]string
		for _, name := range asked {
			definitions = append(definitions, map[string]string{"name": name})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(definitions); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return true
	}
	n := newNetwork()
	n.serve(t, "linstor:3370", fake)
	feed := NewFeed(testClient(t, n, "linstor"), NewStore(), logr.Discard(), Options{})
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("pvc-c8a5dd3e-51a0-4c60-a4fc-6d8c4b9c%04d", i))
	}
	marks, err := feed.MarksOf(t.Context(), names)
	if err != nil || len(marks) != len(names) || marks[499].Resource != names[499] {
		t.Errorf("%d marks of %d definitions, %v", len(marks), len(names), err)
	}
	if marks, err := feed.MarksOf(t.Context(), nil); err != nil || len(marks) > 0 {
		t.Errorf("none were asked for: %+v, %v", marks, err)
	}
}

func TestWhatIsReadOfDefinitions(t *testing.T) {
	t.Parallel()
	const definitions = `[{"name":"pvc-1","resource_group_name":"Fast","props":{"BalanceResourcesEnabled":"false","Aux/piraeus.io/evacuation":"a,B"}},
		{"name":"pvc-2","resource_group_name":"gone"},{"name":"pvc-3","resource_group_name":"slow","props":{"BalanceResourcesEnabled":"true"}}]`
	feed := serving(t, map[string]string{
		"/v1/resource-definitions?resource_definitions=pvc-1&resource_definitions=pvc-2&resource_definitions=pvc-3": definitions,
		"/v1/resource-definitions?props=Aux%2Fpiraeus.io%2Fevacuation":                                              definitions, // an old one does not filter
		"/v1/resource-groups": `[{"name":"fast","select_filter":{"place_count":2,"node_name_list":["A","b"]}},{"name":"slow"}]`,
		"/v1/view/snapshots":  `[{"name":"s1","nodes":["a","b"]},{"name":"s2","nodes":["b"]},{"name":"s3","nodes":["A"]}]`,
	})
	read, err := feed.CopyDefinitions(t.Context(), []string{"pvc-1", "pvc-2", "pvc-3"})
	marked := evacuation.Mark{Resource: "pvc-1", Nodes: []string{"a", "b"}, Balance: "false"}
	want := map[string]evacuation.Definition{
		"pvc-1": {Nodes: []string{"a", "b"}, PlaceCount: 2, Mark: marked},
		"pvc-3": {Mark: evacuation.Mark{Resource: "pvc-3", Balance: "true"}},
	}
	if diff := cmp.Diff(want, read); err != nil || diff != "" {
		t.Error(err, diff)
	}
	marks, err := feed.Marks(t.Context())
	if diff := cmp.Diff([]evacuation.Mark{marked}, marks); err != nil || diff != "" {
		t.Error(err, diff)
	}
	feed.store.definitions["pvc-1"] = &definitionEntry{} // read before it was marked, by another leader
	marks, err = feed.MarksOf(t.Context(), []string{"pvc-1", "pvc-2", "pvc-3"})
	if diff := cmp.Diff(marked, feed.store.definitions["pvc-1"].mark); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]evacuation.Mark{marked, {Resource: "pvc-2"}, {Resource: "pvc-3", Balance: "true"}}, marks); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if n, err := feed.SnapshotsOn(t.Context(), "a"); err != nil || n != 2 {
		t.Errorf("%d snapshots, %v", n, err)
	}
}

func TestWhichLinstorSparesNodes(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"1.33.0": true, "1.34.0-rc.1": true, "1.33": true, "2.0.0": true, "v1.40.1": true, "1.32.9": false, "1.4.0": false, "": false, "next": false, "1": false,
	} {
		feed := serving(t, map[string]string{"/v1/controller/version": `{"version":"` + version + `","rest_api_version":"1.0.0"}`})
		if got, err := feed.CanSpareNodes(t.Context()); err != nil || got != want {
			t.Errorf("%q: %t, %v", version, got, err)
		}
	}
}

// LINSTOR notes a move on the replica that goes, or on the one that is toggled to a disk for it.
func TestTheSourceOfAMoveMoves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		document string
		want     map[string]bool
	}{
		"nothing moves": {`[{"name":"r","node_name":"a"},{"name":"r","node_name":"b"}]`, map[string]bool{"a": false, "b": false}},
		"the source says so": {
			`[{"name":"r","node_name":"a","props":{"MigrateFrom":"A"}},{"name":"r","node_name":"b"}]`, map[string]bool{"a": true, "b": false},
		},
		"the target says so": {
			`[{"name":"r","node_name":"a"},{"name":"R","node_name":"b","props":{"MigrateFrom":"A"}}]`, map[string]bool{"a": true, "b": false},
		},
		"another resource says so": {
			`[{"name":"r","node_name":"a"},{"name":"r2","node_name":"a","props":{"MigrateFrom":"A"}},{"name":"r","node_name":"b"}]`,
			map[string]bool{"a": false, "b": false},
		},
		"the source has gone": {`[{"name":"r","node_name":"b","props":{"MigrateFrom":"A"}}]`, map[string]bool{"b": false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var resources []client.PlacedResource
			if err := json.Unmarshal([]byte(tc.document), &resources); err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, r := range NewStore().placed(resources)[0].Replicas {
				got[r.Node] = r.Moves
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of a quorum that LINSTOR has changed by itself the nodes hear, unless it waits with a deletion; of a person's they may not.
func TestAnEvacuationIsToldWhatNodesMayStillRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*world)
		flags  []string
		want   []string
	}{
		"nothing has changed":             {func(*world) {}, nil, nil},
		"a person has switched it off":    {func(w *world) { w.set("off") }, nil, []string{"majority"}},
		"LINSTOR has switched it off":     {func(w *world) { w.adapt("off") }, nil, nil},
		"and moves the replica":           {func(w *world) { w.adapt("off") }, []string{client.FlagEvacuate}, nil},
		"and waits with a deletion":       {func(w *world) { w.adapt("off") }, []string{client.FlagDelete}, []string{"majority"}},
		"and is about to delete":          {func(w *world) { w.adapt("off") }, []string{client.FlagDRBDDelete}, []string{"majority"}},
		"a person has set it and is back": {func(w *world) { w.set("off"); w.define(); w.live(30); w.set("majority") }, nil, []string{"off"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := knownWorld(t, "majority", "a", "b")
			w.live(60)
			tc.change(w)
			w.define()
			w.look()
			var r client.PlacedResource
			r.Name, r.NodeName, r.Flags = "R", "a", tc.flags
			placed := w.placed([]client.PlacedResource{r})
			if diff := cmp.Diff(tc.want, placed[0].OtherQuorums); diff != "" {
				t.Error(diff)
			}
		})
	}
}
