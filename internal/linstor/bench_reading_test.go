package linstor

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// viewRow is a row of LINSTOR's view of resources, but for its name and node, and for its peers.
const viewRow = `{"name":%q,"node_name":%q,"props":{"StorPoolName":"thinpool"},"layer_object":{"children":[{"type":"STORAGE",` +
	`"storage":{"storage_volumes":[{"volume_number":0,"device_path":"/dev/vg/%[1]s_00000","allocated_size_kib":1052672,` +
	`"usable_size_kib":1052672,"disk_state":"[]"}]}}],"type":"DRBD","drbd":{"drbd_resource_definition":{"peer_slots":7,"al_stripes":1,` +
	`"al_stripe_size_kib":32,"port":7000,"transport_type":"IP","secret":"c2VjcmV0","down":false},"node_id":0,"peer_slots":7,` +
	`"al_stripes":1,"al_size":32,"drbd_volumes":[{"drbd_volume_definition":{"volume_number":0,"minor_number":1000},` +
	`"device_path":"/dev/drbd1000","backing_device":"/dev/vg/%[1]s_00000","allocated_size_kib":1052840,"usable_size_kib":1048576}],` +
	`"connections":{%[3]s},"promotion_score":10102,"may_promote":false}},"state":{"in_use":%[4]t},` +
	`"uuid":"7c3b8f2e-0000-4000-8000-000000000000","create_timestamp":1700000000000,"volumes":[{"volume_number":0,` +
	`"storage_pool_name":"thinpool","provider_kind":"LVM_THIN","device_path":"/dev/drbd1000","allocated_size_kib":102400,` +
	`"props":{"RestoredFrom":""},"state":{"disk_state":"UpToDate"},"layer_data_list":[{"type":"DRBD","data":{"drbd_volume_definition":` +
	`{"volume_number":0,"minor_number":1000},"device_path":"/dev/drbd1000","allocated_size_kib":1052840}},{"type":"STORAGE",` +
	`"data":{"volume_number":0,"device_path":"/dev/vg/%[1]s_00000"}}],"uuid":"7c3b8f2e-1111-4000-8000-000000000000"}]}`

// benchRows returns LINSTOR's answer on some resources with a replica on each of three nodes.
func benchRows(names []string) []byte {
	nodes := []string{"node-a", "node-b", "node-c"}
	var rows [][]byte
	for _, name := range names {
		for _, node := range nodes {
			var peers [][]byte
			for _, peer := range nodes {
				if peer != node {
					peers = append(peers, fmt.Appendf(nil, `%q:{"connected":true,"message":"Connected"}`, peer))
				}
			}
			rows = append(rows, fmt.Appendf(nil, viewRow, name, node, bytes.Join(peers, []byte(",")), node == "node-a"))
		}
	}
	return slices.Concat([]byte("["), bytes.Join(rows, []byte(",")), []byte("]"))
}

// answering answers requests with a document.
type answering func(*http.Request) []byte

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(a(r))),
	}, nil
}

// The reading of a thousand resources that have not changed, 16 at a time, from LINSTOR's answers to the store.
func BenchmarkReading(b *testing.B) {
	const many = 1000
	names := make([]string, many)
	answers := map[string][]byte{}
	for i := range many {
		names[i] = fmt.Sprintf("pvc-%08d-0000-4000-8000-%012d", i, i)
		answers["/v1/resource-definitions/"+names[i]+"/resources"] = benchRows(names[i : i+1])
	}
	cfg, err := ConfigFromEnv(env(map[string]string{envControllers: "linstor"}))
	if err != nil {
		b.Fatal(err)
	}
	answered, err := NewClient(cfg, nil, ClientOptions{RoundTripper: answering(func(r *http.Request) []byte { return answers[r.URL.Path] })})
	if err != nil {
		b.Fatal(err)
	}
	feed := NewFeed(answered, NewStore(), logr.Discard(), Options{})
	nodes := []client.Node{{Name: "node-a", Type: "SATELLITE", ConnectionStatus: client.StatusOnline}, {Name: "node-b", Type: "SATELLITE", ConnectionStatus: client.StatusOnline}, {Name: "node-c", Type: "SATELLITE", ConnectionStatus: client.StatusOnline}}
	feed.store.applyNodes(nodes, instant(time.Now()))
	feed.store.applyControllerProps(nil, instant(time.Now()))
	feed.store.applyGroups([]client.Group{{Name: "DfltRscGrp"}}, instant(time.Now()))
	for _, name := range names {
		if err := feed.fetchList(b.Context(), name); err != nil {
			b.Fatal(err)
		}
		feed.store.applyDefinition(definition(name, "majority"), instant(time.Now()))
	}
	b.ReportAllocs()
	for b.Loop() {
		var reading errgroup.Group
		reading.SetLimit(atOnce)
		for _, name := range names {
			reading.Go(func() error {
				return feed.readReplicas(b.Context(), "poll", name, time.Now(), func() time.Time { return time.Time{} })
			})
		}
		if err := reading.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
