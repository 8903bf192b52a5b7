package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// says tells whether an Event of that reason on that object has all of the words.
func (p *process) says(reason, kind, name string, words ...string) bool {
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	return slices.ContainsFunc(p.events.events, func(e recorded) bool {
		return e.reason == reason && e.kind == kind && e.name == name && containsAll(e.note, words)
	})
}

// shows tells whether a metric has a value.
func (p *process) shows(metric string, value float64) bool {
	for series, got := range p.counted() {
		if strings.HasSuffix(series, metric) && got == value {
			return true
		}
	}
	return false
}

// A pool hangs on a node that has nothing to do with the volume. LINSTOR asks it before it tells of any resource.
func TestASatelliteKeepsEveryAttachWaiting(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.volume("third", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeA })
		w.pass(time.Minute)
		w.Linstor.HangPools(nodeT, true)
		w.Crash(nodeA)
		w.until(20*time.Second, "the pod is gone", func() bool { return len(w.removed("db-0")) > 0 })
		w.until(30*time.Second, "an Event says who keeps it waiting", func() bool {
			return p.says(EventAttachWaits, "Pod", "db-0", "attaching waits", nodeT, "linstor node reconnect "+nodeT)
		})
		if !p.shows("satellites_not_answering", 1) || !p.shows("attachments_waiting", 1) {
			t.Errorf("the metrics do not show it:\n%s", p.metrics())
		}
		if w.runs("db-0", nodeB) {
			t.Error("the volume is attached nevertheless")
		}
		w.Linstor.Reconnect(nodeT)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(checkInterval)
		if p.shows("satellites_not_answering", 1) || p.shows("attachments_waiting", 1) {
			t.Errorf("the metrics still show it:\n%s", p.metrics())
		}
	})
}

// remote is a scene whose workload runs on A without a replica there.
func remote(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, "" })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		tell(w, p)
	})
}

func TestAnOldDriverCannotDetachWhatIsInUse(t *testing.T) {
	remote(t, func(w *world, p *process) {
		w.Driver.Restart(csidriver.Options{Old: true})
		w.DRBD.Isolate(nodeA)
		w.until(2*time.Minute, "Events say why the volume is not detached", func() bool {
			return p.says(EventDetachFailed, "Pod", "db-0", "still in use", nodeA) &&
				p.says(EventDetachFailed, "VolumeAttachment", "csi-db-"+nodeA, "still in use")
		})
		w.Crash(nodeA)
		w.until(5*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestTheNodeOfAUserWithoutADiskCrashes(t *testing.T) {
	remote(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestAnAttachThatSucceedsHasNoEvent(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Minute)
		for _, reason := range []string{EventAttachWaits, EventDetachFailed} {
			if p.says(reason, "Pod", "db-0") {
				t.Errorf("an Event says %s", reason)
			}
		}
	})
}

// A volume that can never be attached where its pod is waits for days. LINSTOR's satellites are asked ever more rarely, and at once when
// another one waits.
func TestSatellitesAreAskedRarelyOfWhatWaitsForLong(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.must(w.AddNode(w.ctx, nodeD))
		w.must(w.Linstor.SetNodeProperty(nodeD, linstorsim.PropAutoplaceTarget, "False"))
		w.volume("third", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeA })
		w.volume("stuck")
		w.workload("stuck", selected, func(x *virtual.Workload) { x.Nodes = []string{nodeD} })
		asked := func() int { return w.Linstor.Requests()[linstorsim.KindViewPart] }
		w.pass(30 * time.Minute)
		before := asked()
		w.pass(time.Hour)
		if got, want := asked()-before, 4*13; got > want {
			t.Errorf("four satellites were asked %d times in an hour, want at most %d", got, want)
		}
		w.Linstor.HangPools(nodeT, true)
		w.Crash(nodeA)
		w.until(45*time.Second, "an Event says who keeps it waiting", func() bool { return p.says(EventAttachWaits, "Pod", "db-0", nodeT) })
		w.Linstor.Reconnect(nodeT)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(satellitesIntervalMax)
		if p.shows("satellites_not_answering", 1) || !p.shows("attachments_waiting", 1) {
			t.Errorf("the metrics do not show that only one waits, and for no satellite:\n%s", p.metrics())
		}
	})
}
