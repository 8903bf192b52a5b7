package bench

import (
	"context"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// groupMeasured plays single losses with a DRBD that notices as a real one was seen to.
var groupMeasured = Group{
	Name: "single losses, DRBD as measured", Rows: []string{rowMeasuredCrash.Key, rowMeasuredCut.Key}, Calm: true,
	run: func(ctx context.Context, s Settings) (Results, error) {
		seen, err := play{
			variant: shipped, slug: "measured", bed: bed.Options{DRBDMeasured: true}, crashes: s.Runs, cuts: true,
		}.run(ctx, s)
		if err != nil {
			return nil, err
		}
		return Results{
			rowMeasuredCrash.Key: {
				toRunning(shipped, seen.crashes),
				seconds("crash → a survivor may be promoted", between(seen.crashes, began, promotable)),
			},
			rowMeasuredCut.Key: append([]Measure{
				seconds("cut → Running, "+shipped.name, between(seen.cuts, began, running)),
				seconds("cut → a survivor may be promoted", between(seen.cuts, began, promotable)),
			}, measuredCuts(seen.cuts)...),
		}, nil
	},
}

// measuredCuts are the measures of cuts that a Primary may notice later than its peers: until it does, it is healthy to everybody.
func measuredCuts(cuts []loss) []Measure {
	measures := cutMeasures(shipped, cuts)
	measures[1].Limits = []Limit{never}
	return measures
}

// groupNotice plays single crashes with a DRBD that notices sooner. How it is with the usual one is known from groupShipped.
var groupNotice = Group{
	Name: "single losses, DRBD notices sooner", Rows: []string{rowNotice.Key}, Calm: true,
	run: func(ctx context.Context, s Settings) (Results, error) {
		var measures []Measure
		for _, after := range []time.Duration{3 * time.Second, 6 * time.Second} {
			v := variant{name: "DRBD notices after " + after.String()}
			seen, err := play{
				variant: v, slug: "notice-" + after.String(), bed: bed.Options{DRBDDetection: after}, crashes: s.Runs,
			}.run(ctx, s)
			if err != nil {
				return nil, err
			}
			measures = append(measures, toRunning(v, seen.crashes))
		}
		return Results{rowNotice.Key: measures}, nil
	},
}
