package bench

import (
	"math"
	"slices"
	"testing"
)

// upTo returns 1 to n, the greatest first.
func upTo(n int) []float64 {
	var values []float64
	for i := n; i > 0; i-- {
		values = append(values, float64(i))
	}
	return values
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values             []float64
		median, worst, p99 float64
	}{
		"of a single value all are that value":                    {upTo(1), 1, 1, 1},
		"the median of an odd number is the one in the middle":    {upTo(5), 3, 5, 5},
		"the median of an even number is between two":             {upTo(4), 2.5, 4, 4},
		"of fifty the 99th percentile is the worst":               {upTo(50), 25.5, 50, 50},
		"of a thousand the 99th percentile leaves out the top 10": {upTo(1000), 500.5, 1000, 990},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Measure{Values: test.values}
			before := slices.Clone(m.Values)
			if median, worst, p99 := m.Of(Median), m.Of(Worst), m.Of(P99); median != test.median || worst != test.worst || p99 != test.p99 {
				t.Errorf("median %v, worst %v, p99 %v; want %v, %v, %v", median, worst, p99, test.median, test.worst, test.p99)
			}
			if !slices.Equal(m.Values, before) {
				t.Error("the order of the values changed")
			}
		})
	}
}

func TestReached(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		measure Measure
		want    bool
	}{
		"a limit that is met exactly is reached":     {Measure{Values: upTo(3), Limits: []Limit{{Worst, 3}}}, true},
		"a worst value above the limit is not":       {Measure{Values: upTo(4), Limits: []Limit{{Median, 3}, {Worst, 3}}}, false},
		"a median above the limit is not":            {Measure{Values: upTo(4), Limits: []Limit{{Median, 2}, {Worst, 4}}}, false},
		"what must never happen and did is not":      {Measure{Values: []float64{0, 1}, Limits: []Limit{never}}, false},
		"what was never measured reaches no limit":   {Measure{Limits: []Limit{{Worst, 3}}}, false},
		"what could not be measured reaches none":    {Measure{Values: []float64{math.NaN()}, Limits: []Limit{{Worst, 3}}}, false},
		"an unbounded value does not reach a limit":  {Measure{Values: []float64{math.Inf(1)}, Limits: []Limit{{Worst, 3}}}, false},
		"without a limit there is nothing to exceed": {Measure{Values: upTo(4)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.measure.Reached(); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestWhatIsComparedWithComesLast(t *testing.T) {
	t.Parallel()
	results := Results{rowCrash.Key: {{What: "a", Baseline: true}, {What: "b"}, {What: "c", Baseline: true}, {What: "d"}}}
	finish(results)
	var order []string
	for _, m := range results[rowCrash.Key] {
		order = append(order, m.What)
	}
	if !slices.Equal(order, []string{"b", "d", "a", "c"}) {
		t.Errorf("measures are in the order %v, want baselines last", order)
	}
}
