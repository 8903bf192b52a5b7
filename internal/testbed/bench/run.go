package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Groups returns all groups: calm ones first, then those that need the machine for themselves.
func Groups() []Group {
	return []Group{
		groupShipped, groupWithoutTaints, groupWithoutFast, groupLeader, groupPair, groupFreeze, groupFreezePatient, groupNoGrace, groupWithoutEarly,
		groupWithoutShort, groupNotice, groupMeasured,
		groupMass, groupStock, groupThousand, groupScale,
	}
}

// Run measures the rows of the given keys and returns them. Where a group failed, its rows are missing, and
// the error says why.
func Run(ctx context.Context, s Settings, keys []string) (Results, error) {
	var mu sync.Mutex
	var failures []error
	results, failed := Results{}, map[string]bool{}
	measure := func(g Group) {
		began := time.Now()
		_, _ = fmt.Fprintf(s.Log, "%s  begin: %s\n", began.Format(time.TimeOnly), g.Name)
		seen, err := g.run(ctx, s)
		mu.Lock()
		defer mu.Unlock()
		took := time.Since(began).Round(time.Second)
		if err != nil {
			_, _ = fmt.Fprintf(s.Log, "%s  FAILED: %s after %s: %v\n", time.Now().Format(time.TimeOnly), g.Name, took, err)
			failures = append(failures, fmt.Errorf("%s: %w", g.Name, err))
			for _, key := range g.Rows {
				failed[key] = true
			}
			return
		}
		_, _ = fmt.Fprintf(s.Log, "%s  end: %s, %s\n", time.Now().Format(time.TimeOnly), g.Name, took)
		for key, measures := range seen {
			results[key] = append(results[key], measures...)
		}
	}
	var calm errgroup.Group
	calm.SetLimit(max(s.Parallel, 1))
	var busy []Group
	for _, g := range Groups() {
		switch {
		case !slices.ContainsFunc(g.Rows, func(key string) bool { return slices.Contains(keys, key) }):
		case g.Calm:
			calm.Go(func() error { measure(g); return nil })
		default:
			busy = append(busy, g)
		}
	}
	_ = calm.Wait()
	for _, g := range busy {
		measure(g)
	}
	for key := range results {
		if failed[key] || !slices.Contains(keys, key) {
			delete(results, key)
		}
	}
	finish(results)
	return results, errors.Join(failures...)
}

// finish puts what was measured before what it is compared with.
func finish(results Results) {
	for _, measures := range results {
		slices.SortStableFunc(measures, func(a, b Measure) int {
			switch {
			case a.Baseline == b.Baseline:
				return 0
			case b.Baseline:
				return -1
			default:
				return 1
			}
		})
	}
}
