package linstorsim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func TestEachReplicaOfAnEvacuatedNode(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		// count is the group's place count; 0 means 2.
		count    int
		replicas []string
		nodes    []string
		// open is the node that uses the volume.
		open   string
		before func(*bed)
		status int
		said   []string
		// soon and late are what LINSTOR shows after a second, and after a minute.
		soon, late []string
	}{
		"moves to the tie-breaker's node, and goes when the disk there is UpToDate": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, status: http.StatusOK, said: []string{"done 3"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c SyncTarget(0.00%)"},
			late: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
		},
		"moves to the tie-breaker's node while it is used elsewhere": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, open: "node-b", status: http.StatusOK, said: []string{"done 3"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c SyncTarget(0.00%)"},
			late: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
		},
		"does not move to a diskless replica's node while it is in use": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, open: "node-a",
			status: http.StatusInternalServerError, said: []string{"error 997"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"},
			late: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"},
		},
		"moves to a new node where it is the only one": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b SyncTarget(0.00%)", "node-c" + tie + " Diskless"},
			late: []string{"node-b UpToDate"},
		},
		"is copied while it is in use where it is the only one, and stays as long": {
			count: 1, replicas: []string{"node-a"}, open: "node-a", status: http.StatusOK, said: []string{"done 1"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b SyncTarget(0.00%)", "node-c" + tie + " Diskless"},
			late: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"},
		},
		"is copied to one node only, even if the group wants more": {
			replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 1"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b SyncTarget(0.00%)", "node-c" + tie + " Diskless"},
			late: []string{"node-b UpToDate"},
		},
		"is copied although the group's place count can not be met": {
			replicas: []string{"node-a"}, nodes: []string{"node-a", "node-b"}, status: http.StatusOK, said: []string{"done 1"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b SyncTarget(0.00%)"},
			late: []string{"node-b UpToDate"},
		},
		"is deleted at once where there are enough others": {
			replicas: []string{"node-a", "node-b", "node-c"}, status: http.StatusOK, said: []string{"done 2"},
			soon: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
			late: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
		},
		"is deleted at once where it is not UpToDate": {
			replicas: []string{"node-a", "node-b"}, status: http.StatusOK, said: []string{"done 2"},
			before: func(b *bed) { must(b.t, b.cluster.SetDisk(pvc, "node-a", 0, drbd.Failed)) },
			soon:   []string{"node-b UpToDate"}, late: []string{"node-b UpToDate"},
		},
		"is deleted at once where it is not UpToDate, even if it is the last one": {
			count: 1, replicas: []string{"node-a"}, status: http.StatusOK, said: []string{"done 2"},
			before: func(b *bed) { must(b.t, b.cluster.SetDisk(pvc, "node-a", 0, drbd.Inconsistent)) },
		},
		"is not deleted where it has the last disk and a diskless replica is there": {
			count: 1, replicas: []string{"node-a", "node-b diskless"}, status: http.StatusInternalServerError, said: []string{"error 997"},
			before: func(b *bed) { must(b.t, b.cluster.SetDisk(pvc, "node-a", 0, drbd.Inconsistent)) },
			soon:   []string{"node-a EVACUATE Inconsistent", "node-b DISKLESS DRBD_DISKLESS Diskless"},
			late:   []string{"node-a EVACUATE Inconsistent", "node-b DISKLESS DRBD_DISKLESS Diskless"},
		},
		"without a disk is deleted at once, and a tie-breaker comes elsewhere": {
			replicas: []string{"node-a tie", "node-b", "node-c"}, status: http.StatusOK, said: []string{"done 2"},
			soon: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
			late: []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"},
		},
		"without a disk that is in use stays for good": {
			replicas: []string{"node-a diskless", "node-b", "node-c"}, open: "node-a",
			status: http.StatusInternalServerError, said: []string{"error 997"},
			soon: []string{"node-a DISKLESS DRBD_DISKLESS EVACUATE Diskless", "node-b UpToDate", "node-c UpToDate"},
			late: []string{"node-a DISKLESS DRBD_DISKLESS EVACUATE Diskless", "node-b UpToDate", "node-c UpToDate"},
		},
		"stays where no node can take it": {
			count: 3, replicas: []string{"node-a", "node-b", "node-c"}, nodes: []string{"node-a", "node-b", "node-c"},
			status: http.StatusOK, said: []string{"warning 1020"},
			soon: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"},
			late: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"},
		},
		"is copied where its satellite is away, for what is unknown counts as UpToDate, and stays": {
			count: 1, replicas: []string{"node-a", "node-b tie"}, status: http.StatusOK, said: []string{"done 3"},
			before: func(b *bed) { b.linstor.StopSatellite("node-a"); pass(time.Minute) },
			soon:   []string{"node-a EVACUATE", "node-b SyncTarget(0.00%)", "node-c" + tie + " Diskless"},
			late:   []string{"node-a EVACUATE", "node-b UpToDate", "node-c" + tie + " Diskless"},
		},
		"is copied where the satellites of the others are away, for what is unknown there does not count": {
			replicas: []string{"node-a", "node-b", "node-c"}, status: http.StatusOK, said: []string{"done 1"},
			before: func(b *bed) { b.linstor.StopSatellite("node-c"); pass(time.Minute) },
			soon:   []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c", "node-d SyncTarget(0.00%)"},
			late:   []string{"node-b UpToDate", "node-c", "node-d UpToDate"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: tc.count})
				b.volume(tc.replicas...)
				if tc.open != "" {
					must(t, b.cluster.Open(pvc, tc.open, false))
				}
				if tc.before != nil {
					tc.before(b)
				}
				b.evacuate(tc.status, tc.said...)
				pass(900 * time.Millisecond)
				b.wantDisks("after a second", tc.soon...)
				if tc.open == "node-a" {
					// Who was refused is not asked again.
					pass(30 * time.Second)
				}
				pass(time.Minute)
				b.wantDisks("after a minute", tc.late...)
			}, tc.nodes...)
		})
	}
}

