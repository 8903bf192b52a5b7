package linstorsim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func TestTheWaitForAMove(t *testing.T) {
	t.Parallel()
	moved := []string{"node-b UpToDate", "node-c UpToDate", "node-d" + tie + " Diskless"}
	stayed := []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"}
	cases := map[string]struct {
		// during happens in the middle of the sync.
		during func(*bed)
		late   []string
	}{
		"ends with the deletion of the source":                {func(*bed) {}, moved},
		"survives restore, and deletes a source without flag": {func(b *bed) { b.restore() }, []string{"node-a" + tie + " Diskless", "node-b UpToDate", "node-c UpToDate"}},
		"is forgotten by a LINSTOR that restarts":             {func(b *bed) { b.linstor.Restart() }, stayed},
		"ends silently when the source's satellite disconnects": {func(b *bed) {
			b.linstor.StopSatellite("node-a")
			pass(time.Second)
			b.linstor.RestoreSatellite("node-a")
		}, stayed},
		"ends silently when the target's satellite disconnects": {func(b *bed) {
			b.linstor.StopSatellite("node-c")
			pass(time.Second)
			b.linstor.RestoreSatellite("node-c")
		}, stayed},
		"goes on when another satellite disconnects": {func(b *bed) {
			b.linstor.StopSatellite("node-b")
			pass(time.Second)
			b.linstor.RestoreSatellite("node-b")
		}, moved},
		"goes on while a satellite is silent for a moment": {func(b *bed) {
			b.linstor.CutSatellite("node-c")
			pass(time.Second)
			b.linstor.RestoreSatellite("node-c")
		}, moved},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true}, func(_ *testing.T, b *bed) {
				b.volume("node-a", "node-b", "node-c tie")
				b.evacuate(http.StatusOK, "done 3")
				pass(5 * time.Second)
				tc.during(b)
				pass(2 * time.Minute)
				b.wantDisks("at last", tc.late...)
			})
		})
	}
}

func TestAMoveDeletesItsSourceWithoutASecondLookAtTheTarget(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{}, func(t *testing.T, b *bed) {
		b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: 1})
		b.volume("node-a")
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.evacuate(http.StatusOK, "done 1")
		pass(syncTime)
		b.wantDisks("in use", "node-a EVACUATE UpToDate", "node-b UpToDate")
		b.restore()
		must(t, b.cluster.SetDisk(pvc, "node-b", 0, "Failed"))
		b.cluster.Close(pvc, "node-a")
		pass(time.Second)
		b.wantDisks("closed", "node-b Failed")
	})
}

func TestTheTargetOfAMoveSaysWhereItComesFromUntilItIsDone(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c tie")
		b.evacuate(http.StatusOK, "done 3")
		if got := b.propsOf("node-c"); got[linstorsim.PropMigrateFrom] != "NODE-A" || got["DiskfulBy"] != "auto-placer" {
			t.Errorf("on the way it says %v", got)
		}
		pass(syncTime)
		if got := b.propsOf("node-c"); got[linstorsim.PropMigrateFrom] != "" || got["DiskfulBy"] != "auto-placer" {
			t.Errorf("at last it says %v", got)
		}
	})
}
