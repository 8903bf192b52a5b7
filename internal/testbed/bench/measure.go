package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Statistic names a figure that a target is set for.
type Statistic string

// The statistics of a Measure.
const (
	Median Statistic = "median"
	Worst  Statistic = "worst"
	P99    Statistic = "p99"
)

// Limit is a target: the statistic must not exceed Max, in the measure's unit.
type Limit struct {
	Of  Statistic `json:"of"`
	Max float64   `json:"max"`
}

// Measure is one thing measured several times under the same conditions.
type Measure struct {
	// What was measured, and under which conditions.
	What string `json:"what"`
	// Unit of the values: "s", "ms", "MiB", "%", "×", or empty for a count.
	Unit string `json:"unit"`
	// Values in the order in which they were measured.
	Values []float64 `json:"values"`
	// Limits are the targets; none for a baseline or where none is set.
	Limits []Limit `json:"limits,omitempty"`
	// Baseline marks what the others of the row are compared with.
	Baseline bool `json:"baseline,omitempty"`
	// Note says what else is to be known of it.
	Note string `json:"note,omitempty"`
}

// Of returns a statistic of the values; NaN where there are none.
func (m *Measure) Of(s Statistic) float64 {
	values := slices.Sorted(slices.Values(m.Values))
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	switch s {
	case Median:
		return (values[(n-1)/2] + values[n/2]) / 2
	case P99:
		return values[int(math.Ceil(0.99*float64(n)))-1]
	default:
		return values[n-1]
	}
}

// Reached tells whether all limits are kept. Without values none is.
func (m *Measure) Reached() bool {
	for _, limit := range m.Limits {
		if value := m.Of(limit.Of); math.IsNaN(value) || value > limit.Max {
			return false
		}
	}
	return true
}

// seconds returns a measure of durations.
func seconds(what string, took []time.Duration, limits ...Limit) Measure {
	m := Measure{What: what, Unit: "s", Limits: limits}
	for _, d := range took {
		m.Values = append(m.Values, round3(d.Seconds()))
	}
	return m
}

// baseline marks a measure as what others are compared with.
func baseline(m Measure) Measure {
	m.Baseline = true
	return m
}

// count returns a measure of a single number.
func count(what string, n int, limits ...Limit) Measure {
	return Measure{What: what, Values: []float64{float64(n)}, Limits: limits}
}

// never is the limit of what must not happen at all.
var never = Limit{Worst, 0}

// share says how many of all.
func share(n, all int) string { return fmt.Sprintf("%d of %d", n, all) }

// round3 rounds to three digits after the point, so that nobody takes more for measured.
func round3(x float64) float64 { return math.Round(x*1000) / 1000 }
