package controllers

import (
	"testing"
	"time"
)

// TestWalk has two stories that differ only by a crash: "make walk" compares which code they run.
func TestWalk(t *testing.T) {
	for name, crashes := range map[string]bool{"one node crashes": true, "no node crashes": false} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				w.pass(time.Minute)
				if crashes {
					w.Crash(nodeA)
				}
				w.pass(2 * time.Minute)
				if moved := w.runs("db-0", nodeB); moved != crashes {
					t.Errorf("moved: %t, want %t", moved, crashes)
				}
			})
		})
	}
}
