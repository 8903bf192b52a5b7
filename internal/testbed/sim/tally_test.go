package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// tally is what many histories have come to.
type tally struct {
	histories int
	// counts says how often what happened; kinds and excuses in how many histories.
	counts  map[string]int
	kinds   map[sim.Kind]int
	excuses map[string]int
	// asked counts the histories in which a pod had to be moved in time, freed those in which one did not have to, by why.
	asked int
	// leaving counts the histories in which a node leaves on purpose.
	leaving int
	freed   map[string]int
	broken  map[string][]uint64
}

func newTally() *tally {
	return &tally{counts: map[string]int{}, kinds: map[sim.Kind]int{}, excuses: map[string]int{}, freed: map[string]int{}, broken: map[string][]uint64{}}
}

func (a *tally) add(h sim.History, o sim.Outcome) {
	a.histories++
	for what, count := range o.Counts {
		a.counts[what] += count
	}
	for _, kind := range h.Kinds {
		a.kinds[kind]++
	}
	for _, excuse := range o.Excuses {
		a.excuses[excuse]++
	}
	if o.Asked {
		a.asked++
	}
	if h.World.Planned.Is {
		a.leaving++
	}
	for _, why := range o.Freed {
		a.freed[why]++
	}
	if len(o.Violations) > 0 {
		rule := o.Violations[0].Rule
		a.broken[rule] = append(a.broken[rule], h.Seed)
	}
}

// share is which part of the histories a number is, in percent.
func (a *tally) share(count int) float64 { return 100 * float64(count) / float64(max(a.histories, 1)) }

func (a *tally) print(t *testing.T) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(a.counts)) {
		t.Logf("%8d %s", a.counts[what], what)
	}
	t.Log("kinds, by the histories in which they were drawn:")
	for _, kind := range sim.Kinds {
		t.Log(a.line(a.kinds[kind], string(kind)))
	}
	t.Log("excuses, by the histories in which they were needed:")
	for _, excuse := range sim.Excuses {
		t.Log(a.line(a.excuses[excuse], excuse))
	}
	t.Log(a.line(a.leaving, "a node leaves on purpose, and gets so far:"))
	for _, what := range []string{sim.ReachedSafe, sim.ReachedLeaving, sim.ReachedEvacuated, sim.ReachedReturned} {
		t.Log(a.line(a.counts[what], what))
	}
	t.Log(a.line(a.asked, "a pod had to be moved in time"))
	for _, why := range slices.Sorted(maps.Keys(a.freed)) {
		t.Log(a.line(a.freed[why], "a pod that had lost a volume need not be moved in time, because "+why))
	}
	for _, rule := range slices.Sorted(maps.Keys(a.broken)) {
		t.Log(a.line(len(a.broken[rule]), fmt.Sprintf("broken: %s: seeds %v", rule, a.broken[rule])))
	}
}

func (a *tally) line(count int, what string) string {
	return fmt.Sprintf("%8d %5.1f %% %s", count, a.share(count), what)
}

// In so many of the histories a pod must have to be moved in time, and under each excuse there may be no more.
const (
	leastAsked    = 10.0
	mostOfExcuses = 2.0
)

// check fails the test where the histories do not reach what they must, or too many of them were excused.
func (a *tally) check(t *testing.T) {
	t.Helper()
	for _, what := range reached {
		if a.counts[what] == 0 {
			t.Errorf("none of the histories has led to %q", what)
		}
	}
	if share := a.share(a.asked); share < leastAsked {
		t.Errorf("in only %.1f %% of the histories a pod had to be moved in time, of %.0f %% that must be", share, leastAsked)
	}
	for _, excuse := range sim.Excuses {
		if share := a.share(a.excuses[excuse]); share > mostOfExcuses {
			t.Errorf("%.1f %% of the histories were excused because %s, and only %.0f %% may be", share, excuse, mostOfExcuses)
		}
	}
}
