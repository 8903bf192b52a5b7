package linstorsim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// What the tests of planned loss have in common: disks of 1 GiB that are filled in about ten seconds.

// planned runs a test with a LINSTOR of some nodes, node-a to node-d if none are named.
func planned(t *testing.T, options linstorsim.Options, test func(*testing.T, *bed), nodes ...string) {
	t.Helper()
	if len(nodes) == 0 {
		nodes = []string{"node-a", "node-b", "node-c", "node-d"}
	}
	const rate = 100 * 1024
	inBubbleOver(t, drbd.Options{SyncRate: rate}, options, test, nodes...)
}

// syncTime is a little more than what the initial sync of a disk takes.
const syncTime = 11 * time.Second

// volume makes the resource pvc-1 of replicas such as "node-a" (a disk), "node-c diskless" and "node-c tie".
func (b *bed) volume(replicas ...string) {
	b.t.Helper()
	must(b.t, b.linstor.CreateResource(volumeNamed(pvc, replicas...)))
}

func volumeNamed(name string, replicas ...string) linstorsim.ResourceSpec {
	spec := linstorsim.ResourceSpec{Spec: drbd.Spec{Name: name}}
	for _, replica := range replicas {
		node, kind, _ := strings.Cut(replica, " ")
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: node, Diskless: kind == "diskless", TieBreaker: kind == "tie"})
	}
	return spec
}

// disks are the replicas of pvc-1 in view/resources, as "node-a FLAGS UpToDate".
func (b *bed) disks() []string {
	b.t.Helper()
	return b.disksOf(pvc)
}

func (b *bed) disksOf(resource string) (list []string) {
	b.t.Helper()
	for _, r := range decode[[]replica](b, "/v1/view/resources?resources="+resource) {
		words := append([]string{r.NodeName}, r.Flags...)
		if len(r.Volumes) > 0 && r.Volumes[0].State != nil {
			words = append(words, r.Volumes[0].State.DiskState)
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

func (b *bed) wantDisks(when string, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.disks()); diff != "" {
		b.t.Errorf("%s LINSTOR shows (-want +got):\n%s", when, diff)
	}
}

// call makes a call, and returns its status and what each entry of the answer says: "error 997", "warning 1020", "info 10003" or "done 1".
func (b *bed) call(method, path, body string) (int, []string) {
	b.t.Helper()
	status, text, _ := b.change(method, path, body)
	var entries []struct {
		RetCode int64             `json:"ret_code"`
		Message string            `json:"message"`
		ObjRefs map[string]string `json:"obj_refs"`
	}
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		b.t.Fatalf("%s %s answers %d with no list: %s", method, path, status, text)
	}
	said := []string{}
	for _, entry := range entries {
		kinds := map[uint64]string{0: "done", 1: "info", 2: "warning", 3: "error"}
		const kind, code = 62, 0x7fff
		said = append(said, fmt.Sprintf("%s %d", kinds[uint64(entry.RetCode)>>kind], entry.RetCode&code))
		if entry.Message == "" {
			b.t.Errorf("%s %s: an entry says nothing", method, path)
		}
	}
	return status, said
}

// wantCall makes a call and compares its answer.
func (b *bed) wantCall(method, path, body string, status int, said ...string) {
	b.t.Helper()
	if said == nil {
		said = []string{}
	}
	gotStatus, got := b.call(method, path, body)
	if diff := cmp.Diff(said, got); diff != "" || gotStatus != status {
		b.t.Errorf("%s %s %s answers %d, want %d, with (-want +got):\n%s", method, path, body, gotStatus, status, diff)
	}
}

// evacuate asks for the evacuation of node-a.
func (b *bed) evacuate(status int, said ...string) {
	b.t.Helper()
	b.wantCall(http.MethodPut, "/v1/nodes/node-a/evacuate", "{}", status, said...)
}

// restore takes it back.
func (b *bed) restore() {
	b.t.Helper()
	b.wantCall(http.MethodPut, "/v1/nodes/node-a/restore", "{}", http.StatusOK, "done 0")
}

// propsOf are the properties of the replica on a node.
func (b *bed) propsOf(node string) map[string]string {
	b.t.Helper()
	return decode[struct {
		Props map[string]string `json:"props"`
	}](b, "/v1/resource-definitions/"+pvc+"/resources/"+node).Props
}
