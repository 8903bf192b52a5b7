//go:build race

package sim_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain leaves the histories one processor. Go 1.26 has one race context for all timers of a bubble of testing/synctest, and
// counts calls in it without a lock: where one thread fires timers while another takes from the channel of one that is due, the
// detector itself may end the process with a SIGSEGV in StackDepotBase::Put.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
