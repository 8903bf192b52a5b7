package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// clocks are clocks that jump, by how they do: that of the API server, and that of a node.
var clocks = map[string]func(w *world, by time.Duration){
	"of the API server": func(w *world, by time.Duration) { w.API.SetClock(by) },
	"of the node":       func(w *world, by time.Duration) { w.SetClock(nodeA, by) },
}

// whileClocksJump tells a story once for each clock and jump: before this process starts, before the volume is there, and right before the fault.
func whileClocksJump(t *testing.T, tell func(w *world, jump func(at int))) {
	t.Helper()
	for whose, set := range clocks {
		for _, by := range []time.Duration{-2 * time.Hour, -10 * time.Minute, 10 * time.Minute, 2 * time.Hour} {
			for when := range 3 {
				t.Run(fmt.Sprintf("the clock %s jumps by %s, at moment %d", whose, by, when), func(t *testing.T) {
					inWorld(t, virtual.Options{}, func(w *world) {
						jump := func(at int) {
							if at == when {
								set(w, by)
							}
						}
						jump(0)
						w.startProcess("one", defaults()).leads()
						tell(w, jump)
					})
				})
			}
		}
	}
}

func TestAFailOverTakesAsLongWhileClocksJump(t *testing.T) {
	t.Parallel()
	whileClocksJump(t, func(w *world, jump func(at int)) {
		jump(1)
		w.volume("db")
		w.workload("db", selected)
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA)
		jump(2)
		w.Crash(nodeA)
		w.until(15*time.Second, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
		w.until(15*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAPodThatNeverRanWaitsAsLongWhileClocksJump(t *testing.T) {
	t.Parallel()
	whileClocksJump(t, func(w *world, jump func(at int)) {
		w.volume("db")
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.pass(30 * time.Second)
		jump(1)
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes, workload.Tolerant = []string{nodeA}, true })
		jump(2)
		if took := w.untilRemoved(2*time.Minute, "db-0"); took < 44*time.Second || took > 50*time.Second {
			w.Errorf("the pod is removed after %s, want the known grace", took)
		}
	})
}

func TestADemotedVolumeIsMovedAsSoonWhileClocksJump(t *testing.T) {
	t.Parallel()
	whileClocksJump(t, func(w *world, jump func(at int)) {
		jump(1)
		w.pass(time.Minute)
		w.volume("db")
		w.workload("db", selected)
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA)
		jump(2)
		w.DRBD.Close("pvc-db", nodeA)
		if took := w.untilRemoved(2*time.Minute, "db-0"); took < 44*time.Second || took > 50*time.Second {
			w.Errorf("the pod is removed after %s, want the known grace", took)
		}
	})
}

// The node is up and has lost its storage: the pod gets its grace period, and goes by force after that.
func TestAPodThatDoesNotStopGoesAsSoonWhileClocksJump(t *testing.T) {
	t.Parallel()
	whileClocksJump(t, func(w *world, jump func(at int)) {
		jump(1)
		w.volume("db")
		w.workload("db", selected, func(workload *virtual.Workload) { workload.StopTime = 5 * time.Minute })
		w.pass(2 * time.Minute)
		w.DRBD.Isolate(nodeA)
		w.until(20*time.Second, "the pod is being deleted", func() bool { pod := w.pod("db-0"); return pod != nil && pod.DeletionTimestamp != nil })
		jump(2)
		begun := time.Now()
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if took := time.Since(begun); took < 9*time.Second {
			w.Errorf("the pod went after %s, want its grace period of 10 s to pass", took)
		}
	})
}
