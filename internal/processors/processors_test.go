package processors

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// The number of processors is the whole process's: none of these tests is parallel.

func TestAStandbyHasOneProcessorUntilItLeads(t *testing.T) { //nolint:paralleltest // see above
	all := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(all) })
	runtime.SetDefaultGOMAXPROCS()
	byDefault := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		elected := make(chan struct{})
		go func() { _ = Standby{elected}.Start(t.Context()) }()
		synctest.Wait()
		if got := runtime.GOMAXPROCS(0); got != 1 {
			t.Errorf("%d processors while it does not lead", got)
		}
		close(elected)
		synctest.Wait()
		if got := runtime.GOMAXPROCS(0); got != byDefault {
			t.Errorf("%d processors while it leads, want %d", got, byDefault)
		}
	})
}

func TestAStandbyThatStopsLeavesNothingBehind(t *testing.T) { //nolint:paralleltest // see above
	all := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(all) })
	runtime.SetDefaultGOMAXPROCS()
	byDefault := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = Standby{make(chan struct{})}.Start(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if got := runtime.GOMAXPROCS(0); got != byDefault {
			t.Errorf("%d processors after the end, want %d", got, byDefault)
		}
	})
}
