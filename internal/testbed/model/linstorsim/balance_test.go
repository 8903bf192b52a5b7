package linstorsim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func TestBalancing(t *testing.T) {
	t.Parallel()
	three := []string{"node-a UpToDate", "node-b UpToDate", "node-c UpToDate"}
	// A surplus disk on the last node becomes the tie-breaker that LINSTOR wants then.
	two := []string{"node-a UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"}
	cases := map[string]struct {
		replicas []string
		before   func(*bed)
		// after is when the next look is taken; the minutes before, nothing has changed.
		after time.Duration
		late  []string
	}{
		"takes away what is too much, once an hour": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: two,
		},
		"not before the hour has passed": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 59 * time.Minute, late: three,
		},
		"as often as the controller's property says, if the grace period does too": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 3 * time.Minute, late: two,
			before: func(b *bed) {
				b.linstor.SetControllerProperty(linstorsim.PropBalanceInterval, "60")
				b.linstor.SetControllerProperty(linstorsim.PropBalanceGracePeriod, "60")
				b.linstor.Restart() // the run that is planned already is an hour away
			},
		},
		"not while a replica is younger than the grace period": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: three,
			before: func(b *bed) { b.linstor.SetControllerProperty(linstorsim.PropBalanceGracePeriod, "7200") },
		},
		"not what is in use": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute,
			before: func(b *bed) { must(b.t, b.cluster.Open(pvc, "node-c", false)) },
			late:   []string{"node-a UpToDate", "node-b" + tie + " Diskless", "node-c UpToDate"},
		},
		"not where the definition's property says so": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: three,
			before: func(b *bed) { b.linstor.SetDefinitionProperty(pvc, linstorsim.PropBalance, "false") },
		},
		"where the definition's property says so although the group's does not": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: two,
			before: func(b *bed) {
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropBalance, "true")
				b.linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropBalance, "false")
			},
		},
		"not where the group's property says so": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: three,
			before: func(b *bed) { b.linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropBalance, "false") },
		},
		"not where the controller's property says so": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute, late: three,
			before: func(b *bed) { b.linstor.SetControllerProperty(linstorsim.PropBalance, "False") },
		},
		"adds what is missing": {
			replicas: []string{"node-a"}, after: 61 * time.Minute, late: two,
		},
		"takes away the copy of a replica that is to leave": {
			replicas: []string{"node-a", "node-b", "node-c"}, after: 61 * time.Minute,
			before: func(b *bed) {
				must(b.t, b.cluster.Open(pvc, "node-a", false))
				b.linstor.SetNodeFlags("node-a", linstorsim.FlagEvacuate)
				b.linstor.SetResourceFlags(pvc, "node-a", linstorsim.FlagEvacuate)
			},
			late: []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"},
		},
		"nothing of a definition without an UpToDate disk": {
			replicas: []string{"node-a"}, after: 61 * time.Minute, late: []string{"node-a Failed"},
			before: func(b *bed) { must(b.t, b.cluster.SetDisk(pvc, "node-a", 0, drbd.Failed)) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true, Balancing: true}, func(_ *testing.T, b *bed) {
				b.volume(tc.replicas...)
				if tc.before != nil {
					tc.before(b)
				}
				pass(tc.after)
				b.wantDisks("at last", tc.late...)
			}, "node-a", "node-b", "node-c")
		})
	}
}

func TestBalancingTakesAwayACopyThatWaitsForItsPod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		enabled string
		late    []string
	}{
		"unless it is told to let it be": {"false", []string{"node-a EVACUATE UpToDate", "node-b UpToDate", "node-c" + tie + " Diskless"}},
		"where nothing is said":          {"", []string{"node-a EVACUATE UpToDate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, linstorsim.Options{TieBreakers: true, Balancing: true}, func(t *testing.T, b *bed) {
				b.linstor.SetPlacement(linstorsim.DefaultGroup, linstorsim.Placement{PlaceCount: 1})
				b.volume("node-a")
				must(t, b.cluster.Open(pvc, "node-a", false))
				b.linstor.SetDefinitionProperty(pvc, linstorsim.PropBalance, tc.enabled)
				b.evacuate(http.StatusOK, "done 1")
				pass(3 * time.Hour)
				b.wantDisks("three hours later", tc.late...)
			}, "node-a", "node-b", "node-c")
		})
	}
}

func TestNothingIsBalancedWhereItIsNotAskedFor(t *testing.T) {
	t.Parallel()
	planned(t, linstorsim.Options{TieBreakers: true}, func(_ *testing.T, b *bed) {
		b.volume("node-a", "node-b", "node-c")
		pass(24 * time.Hour)
		b.wantDisks("a day later", "node-a UpToDate", "node-b UpToDate", "node-c UpToDate")
	})
}
