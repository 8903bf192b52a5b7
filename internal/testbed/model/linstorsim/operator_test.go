package linstorsim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func TestAnOperator(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		before func(*bed)
		// after is how long after the evacuation LINSTOR is looked at.
		after time.Duration
		want  []string
	}{
		"undoes an evacuation at its next look": {
			func(*bed) {}, 61 * time.Second, []string{"node-a UpToDate", "node-b UpToDate", "node-c UpToDate"},
		},
		"does nothing before": {
			func(*bed) {}, 59 * time.Second, []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"},
		},
		"does nothing while the node is not ONLINE": {
			func(b *bed) { b.linstor.StopSatellite("node-a") }, 3 * time.Minute,
			[]string{"node-a EVACUATE", "node-b UpToDate", "node-c UpToDate"},
		},
		"does nothing while LINSTOR is away": {
			func(b *bed) { b.linstor.Stop(); time.AfterFunc(65*time.Second, b.linstor.Start) }, 110 * time.Second,
			[]string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"},
		},
		"does nothing once it is gone": {
			func(b *bed) { b.linstor.SetOperator(0) }, time.Hour,
			[]string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c UpToDate"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{}, func(_ *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: 3})
				b.volume("node-a", "node-b", "node-c")
				b.linstor.SetOperator(time.Minute)
				b.evacuate(http.StatusOK, "warning 1020")
				tc.before(b)
				pass(tc.after)
				b.wantDisks("then", tc.want...)
			}, "node-a", "node-b", "node-c")
		})
	}
}

func TestAMoveGoesOnAfterTheOperatorHasRestoredTheNode(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(t *testing.T, b *bed) {
		b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: 1})
		b.volume("node-a")
		must(t, b.cluster.Open(pvc, "node-a", false))
		b.linstor.SetOperator(time.Minute)
		b.evacuate(http.StatusOK, "done 1")
		pass(5 * time.Minute)
		b.wantDisks("restored and in use", "node-a UpToDate", "node-b UpToDate", "node-c"+tie+" Diskless")
		b.cluster.Close(pvc, "node-a")
		pass(time.Minute)
		b.wantDisks("closed", "node-b UpToDate")
	})
}
