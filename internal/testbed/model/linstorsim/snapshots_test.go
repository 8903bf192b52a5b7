package linstorsim_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// shipping ships a snapshot of 1 GiB in 20.48 s.
func shipping(version string) linstorsim.Options {
	return linstorsim.Options{ShipRate: 50 * 1024, Version: version}
}

// snapshots are those of view/snapshots, as "pvc-1/s1: node-a node-b".
func (b *bed) snapshots(query string) (list []string) {
	b.t.Helper()
	for _, s := range decode[[]struct {
		Name         string   `json:"name"`
		ResourceName string   `json:"resource_name"`
		Nodes        []string `json:"nodes"`
		Flags        []string `json:"flags"`
		Snapshots    []struct {
			NodeName        string `json:"node_name"`
			CreateTimestamp int64  `json:"create_timestamp"`
		} `json:"snapshots"`
	}](b, "/v1/view/snapshots"+query) {
		if len(s.Snapshots) != len(s.Nodes) || s.Snapshots[0].NodeName != s.Nodes[0] || s.Snapshots[0].CreateTimestamp == 0 {
			b.t.Errorf("snapshot %s: nodes %v, copies %v", s.Name, s.Nodes, s.Snapshots)
		}
		list = append(list, s.ResourceName+"/"+s.Name+": "+strings.Join(s.Nodes, " "))
	}
	return list
}

func TestASnapshot(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c tie")
		must(t, b.linstor.CreateResource(volumeNamed("pvc-2", "node-d")))
		must(t, b.linstor.TakeSnapshot(pvc, "s1"))
		must(t, b.linstor.TakeSnapshot("pvc-2", "s1"))
		if err := b.linstor.TakeSnapshot(pvc, "s1"); !errors.Is(err, drbd.ErrExists) {
			t.Errorf("a second one of the same name = %v", err)
		}
		if err := b.linstor.TakeSnapshot("none", "s1"); !errors.Is(err, linstorsim.ErrNotFound) {
			t.Errorf("one of nothing = %v", err)
		}
		for query, want := range map[string][]string{
			"":                              {"pvc-1/s1: node-a node-b", "pvc-2/s1: node-d"},
			"?resources=pvc-1":              {"pvc-1/s1: node-a node-b"},
			"?nodes=node-d":                 {"pvc-2/s1: node-d"},
			"?nodes=node-b&resources=pvc-2": nil,
			"?nodes=node-a&nodes=node-d":    {"pvc-1/s1: node-a node-b", "pvc-2/s1: node-d"},
		} {
			if diff := cmp.Diff(want, b.snapshots(query)); diff != "" {
				t.Errorf("view/snapshots%s (-want +got):\n%s", query, diff)
			}
		}
		must(t, b.linstor.RemoveReplica(pvc, "node-b"))
		pass(time.Second)
		if diff := cmp.Diff([]string{"node-a", "node-b"}, b.linstor.SnapshotNodes(pvc, "s1")); diff != "" {
			t.Errorf("without the replica its copy is (-want +got):\n%s", diff)
		}
		saved := b.linstor.Snapshot()
		b.linstor.StopSatellite("node-b")
		pass(time.Minute)
		must(t, b.linstor.LoseNode("node-b"))
		if diff := cmp.Diff([]string{"node-a"}, b.linstor.SnapshotNodes(pvc, "s1")); diff != "" {
			t.Errorf("when the node is lost the copies are (-want +got):\n%s", diff)
		}
		b.linstor.RestoreDatabase(saved)
		if diff := cmp.Diff([]string{"node-a", "node-b"}, b.linstor.SnapshotNodes(pvc, "s1")); diff != "" {
			t.Errorf("in the earlier database the copies are (-want +got):\n%s", diff)
		}
	})
}

func TestTheSnapshotsOfAnEvacuatedNode(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		count    int
		replicas []string
		version  string
		before   func(*bed)
		during   func(*bed)
		status   int
		said     []string
		soon     string
		late     string
	}{
		"go to where the disk goes, once they have been shipped": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"}, soon: "node-a", late: "node-b",
		},
		"go to the tie-breaker's node with the disk": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, status: http.StatusOK, said: []string{"done 3"},
			soon: "node-a node-b", late: "node-b node-c",
		},
		"stay where there are enough others": {
			replicas: []string{"node-a", "node-b", "node-c"}, status: http.StatusOK, said: []string{"done 2"},
			soon: "node-a node-b node-c", late: "node-a node-b node-c",
		},
		"go to a disk without them where the replica is deleted": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 2"},
			before: func(b *bed) { b.disk("node-b"); b.disk("node-c"); b.disk("node-d") }, soon: "node-a", late: "node-b",
		},
		"go although the replica has gone": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{},
			before: func(b *bed) { b.disk("node-b"); must(b.t, b.linstor.RemoveReplica(pvc, "node-a")); pass(time.Second) },
			soon:   "node-a", late: "node-b",
		},
		"stay where no node can take them": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"warning 1020"},
			before: func(b *bed) {
				for _, node := range []string{"node-b", "node-c", "node-d"} {
					must(b.t, b.linstor.SetNodeProperty(node, linstorsim.PropAutoplaceTarget, "false"))
				}
			}, soon: "node-a", late: "node-a",
		},
		"stay where the node's property says so": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			before: func(b *bed) { must(b.t, b.linstor.SetNodeProperty("node-a", linstorsim.PropCopySnapshots, "false")) },
			soon:   "node-a", late: "node-a",
		},
		"stay where the controller's property says so": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			before: func(b *bed) { b.linstor.SetControllerProperty(linstorsim.PropCopySnapshots, "false") },
			soon:   "node-a", late: "node-a",
		},
		"stay before 1.33": {
			count: 1, replicas: []string{"node-a"}, version: "1.32.3", status: http.StatusOK, said: []string{"done 1"},
			soon: "node-a", late: "node-a",
		},
		"stay where the target disconnects on the way": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			during: func(b *bed) { b.linstor.StopSatellite("node-b") }, soon: "node-a", late: "node-a",
		},
		"stay where LINSTOR restarts on the way": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			during: func(b *bed) { b.linstor.Restart() }, soon: "node-a", late: "node-a",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, shipping(tc.version), func(t *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: tc.count})
				b.volume(tc.replicas...)
				must(t, b.linstor.TakeSnapshot(pvc, "s1"))
				if tc.before != nil {
					tc.before(b)
				}
				b.evacuate(tc.status, tc.said...)
				pass(20 * time.Second)
				if got := strings.Join(b.linstor.SnapshotNodes(pvc, "s1"), " "); got != tc.soon {
					t.Errorf("after 20 s of 20.48 s copies are on %s, want %s", got, tc.soon)
				}
				if tc.during != nil {
					tc.during(b)
				}
				pass(time.Minute)
				if got := strings.Join(b.linstor.SnapshotNodes(pvc, "s1"), " "); got != tc.late {
					t.Errorf("after a minute copies are on %s, want %s", got, tc.late)
				}
			})
		})
	}
}

// disk gives a node a disk of pvc-1 and waits until it is UpToDate.
func (b *bed) disk(node string) {
	b.t.Helper()
	must(b.t, b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: node}))
	pass(syncTime)
}
