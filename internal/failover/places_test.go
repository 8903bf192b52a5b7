package failover

import (
	"strings"
	"testing"
)

func TestWhyANodeCouldNotRunAPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		place Place
		want  string // what the obstacle contains
	}{
		"a volume cannot be used there":   {Place{Volume: "pv-1"}, "volume pv-1"},
		"LINSTOR places nothing there":    {Place{Unattachable: "pv-1"}, "places none"},
		"the pod's affinity":              {Place{Unwanted: true}, "affinity"},
		"other pods":                      {Place{Crowded: true}, "anti-affinity"},
		"a cordon":                        {Place{Cordoned: true}, "cordoned"},
		"it is not ready":                 {Place{NotReady: true}, "not ready"},
		"a taint":                         {Place{Taint: "dedicated"}, "taint dedicated"},
		"what lasts comes before a taint": {Place{Volume: "pv-1", Taint: "dedicated", Cordoned: true}, "volume pv-1"},
	} {
		if got := c.place.Obstacle(); got == "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want something with %q", name, got, c.want)
		}
	}
	if got := (Place{}).Obstacle(); got != "" {
		t.Errorf("a node without any: %q", got)
	}
}
