package controllers

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// survivorReady waits until DRBD lets B take over the volume and returns how long that took.
func (w *world) survivorReady(volume string) time.Duration {
	w.Helper()
	return w.until(15*time.Second, "B may be promoted", func() bool {
		b, _ := w.DRBD.Replica("pvc-"+volume, nodeB)
		return b.MayPromote
	})
}

// untilRemoved waits until the controller has deleted the pod for the first time.
func (w *world) untilRemoved(limit time.Duration, name string) time.Duration {
	w.Helper()
	return w.until(limit, "pod "+name+" is deleted", func() bool { return len(w.removed(name)) > 0 })
}

func TestANodeCrashesByAllDefaults(t *testing.T) {
	scene(t, func(w *world, p *process) {
		first, other := w.pod("db-0"), w.pod("other-0")
		w.Crash(nodeA)
		noticed := w.survivorReady("db")
		gone := w.until(12*time.Second, "the pod is gone", func() bool {
			now := w.pod("db-0")
			return now == nil || now.UID != first.UID
		})
		if limit := 7 * time.Second; gone > limit {
			t.Errorf("the pod was gone %s after the survivor's event, want %s", gone, limit)
		}
		detached := w.until(2*time.Second, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		if w.inUse("db", nodeA) {
			t.Error("the volume is still in the dead node's volumesInUse")
		}
		running := w.until(10*time.Second, "the replacement runs on B", func() bool { return w.runs("db-0", nodeB) })
		t.Logf("DRBD noticed after %s, pod gone %s later, detached %s later, running %s later", noticed, gone, detached, running)
		if w.tainted(nodeA) != "NoSchedule" {
			t.Errorf("the dead node's taint is %q", w.tainted(nodeA))
		}
		w.pass(time.Minute)
		w.wantStill(other)
		if w.attachment("other", nodeA) == nil || !w.inUse("other", nodeA) {
			t.Error("the volume of the pod that was not selected was detached")
		}
		if got := len(w.removed("db-0")); got != 1 {
			t.Errorf("pod deleted %d times, want once", got)
		}
		if !p.events.has(EventForceDeleted, "Pod", "db-0") || !p.events.has(EventNodeLost, "Node", nodeA) {
			t.Errorf("events: %+v", p.events.events)
		}
	})
}

func TestTheSameVolumeFailsOverTenTimesInOneProcess(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		on, other := nodeA, nodeB
		for range 10 {
			w.Crash(on)
			w.until(time.Minute, "the workload runs on "+other, func() bool { return w.runs("db-0", other) })
			w.Return(on)
			w.until(2*time.Minute, on+" takes pods again", func() bool { return w.tainted(on) == "" })
			w.pass(20 * time.Second)
			on, other = other, on
		}
		if got := len(w.removed("db-0")); got != 10 {
			t.Errorf("pod deleted %d times, want 10", got)
		}
	})
}

func TestLinstorRestartsBetweenTwoFailOvers(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(40*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.pass(2 * time.Minute)
		w.Linstor.Restart()
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeB)
		w.Crash(nodeB)
		w.until(40*time.Second, "the workload runs on A", func() bool { return w.runs("db-0", nodeA) })
	})
}

