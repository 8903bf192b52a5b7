package controllers

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNothingIsLeftOnceTheStoryIsOver(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.pass(5 * time.Minute)
		synctest.Wait()
		p.wantNothingLeft()
	})
}

// wantNothingLeft fails the story if anything of a fail-over is left although its cause is gone.
func (p *process) wantNothingLeft() {
	w := p.world
	w.Helper()
	synctest.Wait()
	if lines := (&Memory{p.parts}).Lines(); len(lines) > 0 {
		w.Errorf("left in the memory: %v", lines)
	}
	for _, name := range []string{nodeA, nodeB, nodeT} {
		if node := w.node(name); len(node.Spec.Taints) > 0 || len(node.Annotations) > 0 {
			w.Errorf("left on node %s: %v, %v", name, node.Spec.Taints, node.Annotations)
		}
		if va := w.attachment("db", name); va != nil && len(va.Annotations) > 0 {
			w.Errorf("left on attachment %s: %v", va.Name, va.Annotations)
		}
	}
}
