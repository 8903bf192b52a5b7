package sim_test

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// In so many percent of the histories there must be each kind, and a node that leaves on purpose.
const (
	leastOfKind  = 2.0
	leastLeaving = 100.0 / 3
)

// TestEachKindIsDrawnOften draws many histories and plays none. That says how the generator draws: among the thousand that are played, a
// rare kind would be too rare now and then by chance.
func TestEachKindIsDrawnOften(t *testing.T) {
	t.Parallel()
	drawn := newTally()
	for seed := range uint64(20_000) {
		drawn.add(sim.Generate(seed+1), sim.Outcome{})
	}
	if share := drawn.share(drawn.leaving); share < leastLeaving {
		t.Errorf("in only %.1f %% of the histories a node leaves on purpose, of %.1f %% that must be", share, leastLeaving)
	}
	for _, kind := range sim.Kinds {
		if share := drawn.share(drawn.kinds[kind]); share < leastOfKind {
			t.Errorf("only %.1f %% of the histories were drawn with %q, of which %.0f %% must be", share, kind, leastOfKind)
		}
	}
}
