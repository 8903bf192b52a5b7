package sim

import (
	"slices"
	"testing"
)

// attempts is how often a history is played before it counts as sound: what is due at the same instant runs in any order.
const attempts = 3

// Shrink drops steps of a history that breaks an invariant as long as the same invariant is still broken. It returns
// the numbers of the steps that are needed.
func Shrink(t *testing.T, h History, rule string) []int {
	t.Helper()
	needed := make([]int, len(h.Steps))
	for i := range needed {
		needed[i] = i
	}
	for size := max(len(needed)/2, 1); size > 0; size /= 2 {
		for from := 0; from < len(needed); {
			to := min(from+size, len(needed))
			fewer := slices.Delete(slices.Clone(needed), from, to)
			if Breaks(t, h.Only(fewer), rule) {
				needed = fewer
			} else {
				from = to
			}
		}
	}
	return needed
}

// Breaks tells whether a history breaks the invariant.
func Breaks(t *testing.T, h History, rule string) bool {
	t.Helper()
	for range attempts {
		if Run(t, h, false).broke(rule) {
			return true
		}
	}
	return false
}

// Tell plays a history until it breaks the invariant, and returns what happened; nothing if it does not.
func Tell(t *testing.T, h History, rule string) Outcome {
	t.Helper()
	for range 3 * attempts {
		if o := Run(t, h, true); o.broke(rule) {
			return o
		}
	}
	return Outcome{}
}

func (o Outcome) broke(rule string) bool {
	return slices.ContainsFunc(o.Violations, func(v Violation) bool { return v.Rule == rule })
}
