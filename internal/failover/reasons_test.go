package failover

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every reason that is documented can be reached from the tables, but for those that only the acting side can find: the
// stories of the controllers reach these, and for the one that is only foreseen.
func TestEveryReasonIsReached(t *testing.T) {
	t.Parallel()

	reached := map[Reason]bool{KeepAwayFailed: true, StepFailed: true, StuckOnNode: true, HeldByFinalizer: true, NoReadyNode: true}
	for _, table := range []map[string]scenario{verdictScenarios(), gateScenarios()} {
		for _, s := range table {
			reached[Decide(s.input()).Reason] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(Reasons())), slices.Sorted(maps.Keys(reached))); diff != "" {
		t.Errorf("reasons (-explained +reached):\n%s", diff)
	}
}
