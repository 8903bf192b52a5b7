package controllers

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// attachFault is something around the CSI driver that breaks while a node is lost. The pod is removed in the time that it always takes.
type attachFault struct {
	// begin comes half a minute before the loss, act half a second before the pod is removed.
	begin, act func(w *world)
	// loss is the loss of node A; a crash where it is nil.
	loss func(w *world)
	// target is where the workload goes.
	target string
	// low and limit are how long after the pod's removal it runs, be it after the end of the fault.
	low, limit time.Duration
	// lasts is for how long it must not run, until end. 0 does not end it before.
	lasts time.Duration
	end   func(w *world)
}

const nodeD = "node-d"

// usualRemoval is how long after a crash the pod is removed in these stories: DRBD notices after 10 s, and the grace has 5.
const usualRemoval = 15 * time.Second

// remove plays the loss until the pod is removed, and returns how long that took.
func (f attachFault) remove(w *world) time.Duration {
	if f.begin != nil {
		f.begin(w)
	}
	w.pass(30 * time.Second)
	lost := time.Now()
	if f.loss == nil {
		w.Crash(nodeA)
	} else {
		f.loss(w)
	}
	if f.act != nil {
		w.pass(usualRemoval - 500*time.Millisecond)
		f.act(w)
		w.wantUntouched()
	}
	w.until(time.Minute, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
	return time.Since(lost)
}

func (f attachFault) befalls(t *testing.T) {
	t.Helper()
	scene(t, func(w *world, p *process) {
		w.must(w.AddNode(w.ctx, nodeD))
		w.volume("third", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeD })
		w.pass(time.Minute)
		other := w.pod("other-0")
		removed := f.remove(w)
		if f.loss == nil && removed > usualRemoval+time.Second {
			t.Errorf("the pod is removed after %s", removed)
		}
		runs := func() bool { return w.runs("db-0", f.target) }
		if f.lasts > 0 {
			w.pass(f.lasts)
			if runs() {
				t.Error("the volume is attached nevertheless")
			}
		}
		if f.end != nil {
			f.end(w)
		}
		if took := w.until(f.limit, "the workload runs on "+f.target, runs); took < f.low {
			t.Errorf("the workload runs %s after the removal already", took)
		} else {
			t.Logf("removed after %s, runs %s later", removed, f.lasts+took)
		}
		w.DRBD.Rejoin(nodeA)
		w.Linstor.SetAdjustFault(nodeA, "", linstorsim.AdjustWorks)
		w.Return(nodeA)
		w.Linstor.RestoreSatellite(nodeT)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
		w.wantStill(other)
		w.wantRunning("db-0", f.target)
	})
}

// elsewhere lets the workload go to a node without a replica only.
func elsewhere(w *world) {
	w.Change(client.ObjectKey{Namespace: "default", Name: "db-0"}, func(o *virtual.Workload) { o.Nodes = []string{nodeA, nodeD} })
}

// What the CSI driver may wait for while a node is lost. The pod goes in any case, and its volume follows.
func TestFaultsOfAttaching(t *testing.T) {
	for name, f := range map[string]attachFault{
		"all is well": {target: nodeB, low: time.Second, limit: 4 * time.Second},
		"all is well and the target has no replica": {
			begin: elsewhere, target: nodeD, low: time.Second, limit: 4 * time.Second,
		},
		"a satellite is ONLINE and its thin pool is silent": {
			act: func(w *world) { w.Linstor.HangPools(nodeT, true) }, end: func(w *world) { w.Linstor.Reconnect(nodeT) },
			target: nodeB, lasts: 40 * time.Second, limit: 30 * time.Second,
		},
		"another satellite is cut half a second before the removal": {
			act: func(w *world) { w.Linstor.CutSatellite(nodeT) }, target: nodeB, low: 4 * time.Second, limit: 12 * time.Second,
		},
		"LINSTOR restarts 20 seconds before": {
			begin: func(w *world) { time.AfterFunc(10*time.Second, w.Linstor.Restart) }, target: nodeB, limit: 5 * time.Second,
		},
		"the lost node is ONLINE, its adjusts hang, and the target has no replica": {
			begin: func(w *world) { elsewhere(w); w.Linstor.SetAdjustFault(nodeA, "", linstorsim.AdjustHangs) },
			loss:  func(w *world) { w.DRBD.Isolate(nodeA) }, target: nodeD, low: 40 * time.Second, limit: 80 * time.Second,
		},
		"LINSTOR places nothing on the target": {
			begin: func(w *world) {
				elsewhere(w)
				w.must(w.Linstor.SetNodeProperty(nodeD, linstorsim.PropAutoplaceTarget, "False"))
			},
			end:    func(w *world) { w.must(w.Linstor.SetNodeProperty(nodeD, linstorsim.PropAutoplaceTarget, "")) },
			target: nodeD, lasts: 2 * time.Minute, limit: 3 * time.Minute,
		},
	} {
		t.Run(name, f.befalls)
	}
}

// remote is a scene whose workload runs on A without a replica there.
func remote(t *testing.T, tell func(w *world)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		w.startProcess("one", defaults()).leads()
		w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, "" })
		w.workload("db", selected)
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		tell(w)
	})
}

func TestAnOldDriverCannotDetachWhatIsInUse(t *testing.T) {
	remote(t, func(w *world) {
		w.Driver.Restart(csidriver.Options{Old: true})
		w.DRBD.Isolate(nodeA)
		w.until(2*time.Minute, "the attachment's status has the driver's error", func() bool {
			va := w.attachment("db", nodeA)
			return va != nil && va.Status.DetachError != nil && strings.Contains(va.Status.DetachError.Message, "still in use")
		})
		w.Crash(nodeA)
		w.until(5*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

func TestTheNodeOfAUserWithoutADiskCrashes(t *testing.T) {
	remote(t, func(w *world) {
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}
