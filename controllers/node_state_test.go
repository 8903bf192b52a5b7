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

// A node whose other volumes change all the time is still reconciled when the grace of one ends.
func TestATimerStaysWhereItIsWhileOtherVolumesAreDecided(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newNodeState(nodeA)
	s.again(time.Second)
	s.requeue(start)
	for i := range 3 {
		now := start.Add(time.Duration(i+1) * 300 * time.Millisecond)
		s.others = s.due
		s.again(5 * time.Second)
		if got, want := s.requeue(now).RequeueAfter, start.Add(time.Second).Sub(now); got != want {
			t.Errorf("the node is reconciled again after %s, want %s", got, want)
		}
	}
	if now := start.Add(time.Second); !s.isDue(now) {
		t.Error("it is not time for the volume whose grace has ended")
	}
	if got := s.requeue(start.Add(time.Second)); got.RequeueAfter != 0 {
		t.Errorf("the node is reconciled again after %s although nothing calls for that", got.RequeueAfter)
	}
}
