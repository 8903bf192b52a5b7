package soak

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

func TestWhatGrowsIsToldFromWhatDoesNot(t *testing.T) {
	t.Parallel()
	const minutes = 12
	flat := func(int) float64 { return 10 << 20 }
	for name, tc := range map[string]struct {
		goroutines, heap, leads func(minute int) float64
		lives, growing          int
	}{
		"a process that takes the same all the time":   {goroutines: func(int) float64 { return 100 }, heap: flat, lives: 1},
		"one whose heap goes up and down":              {goroutines: func(int) float64 { return 100 }, heap: func(m int) float64 { return float64(10+m%3*10) * mebibyte }, lives: 1},
		"one that is busy at first":                    {goroutines: func(m int) float64 { return float64(1000 / (m + 1)) }, heap: flat, lives: 1},
		"one that leaks goroutines":                    {goroutines: func(m int) float64 { return float64(100 + 10*m) }, heap: flat, lives: 1, growing: 1},
		"one that leaks memory":                        {goroutines: func(int) float64 { return 100 }, heap: func(m int) float64 { return float64(10+m) * mebibyte }, lives: 1, growing: 1},
		"one that becomes a leader, which takes more":  {goroutines: func(m int) float64 { return float64(100 + m/6*200) }, heap: flat, leads: func(m int) float64 { return float64(m / 6) }, lives: 2},
		"one that leads again and again, and not long": {goroutines: func(int) float64 { return 100 }, heap: flat, leads: func(m int) float64 { return float64(m % 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.leads == nil {
				tc.leads = func(int) float64 { return 0 }
			}
			began := time.Now()
			var all []footprint
			for i := range minutes * 4 {
				all = append(all, footprint{
					at: began.Add(time.Duration(i) * footprintInterval), goroutines: tc.goroutines(i / 4), heap: tc.heap(i / 4), leads: tc.leads(i / 4),
				})
			}
			got, growing := lives(bed.ControllerProcess{Pod: "pod", PID: 1}, all), 0
			for _, l := range got {
				if l.grows() {
					growing++
				}
			}
			if len(got) != tc.lives || growing != tc.growing {
				t.Errorf("%d of %d lives grow, want %d of %d: %v", growing, len(got), tc.growing, tc.lives, got)
			}
		})
	}
}
