package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

var (
	seeds = flag.Int("sim.seeds", 100, "how many histories are played")
	first = flag.Uint64("sim.first", 1, "the seed of the first of them")
)

func TestSimulation(t *testing.T) {
	var next atomic.Int64
	var mu sync.Mutex
	counts := map[string]int{}
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprintf("worker %d", i), func(t *testing.T) {
			t.Parallel()
			for {
				n := next.Add(1) - 1
				if n >= int64(*seeds) {
					return
				}
				h := sim.Generate(*first + uint64(n))
				o := sim.Run(t, h, false)
				mu.Lock()
				for k, v := range o.Counts {
					counts[k] += v
				}
				mu.Unlock()
				for _, v := range o.Violations {
					t.Errorf("seed %d: %s", h.Seed, v)
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%7d %s", counts[k], k)
		}
	})
}
