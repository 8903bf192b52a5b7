package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

var foretold = flag.Int("sim.foretold", 40, "of how many histories forecasts are compared with what happens")

// What a forecast says of a pod is what becomes of it when its node crashes, but for one in twenty: docs/check.md says what a forecast cannot know.
func TestForecastsOfHistoriesComeTrue(t *testing.T) {
	if *seed != 0 {
		told, story := sim.Foretell(t, sim.Generate(*seed), true)
		t.Logf("%s\n%+v", strings.Join(story, "\n"), told)
		return
	}
	if testing.Short() {
		*foretold = min(*foretold, 10)
	}
	var next atomic.Uint64
	var mu sync.Mutex
	counts, known, wrong := map[string]int{}, 0, 0
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for s := next.Add(1); s <= uint64(*foretold); s = next.Add(1) {
					told, _ := sim.Foretell(t, sim.Generate(s), false)
					mu.Lock()
					for _, f := range told {
						counts[fmt.Sprintf("foretold %s, removed %t", f.Verdict, f.Removed)]++
						is, said := f.True()
						if said {
							known++
						}
						if said && !is {
							wrong++
							t.Logf("seed %d: %s was foretold %s %s (%s), removed %t, its Events: %v", s, f.Pod, f.Verdict, f.Reason, f.Message, f.Removed, f.Events)
						}
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d  %s", counts[what], what)
	}
	t.Logf("%d of %d forecasts did not come true", wrong, known)
	const rate = 20
	if wrong*rate > known {
		t.Errorf("more than one in %d", rate)
	}
}
