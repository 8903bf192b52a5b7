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

func TestRestoreGivesBackTheTieBreakerAndTheMajority(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		replicas   []string
		left, back []string
	}{
		"of a node that had a disk": {
			replicas: []string{"node-a", "node-b", "node-c tie"},
			left:     []string{"node-b UpToDate", "node-c UpToDate"},
			back:     []string{"node-a" + tie + " Diskless", "node-b UpToDate", "node-c UpToDate"},
		},
		"of a node that had the tie-breaker": {
			replicas: []string{"node-a tie", "node-b", "node-c"},
			left:     []string{"node-b UpToDate", "node-c UpToDate"},
			back:     []string{"node-a" + tie + " Diskless", "node-b UpToDate", "node-c UpToDate"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				b.volume(tc.replicas...)
				if status, said := b.call(http.MethodPut, "/v1/nodes/node-a/evacuate", "{}"); status != http.StatusOK {
					t.Errorf("evacuate answers %d %v", status, said)
				}
				pass(time.Minute)
				b.wantDisks("evacuated", tc.left...)
				if got := b.wanted(); got != "off" {
					t.Errorf("with two disks and no tie-breaker the quorum is %s, want off", got)
				}
				b.restore()
				pass(time.Second)
				b.wantDisks("restored", tc.back...)
				want := map[string]string{"node-a": "majority", "node-b": "majority", "node-c": "majority"}
				if diff := cmp.Diff(want, b.running()); diff != "" || b.wanted() != "majority" {
					t.Errorf("restored, the quorum is %s, DRBD runs (-want +got):\n%s", b.wanted(), diff)
				}
			}, "node-a", "node-b", "node-c")
		})
	}
}

func TestRestoreWithDeletion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		replicas   []string
		body       string
		disks      []string
		snapshotOn string
	}{
		"deletes no replica unless it is told to": {
			replicas: []string{"node-a", "node-b", "node-c"}, body: "", disks: []string{"node-a UpToDate", "node-b UpToDate", "node-c UpToDate"},
			snapshotOn: "node-a node-b node-c",
		},
		"deletes the replicas": {
			replicas: []string{"node-a", "node-b", "node-c"}, body: `{"delete_resources":true}`,
			disks: []string{"node-b UpToDate", "node-c UpToDate"}, snapshotOn: "node-a node-b node-c",
		},
		"deletes the snapshots": {
			replicas: []string{"node-a", "node-b", "node-c"}, body: `{"delete_snapshots":true}`,
			disks: []string{"node-a UpToDate", "node-b UpToDate", "node-c UpToDate"}, snapshotOn: "node-b node-c",
		},
		"never deletes the last disk": {
			replicas: []string{"node-a"}, body: `{"delete_resources":true}`, disks: []string{"node-a UpToDate"}, snapshotOn: "node-a",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				b.volume(tc.replicas...)
				must(t, b.linstor.TakeSnapshot(pvc, "s1"))
				b.linstor.SetNodeFlags("node-a", linstorsim.FlagEvacuate)
				if status, said := b.call(http.MethodPut, "/v1/nodes/node-a/restore", tc.body); status != http.StatusOK {
					t.Errorf("restore answers %d %v", status, said)
				}
				pass(time.Second)
				b.wantDisks("restored", tc.disks...)
				if got := strings.Join(b.linstor.SnapshotNodes(pvc, "s1"), " "); got != tc.snapshotOn {
					t.Errorf("copies of the snapshot are on %s, want %s", got, tc.snapshotOn)
				}
			})
		})
	}
}

func TestANodeThatIsEvacuatedTakesNoNewReplica(t *testing.T) {
	t.Parallel()
	const path = "/v1/resource-definitions/pvc-1/resources/node-a"
	cases := map[string]struct{ path, body string }{
		"from who makes a volume available": {path + "/make-available", `{"diskful":false}`},
		"from who makes a diskless replica": {path, `{"resource":{"flags":["DISKLESS"]}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
				b.volume("node-b", "node-c")
				b.evacuate(http.StatusOK)
				b.wantCall(http.MethodPost, tc.path, tc.body, http.StatusInternalServerError, "error 975")
				if err := b.linstor.AddReplica(pvc, drbd.ReplicaSpec{Node: "node-a"}); !errors.Is(err, linstorsim.ErrEvacuating) {
					t.Errorf("a person gets %v", err)
				}
				b.wantDisks("then", "node-b UpToDate", "node-c UpToDate")
				b.restore()
				if status, text, _ := b.change(http.MethodPost, tc.path, tc.body); status != http.StatusOK {
					t.Errorf("restored, LINSTOR answers %d %s", status, text)
				}
			})
		})
	}
}

func TestADefinitionsPropertiesAreWrittenDown(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b")
		props := func() map[string]string {
			all := decode[struct {
				Props map[string]string `json:"props"`
			}](b, "/v1/resource-definitions/pvc-1").Props
			delete(all, linstorsim.PropQuorum)
			return all
		}
		write := func(body string) {
			t.Helper()
			if status, text, _ := b.change(http.MethodPut, "/v1/resource-definitions/pvc-1", body); status != http.StatusOK {
				t.Errorf("%s is answered with %d %s", body, status, text)
			}
		}
		write(`{"override_props":{"BalanceResourcesEnabled":"false","Aux/piraeus.io/evacuation":"node-a"}}`)
		want := map[string]string{"BalanceResourcesEnabled": "false", "Aux/piraeus.io/evacuation": "node-a"}
		if diff := cmp.Diff(want, props()); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
		for query, want := range map[string]int{"props=Aux/piraeus.io/evacuation": 1, "props=BalanceResourcesEnabled=true": 0} {
			if got := len(decode[[]any](b, "/v1/resource-definitions?"+query)); got != want {
				t.Errorf("%s finds %d definitions, want %d", query, got, want)
			}
		}
		write(`{"delete_props":["BalanceResourcesEnabled","Aux/piraeus.io/evacuation","Aux/never-there"]}`)
		if got := props(); len(got) > 0 {
			t.Errorf("deleted, left are %v", got)
		}
	})
}

func TestTheCallsOfPlannedLossAreCounted(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.volume("node-a")
		b.linstor.ResetRequests()
		b.evacuate(http.StatusOK, "done 1")
		b.restore()
		b.wantCall(http.MethodPost, autoplacePath, oneMore(""), http.StatusCreated, "done 1")
		b.wantCall(http.MethodPost, autoplacePath, oneMore(`["none"]`), http.StatusInternalServerError, "error 996")
		want := map[linstorsim.Kind]int{linstorsim.KindEvacuate: 1, linstorsim.KindRestore: 1, linstorsim.KindAutoPlace: 2}
		if diff := cmp.Diff(want, b.linstor.Requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}
