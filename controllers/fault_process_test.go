package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// pair is a scene with two replicas, the first of which leads.
func pair(t *testing.T, cfg Config, tell func(w *world, first, second *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		first, second := w.startProcess("one", cfg), w.startProcess("two", cfg)
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.volume("other")
		w.workload("other", nil)
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		tell(w, first, second)
	})
}

// wantMovedCleanly waits until the workload runs on B, brings A back, and looks for anything left.
func (w *world) wantMovedCleanly(limit time.Duration, p *process) {
	w.Helper()
	w.Logf("moved %s later", w.until(limit, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) }))
	w.until(30*time.Second, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
	if got := len(w.removed("db-0")); got > 1 {
		w.Errorf("pods of that name were deleted %d times", got)
	}
	w.Return(nodeA)
	w.pass(3 * time.Minute)
	w.wantNothingLeft(p)
	w.wantRunning("other-0", nodeA)
}

// errDead is what becomes of a request that a process has not sent any more.
var errDead = errors.New("the process is dead")

// dies lets a process be killed at its first write of a kind, so that it sends nothing any more: before that, or when the
// API gets it, so that the process does not hear of it. The returned function waits for that, and fails the story where it does not come.
func (w *world) dies(p *process, write permission, before bool) (untilKilled func()) {
	w.detachesSlowly()
	var dead atomic.Bool
	killed := make(chan struct{})
	w.API.Fail(func(r apimodel.Request) error {
		switch {
		case r.Actor != controllerActor+p.name:
			return nil
		case needs(r) != write && !dead.Load():
			return nil
		case !dead.CompareAndSwap(false, true):
			return errDead
		}
		p.end()
		close(killed)
		if before {
			return errDead
		}
		return nil
	})
	return func() {
		w.Helper()
		select {
		case <-killed:
		case <-time.After(40 * time.Second):
			w.Fatalf("process %s is not killed within 40s", p.name)
		}
	}
}

// detachesSlowly gives Kubernetes the tenth of a second in which it looks for what it could detach. It deletes the attachment
// of a released volume, too, and would be quicker than the leader now and then.
func (w *world) detachesSlowly() {
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if r.Actor == virtual.ActorAttach && r.Verb == apimodel.VerbDelete {
			return 100 * time.Millisecond
		}
		return 0
	})
}

// wantWrote fails the story unless the process has written just that, in this order.
func (w *world) wantWrote(p *process, want []permission) {
	w.Helper()
	synctest.Wait() // until the last one is taken down
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []permission
	for _, c := range w.changes {
		if c.Actor == controllerActor+p.name && c.Kind != "Lease" && !slices.Contains(got, needs(c.Request)) {
			got = append(got, needs(c.Request))
		}
	}
	if !slices.Equal(got, want) {
		w.Errorf("%s wrote %v, want %v", p.name, got, want)
	}
}

// moment is one of a fail-over: before the write of that number, or when the API has just done it.
type moment struct {
	number int
	before bool
}

// moments are all of them of a fail-over, by their names.
func moments() map[string]moment {
	all := map[string]moment{}
	for i, write := range writes {
		all["before it may "+write.String()], all["after it could "+write.String()] = moment{i, true}, moment{i, false}
	}
	return all
}

// done are the writes that were done until then.
func (m moment) done() []permission {
	if m.before {
		return writes[:m.number]
	}
	return writes[:m.number+1]
}

// The leader is killed, by a signal, by its memory limit or with its node: before each write of a fail-over, and when the
// API has done it but the leader has not heard of it. The next one leads when the Lease has expired, and finishes.
func TestTheLeaderIsKilledAtEachStep(t *testing.T) {
	const expiry = 12 * time.Second
	for name, at := range moments() {
		t.Run(name, func(t *testing.T) {
			pair(t, defaults(), func(w *world, first, second *process) {
				untilKilled := w.dies(first, writes[at.number], at.before)
				w.Crash(nodeA)
				untilKilled()
				w.pass(expiry)
				w.wantWrote(first, at.done())
				second.leads()
				w.wantMovedCleanly(40*time.Second, second)
				w.wantWrote(first, at.done())
			})
		})
	}
}

// An election that fails lets two act at the same time: each delete and patch names what it means, and nobody is harmed.
func TestTwoLeadersAtATime(t *testing.T) {
	pair(t, defaults(), func(w *world, _, second *process) {
		second.leads()
		w.Crash(nodeA)
		w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		uids := map[string]int{}
		for _, uid := range w.removed("db-0") {
			uids[string(uid)]++
		}
		if len(uids) != 1 {
			t.Errorf("pods that were deleted: %v, want the one that was lost", uids)
		}
		w.Return(nodeA)
		w.pass(3 * time.Minute)
		w.wantUnmarked()
	})
}

// A leader that the API has left, and that LINSTOR has not, changes nothing, whatever it learns. (That it gives up its
// leadership in time is for the election of client-go.)
func TestALeaderThatTheAPIHasLeft(t *testing.T) {
	pair(t, defaults(), func(w *world, first, second *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if strings.HasSuffix(r.Actor, "/one") {
				return errors.New("connection refused")
			}
			return nil
		})
		first.view.Pause()
		w.Crash(nodeA)
		w.pass(20 * time.Second)
		w.wantUntouched()
		second.leads()
		w.wantMovedCleanly(20*time.Second, second)
	})
}

// panics is a LINSTOR whose answer the code does not stand, the first few times.
type panics struct {
	Linstor
	left *atomic.Int32
	// fresh is set where that is the answer to a question, and not what is known.
	fresh bool
}

func (p panics) Resource(name string) (linstor.Resource, bool) {
	if !p.fresh && p.left.Add(-1) >= 0 {
		panic("a bug")
	}
	return p.Linstor.Resource(name)
}

func (p panics) Refresh(ctx context.Context, name string, maxAge time.Duration) (linstor.Resource, error) {
	if p.fresh && p.left.Add(-1) >= 0 {
		panic("a bug")
	}
	return p.Linstor.Refresh(ctx, name, maxAge)
}

// A panic while a volume or a node is looked at ends this look and no more. The log and a metric of controller-runtime tell.
func TestAPanicInAReconciler(t *testing.T) {
	for _, name := range []string{"gathering", "reading", "tidying"} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				var left atomic.Int32
				known := panics{p.parts.node.linstor, &left, name != "gathering"}
				switch name {
				case "gathering":
					p.parts.node.inputs.Linstor = known
				case "reading":
					p.parts.node.linstor = known
				case "tidying":
					p.parts.node.taints.linstor = known
				}
				before := panicsOf(t, "node")
				left.Store(map[string]int32{"gathering": 20, "reading": 8, "tidying": 1}[name])
				w.Crash(nodeA)
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(p)
				if left.Load() > 0 {
					t.Errorf("%d of the panics did not come", left.Load())
				}
				if !w.told(p, "a bug", "panic") {
					t.Error("the log does not tell of the panic")
				}
				if after := panicsOf(t, "node"); name == "gathering" && after < before+20 {
					t.Errorf("controller_runtime_reconcile_panics_total was %v and is %v, want 20 more", before, after)
				}
			})
		})
	}
}

// panicsOf returns how many panics of a controller are counted, in this process of the tests.
func panicsOf(t *testing.T, controller string) float64 {
	t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := 0.0
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == "controller_runtime_reconcile_panics_total" && m.Label[0].GetValue() == controller {
				count += valueOf(m)
			}
		}
	}
	return count
}