func TestAVolumeWithoutDRBDIsNotEvacuated(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		spec := volumeNamed(pvc, "node-a")
		spec.StorageOnly = true
		must(t, b.linstor.CreateResource(spec))
		b.evacuate(http.StatusOK, "warning 1020")
		pass(time.Minute)
		b.wantDisks("for ever", "node-a EVACUATE")
	})
}

func TestARefusedEvacuationIsNotTriedAgainWhenTheVolumeIsClosed(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c tie")
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.evacuate(http.StatusInternalServerError, "error 997")
		b.cluster.Close(pvc, "node-a")
		pass(time.Hour)
		b.wantDisks("an hour later", "node-a EVACUATE UpToDate", "node-b UpToDate", "node-c"+tie+" Diskless")
	})
}

func TestOneErrorMakesAnEvacuationAnErrorAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.linstor.SetPlacement("single", linstorsim.Placement{PlaceCount: 1})
		b.volume("node-a", "node-b", "node-c tie")
		must(t, b.cluster.Open(pvc, "node-a", false))
		single, local := volumeNamed("pvc-2", "node-a"), volumeNamed("pvc-3", "node-a")
		single.Group, local.StorageOnly = "single", true
		must(t, b.linstor.CreateResource(single))
		must(t, b.linstor.CreateResource(local))
		b.evacuate(http.StatusInternalServerError, "error 997", "done 1", "warning 1020")
		pass(syncTime)
		if diff := cmp.Diff([]string{"node-b UpToDate"}, b.disksOf("pvc-2")); diff != "" {
			t.Errorf("the single replica (-want +got):\n%s", diff)
		}
	})
}

func TestWhichNodesAnEvacuationTakesForTargets(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		replicas  []string
		placement linstorsim.Placement
		version   string
		body      string
		status    int
		late      []string
	}{
		"all, whatever the group says": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 1, NodeNames: []string{"node-a", "node-d"}},
			body: `{}`, status: http.StatusOK, late: []string{"node-b UpToDate"},
		},
		"all if there is no body": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 1},
			status: http.StatusOK, late: []string{"node-b UpToDate"},
		},
		"those that are named": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 1},
			body: `{"target":["node-c"]}`, status: http.StatusOK, late: []string{"node-c UpToDate"},
		},
		"those that are not excluded": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 1},
			body: `{"do_not_target":["node-b","node-c"]}`, status: http.StatusOK, late: []string{"node-d UpToDate"},
		},
		"a diskless replica's although it is excluded, where no other diskless one is left: the list is empty, and no filter": {
			replicas: []string{"node-a", "node-b", "node-c tie"}, body: `{"do_not_target":["node-c"]}`, status: http.StatusOK,
			late: []string{"node-b UpToDate", "node-c" + tie + " Diskless", "node-d UpToDate"},
		},
		"before 1.33 all: there is no body": {
			replicas: []string{"node-a"}, placement: linstorsim.Placement{PlaceCount: 1}, version: "1.32.3",
			body: `{"do_not_target":["node-b"]}`, status: http.StatusOK, late: []string{"node-b UpToDate"},
		},
		"not both lists at once": {
			replicas: []string{"node-a"}, body: `{"target":["node-b"],"do_not_target":["node-c"]}`,
			status: http.StatusInternalServerError, late: []string{"node-a UpToDate"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true, Version: tc.version}, func(t *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, tc.placement)
				b.volume(tc.replicas...)
				if status, said := b.call(http.MethodPut, "/v1/nodes/node-a/evacuate", tc.body); status != tc.status {
					t.Errorf("answer %d %v, want %d", status, said, tc.status)
				}
				pass(time.Minute)
				b.wantDisks("after a minute", tc.late...)
			})
		})
	}
}

