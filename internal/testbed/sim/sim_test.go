package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

var (
	seeds  = flag.Int("sim.seeds", 100, "how many histories are played")
	first  = flag.Uint64("sim.first", 1, "the seed of the first of them")
	only   = flag.String("sim.only", "", "the numbers of the only steps that happen, with commas; - is none")
	unique = flag.Int("sim.failures", 5, "after how many failing histories to stop")
)

// TestSimulation plays the histories of many seeds. One that breaks an invariant is shrunk and told as a story.
func TestSimulation(t *testing.T) {
	var next, failed atomic.Int64
	total := sim.Outcome{Counts: map[string]int{}}
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprintf("worker %d", i), func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1) - 1; n < int64(*seeds) && failed.Load() < int64(*unique); n = next.Add(1) - 1 {
					h := sim.Generate(*first + uint64(n))
					o := sim.Run(t, h, false)
					mu.Lock()
					for what, count := range o.Counts {
						total.Counts[what] += count
					}
					mu.Unlock()
					if len(o.Violations) > 0 {
						failed.Add(1)
						report(t, h, o)
					}
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(total.Counts)) {
		t.Logf("%8d %s", total.Counts[what], what)
	}
}

// report fails the test with the shrunk story of a history.
func report(t *testing.T, h sim.History, o sim.Outcome) {
	t.Helper()
	rule := o.Violations[0].Rule
	steps := sim.Shrink(t, h, rule)
	told := sim.Tell(t, h.Only(steps), rule)
	t.Errorf("seed %d: %s\n%s\n%s\nreplay: make sim SEED=%d ONLY=%s",
		h.Seed, o.Violations[0], h.Only(steps), strings.Join(told.Story, "\n"), h.Seed, numbers(steps))
}

func numbers(steps []int) string {
	if len(steps) == 0 {
		return "-"
	}
	var words []string
	for _, step := range steps {
		words = append(words, strconv.Itoa(step))
	}
	return strings.Join(words, ",")
}
