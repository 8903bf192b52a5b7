package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

func TestOnlyChangesAreNews(t *testing.T) {
	t.Parallel()
	decision := func(v failover.Verdict, r failover.Reason) failover.Decision {
		return failover.Decision{Verdict: v, Reason: r}
	}
	well := decision(failover.NotLost, failover.PrimaryHealthy)
	pending := decision(failover.Pending, failover.NodeUnreachable)
	noQuorum := decision(failover.Blocked, failover.NoQuorum)
	cases := map[string]struct {
		said []failover.Decision
		news []bool
		left int // stories that remain
	}{
		"all is well, again and again":        {said: []failover.Decision{well, well}, news: []bool{false, false}},
		"a loss is news once":                 {said: []failover.Decision{pending, pending}, news: []bool{true, false}, left: 1},
		"another reason is news":              {said: []failover.Decision{pending, noQuorum, noQuorum}, news: []bool{true, true, false}, left: 1},
		"that it is well again is news":       {said: []failover.Decision{pending, well, well}, news: []bool{true, true, false}},
		"a second loss is news like a first":  {said: []failover.Decision{pending, well, pending}, news: []bool{true, true, true}, left: 1},
		"not knowing leaves nothing behind":   {said: []failover.Decision{decision(failover.Undecided, failover.StateUnknown)}, news: []bool{false}},
		"a loss that is unknown for a moment": {said: []failover.Decision{pending, decision(failover.Undecided, failover.StateUnknown), pending}, news: []bool{true, true, true}, left: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReports(metrics.New(), time.Now)
			for i, d := range c.said {
				if got := r.changed("pv", nodeA, d); got != c.news[i] {
					t.Errorf("saying %s (%s) as number %d is news: %t, want %t", d.Verdict, d.Reason, i+1, got, c.news[i])
				}
			}
			if got := len(r.said["pv"]); got != c.left {
				t.Errorf("%d stories are left, want %d", got, c.left)
			}
		})
	}
}

func TestReportsForgetWhatIsOver(t *testing.T) {
	t.Parallel()
	lost := failover.Decision{Verdict: failover.Lost, Reason: failover.NodeUnreachable}
	on := func(node string) failover.Input { return failover.Input{Node: failover.Node{Name: node}} }
	r := newReports(metrics.New(), time.Now)
	for _, node := range []string{nodeA, nodeB} {
		r.changed("pv", node, lost)
		r.podRemoved("pv", on(node), lost)
		r.stuckPod("pv", node, "default/web-0", failover.StuckOnNode)
		r.podsGone("pv", on(node))
		r.released("pv", on(node))
	}
	r.prune("pv", []failover.Input{on(nodeB)})
	if len(r.said["pv"]) != 1 || r.said["pv"][nodeB] == nil {
		t.Errorf("kept %v", r.said)
	}
	r.prune("pv", nil)
	if len(r.said) != 0 {
		t.Errorf("left behind: %v", r.said)
	}
	r.prune("unknown", nil)
	if len(r.said) != 0 {
		t.Errorf("an unknown volume left something behind: %v", r.said)
	}
}

// A leader that finds a pod stuck, which another one has removed, knows of no removal.
func TestAStuckPodIsNoNewsAgainAfterAMomentOfNotKnowing(t *testing.T) {
	t.Parallel()
	r := newReports(metrics.New(), time.Now)
	r.changed("pv", nodeA, failover.Decision{Verdict: failover.Lost, Reason: failover.QuorumLost})
	r.stuckPod("pv", nodeA, "default/web-0", failover.StuckOnNode)
	r.changed("pv", nodeA, failover.Decision{Verdict: failover.Undecided})
	if r.stuckPod("pv", nodeA, "default/web-0", failover.StuckOnNode) {
		t.Error("the pod is told again although it was stuck all the time")
	}
	r.changed("pv", nodeA, failover.Decision{Verdict: failover.NotLost})
	if len(r.said["pv"]) != 0 {
		t.Errorf("kept although nothing is lost: %v", r.said["pv"])
	}
}

func TestAStuckPodIsNewsOnce(t *testing.T) {
	t.Parallel()
	r := newReports(metrics.New(), time.Now)
	for i, want := range []bool{true, false} {
		if got := r.stuckPod("pv", nodeA, "default/web-0", failover.StuckOnNode); got != want {
			t.Errorf("told %d times is news: %t", i+1, got)
		}
	}
	if r.stuckPod("pv-2", nodeA, "default/web-0", failover.StuckOnNode) {
		t.Error("a pod is told again by another one of its volumes")
	}
	if !r.stuckPod("pv-2", nodeB, "default/web-0", failover.StuckOnNode) {
		t.Error("a pod is not told of the other node")
	}
	if !r.stuckPod("pv", nodeA, "default/web-1", failover.StuckOnNode) {
		t.Error("another pod is news")
	}
}

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
	if said := p.parts.failover.reporter.reports.said; len(said) > 0 {
		w.Errorf("left in the reports: %v", said)
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
