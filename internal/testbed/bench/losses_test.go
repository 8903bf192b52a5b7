package bench

import (
	"slices"
	"testing"
	"time"
)

func TestStepsAddUp(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }
	l := loss{began: at(1), promotable: at(11), marked: at(16.1), gone: at(16.2), placed: at(16.3), attached: at(17), running: at(18)}
	steps := stepMeasures([]loss{l})
	sum := 0.0
	for _, m := range steps[:len(steps)-1] {
		sum += m.Values[0]
	}
	if whole := toRunning(shipped, []loss{l}).Values[0]; round3(sum) != whole {
		t.Errorf("the steps take %v s together, the whole %v s", sum, whole)
	}
	if limit := steps[len(steps)-1].Values[0]; limit != 11.8 {
		t.Errorf("without what the controller does it takes %v s, want 11.8", limit)
	}
}

func TestALossThatIsNotOverCountsAsLongAsWasWaited(t *testing.T) {
	t.Parallel()
	began := time.Unix(0, 0)
	seen := loss{began: began, promotable: began.Add(time.Second)}
	m := toRunning(shipped, []loss{seen.giveUp(began.Add(lossTimeout)), {began: began, running: began.Add(time.Minute)}}, Limit{Worst, 18})
	if m.Of(Worst) != lossTimeout.Seconds() || m.Reached() || m.Note == "" {
		t.Errorf("measured %v, reached is %t, note %q; want the time of giving up, no, and a word about it", m.Values, m.Reached(), m.Note)
	}
	if seen.giveUp(began.Add(lossTimeout)).promotable != seen.promotable {
		t.Error("what was seen is forgotten")
	}
}

func TestEveryRowIsMeasured(t *testing.T) {
	t.Parallel()
	var known, measured []string
	for _, row := range Rows() {
		known = append(known, row.Key)
	}
	for _, g := range Groups() {
		for _, key := range g.Rows {
			if !slices.Contains(known, key) {
				t.Errorf("%s measure the row %q, which the table lacks", g.Name, key)
			}
		}
		measured = append(measured, g.Rows...)
	}
	for _, key := range known {
		if !slices.Contains(measured, key) {
			t.Errorf("nobody measures the row %q", key)
		}
	}
}

func TestAFrozenNodeOfAWorkloadThatMovedMissesItsTarget(t *testing.T) {
	t.Parallel()
	measures := freezeMeasures(variant{name: "unanimous grace 1s"}, 20, map[time.Duration]int{harmlessFreeze: 1, 10 * time.Second: 3}, never)
	var reached []bool
	for _, m := range measures {
		reached = append(reached, m.Reached())
	}
	if want := []bool{true, false, true, true}; !slices.Equal(reached, want) {
		t.Errorf("frozen for %v: targets reached are %v, want %v", freezes, reached, want)
	}
}