func TestLinstorRestartsDuringTheGrace(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(3 * time.Second)
		w.Linstor.Stop()
		w.pass(3 * time.Second) // as long as nobody reads anything, nobody can know that nothing has changed
		w.Linstor.Start()
		removed := w.untilRemoved(time.Minute, "db-0")
		if removed < 5*time.Second {
			t.Errorf("the pod was removed %s after LINSTOR's restart: the clock did not begin again", removed)
		}
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// A LINSTOR that has just started answers, and says of no replica what DRBD says. That is no word that A is lost, and the
// grace begins when there is one.
func TestLinstorKnowsNothingDuringTheGrace(t *testing.T) {
	slow := virtual.Options{Linstor: linstorsim.Options{SyncDuration: 10 * time.Second}}
	sceneWith(t, slow, defaults(), func(w *world, p *process) {
		word := func() linstor.Fact[bool] {
			r, _ := p.store.Resource("pvc-db")
			b, _ := r.Replica(nodeB)
			return b.MayPromote
		}
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(3 * time.Second)
		w.Linstor.Restart()
		w.until(8*time.Second, "LINSTOR answers and knows nothing", func() bool { return p.feed.Status().Synced && !word().Known })
		known := w.until(15*time.Second, "LINSTOR knows of B again", func() bool { return word().Known && word().Value })
		if known < 5*time.Second {
			t.Fatalf("LINSTOR knew nothing for %s only: the grace could not have ended meanwhile", known)
		}
		const step = 200 * time.Millisecond // until looks that often
		if removed := w.untilRemoved(time.Minute, "db-0"); removed < 5*time.Second-step {
			t.Errorf("the pod was removed %s after LINSTOR knew of B again: the clock did not begin again", removed)
		}
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// Nobody tells the controller anything, but the kubelet's silence makes it ask.
func TestANodeCrashesWhileTheEventStreamIsHalfOpen(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Linstor.SilenceStreams()
		w.pass(5 * time.Second)
		w.Crash(nodeA)
		w.until(25*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestNothingHappensWithoutLinstor(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Linstor.Stop()
		w.pass(30 * time.Second)
		w.Crash(nodeA)
		w.pass(5 * time.Minute)
		w.wantUntouched()
		w.Linstor.Start()
		w.until(2*time.Minute, "the workload runs on B once LINSTOR is back", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAFlapBeginsTheGraceAgain(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.pass(3 * time.Second) // and a second until DRBD is connected again
		w.DRBD.Rejoin(nodeA)
		w.pass(2 * time.Second)
		w.DRBD.Isolate(nodeA)
		removed := w.survivorReady("db") + w.untilRemoved(30*time.Second, "db-0")
		if removed < 5*time.Second || removed > 8*time.Second {
			t.Errorf("the pod was removed %s after the second loss, want 5 s to 8 s", removed)
		}
	})
}

func TestLossesThatAreShorterThanTheGraceNeverAddUp(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.SetDetectionDelay(0)
		for range 12 {
			w.DRBD.Isolate(nodeA)
			w.pass(3 * time.Second) // and a second until DRBD is connected again
			w.DRBD.Rejoin(nodeA)
			w.pass(3 * time.Second)
		}
		w.pass(time.Minute)
		w.wantUntouched()
	})
}

func TestANewLeaderContinuesTheGrace(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		first, second := w.startProcess("one", cfg), w.startProcess("two", cfg)
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(3 * time.Second)
		first.stops()
		w.pass(time.Second)
		second.leads()
		if removed := w.untilRemoved(30*time.Second, "db-0"); removed > 3*time.Second {
			t.Errorf("the pod was removed %s after the change of leaders, want the second that was left of the grace", removed)
		}
		w.until(10*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestTheNextLeaderFinishesWhatTheLastOneBegan(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		first, second := w.startProcess("one", cfg), w.startProcess("two", cfg)
		first.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.API.OnChange(func(c apimodel.Change) {
			if c.Actor == controllerActor+"one" && c.Verb == apimodel.VerbDelete {
				first.end() // before it comes to the attachment
			}
		})
		w.Crash(nodeA)
		w.untilRemoved(30*time.Second, "db-0")
		w.pass(20 * time.Second)
		if w.attachment("db", nodeA) == nil || w.runs("db-0", nodeB) {
			t.Fatal("the first leader has finished: the story is not the one that was meant")
		}
		second.leads()
		w.until(5*time.Second, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		w.until(5*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAnAttachmentWithoutPods(t *testing.T) {
	// Somebody else force-deletes both pods right after the crash: the workloads wait on B for their volumes.
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.forceDelete("db-0")
		w.forceDelete("other-0")
		w.must(w.cordon(nodeA)) // the replacements go to B
		w.until(2*time.Minute, "the awaited attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		w.until(5*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Minute)
		if w.attachment("other", nodeA) == nil {
			t.Error("an attachment that no selected pod waits for was deleted")
		}
		if v, _ := p.said("db", nodeA); v == failover.Lost {
			t.Error("a fail-over that is over is still told as lost")
		}
	})
}

// The workload has started while its node did not reach the tie-breaker, and that was the last time that anybody read the volume: nothing
// could be lost since. All that the tie-breaker says after the crash it said then too.
func TestANodeCrashesSoonAfterItHasFoundTheTieBreaker(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.pass(time.Minute + 500*time.Millisecond)
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.CutLink(nodeA, nodeT)
		w.pass(2 * time.Second)
		w.workload("db", selected)
		w.pass(10 * time.Second)
		w.wantRunning("db-0", nodeA)
		w.DRBD.HealLink(nodeA, nodeT)
		w.pass(10 * time.Second)
		w.wantUntouched()
		w.Crash(nodeA)
		if removed := w.untilRemoved(time.Minute, "db-0"); removed > 17*time.Second {
			t.Errorf("the pod was removed %s after the crash", removed)
		}
	})
}