func TestAnUnknownNode(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"evacuate", "restore"} {
		t.Run("can not be asked to "+call, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{}, func(_ *testing.T, b *bed) {
				b.wantCall(http.MethodPut, "/v1/nodes/none/"+call, "{}", http.StatusNotFound, "error 300")
			})
		})
	}
}

func TestASecondEvacuationDuringTheSyncAddsAReplica(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		count          int
		replicas       []string
		first          string
		second, atLast []string
	}{
		"of two": {
			count: 2, replicas: []string{"node-a", "node-b", "node-c tie"}, first: "done 3",
			second: []string{
				"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c SyncTarget(48.83%)", "node-d SyncTarget(0.00%)",
				"node-e" + tie + " Diskless",
			},
			atLast: []string{"node-b UpToDate", "node-c UpToDate", "node-d UpToDate"},
		},
		"of one": {
			count: 1, replicas: []string{"node-a"}, first: "done 1",
			second: []string{"node-a EVACUATE UpToDate", "node-b SyncTarget(48.83%)", "node-d SyncTarget(0.00%)"},
			atLast: []string{"node-b UpToDate", "node-c" + tie + " Diskless", "node-d UpToDate"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true}, func(_ *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: tc.count})
				b.volume(tc.replicas...)
				b.evacuate(http.StatusOK, tc.first)
				pass(5100 * time.Millisecond)
				b.evacuate(http.StatusOK, "done 1")
				b.wantDisks("after the second call", tc.second...)
				pass(time.Minute)
				b.wantDisks("at last", tc.atLast...)
			}, "node-a", "node-b", "node-c", "node-d", "node-e")
		})
	}
}

func TestWhatAnEvacuationMarks(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c tie")
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.evacuate(http.StatusInternalServerError, "error 997")
		if got := b.propsOf("node-a")[linstorsim.PropMigrateFrom]; got != "NODE-A" {
			t.Errorf("the source says MigrateFrom=%q, want its own name in capitals", got)
		}
		if got := b.propsOf("node-c")[linstorsim.PropMigrateFrom]; got != "" {
			t.Errorf("the target of a move that was refused says MigrateFrom=%q", got)
		}
		node := decode[struct {
			Flags []string `json:"flags"`
		}](b, "/v1/nodes/node-a")
		if diff := cmp.Diff([]string{linstorsim.FlagEvacuate}, node.Flags); diff != "" {
			t.Errorf("flags of the node (-want +got):\n%s", diff)
		}
		b.restore()
		b.wantDisks("restored", "node-a UpToDate", "node-b UpToDate", "node-c"+tie+" Diskless")
		if got := b.propsOf("node-a")[linstorsim.PropMigrateFrom]; got != "NODE-A" {
			t.Errorf("after restore the source says MigrateFrom=%q, want it left", got)
		}
		b.wantCall(http.MethodPut, "/v1/nodes/node-a/restore", "{}", http.StatusInternalServerError, "error 0")
	})
}

func TestAReplicaThatSaysThatItComesFromItselfDeletesItself(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c")
		b.evacuateAndRestoreWhileBusy()
		must(t, b.linstor.ToggleDisk(pvc, "node-a", false))
		pass(time.Second)
		b.wantCall(http.MethodPost, "/v1/resource-definitions/pvc-1/autoplace",
			`{"select_filter":{"additional_place_count":1,"node_name_list":["node-a"]}}`, http.StatusCreated, "done 1")
		pass(time.Minute)
		got := strings.Join(b.disks(), ", ")
		if strings.Contains(got, "node-a UpToDate") {
			t.Errorf("the disk that was made on node-a still is there: %s", got)
		}
	})
}

// evacuateAndRestoreWhileBusy leaves the mark of an evacuation at the source: in use, it was refused.
func (b *bed) evacuateAndRestoreWhileBusy() {
	b.t.Helper()
	must(b.t, b.cluster.Open(pvc, "node-a", false))
	b.evacuate(http.StatusInternalServerError, "error 997")
	b.restore()
	b.cluster.Close(pvc, "node-a")
}
