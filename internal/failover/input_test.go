package failover

import (
	"math"
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ gap, want time.Duration }{
		"as long as is asked for, where nothing is known of the gap": {0, 20 * time.Second},
		"no shorter for a kubelet that renews more often":            {usualGap / 2, 20 * time.Second},
		"as long as is asked for, where it renews as is usual":       {usualGap, 20 * time.Second},
		"twice as long for one that renews half as often":            {2 * usualGap, 40 * time.Second},
		"no longer than can be told, however rarely it renews":       {math.MaxInt64, math.MaxInt64 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// It is reckoned in floating point.
			if got := (Node{LeaseGap: c.gap}).Patience(20 * time.Second); (got - c.want).Abs() > time.Microsecond {
				t.Errorf("Patience = %s, want %s", got, c.want)
			}
		})
	}
}
