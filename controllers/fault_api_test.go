package controllers

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func TestFaultsOfTheAPI(t *testing.T) {
	away := func(apimodel.Request) error { return errors.New("connection refused") }
	refused := func(w *world, p *process) bool { return w.told(p, "connection refused") }
	for name, f := range map[string]fault{
		"the API server restarts": {
			begin: func(w *world, p *process) { w.API.Fail(away); p.view.Pause() },
			end:   func(w *world, p *process) { w.API.Fail(nil); p.view.Resume() },
			stops: true, lasts: 40 * time.Second, limit: time.Minute, seen: refused,
		},
		"the API server is away for minutes": {
			begin: func(w *world, p *process) { w.API.Fail(away); p.view.Pause() },
			end:   func(w *world, p *process) { w.API.Fail(nil); p.view.Resume() },
			stops: true, lasts: 5 * time.Minute, limit: 2 * time.Minute, seen: refused,
		},
		"the watches end with 410 and everything is listed anew": {
			begin: func(_ *world, p *process) { p.view.Pause(); time.AfterFunc(35*time.Second, p.view.Relist) },
			limit: time.Minute, lasts: time.Minute,
		},
		"the watches end with 410 again and again": {
			begin: func(_ *world, p *process) {
				var again func()
				again = func() {
					p.view.Relist()
					p.view.Pause()
					if p.ctx.Err() == nil {
						time.AfterFunc(3*time.Second, again)
					}
				}
				again()
			},
			end:   func(_ *world, p *process) { p.view.Relist() },
			limit: time.Minute, lasts: time.Minute,
		},
	} {
		t.Run(name, f.befalls)
	}
}

// The watches of the leader are dead while a node is lost, and end with 410. Meanwhile a user has dealt with that: a
// lost pod was deleted by force and replaced by one of the same name, a volume and a node are no longer there. Of all that
// the leader learns by a list.
func TestWhatIsGoneWhenEverythingIsListedAnew(t *testing.T) {
	sceneWith(t, virtual.Options{}, defaults(), func(w *world, p *process) {
		w.must(w.AddNode(w.ctx, "node-x"))
		w.volume("kept")
		w.workload("kept", selected, func(o *virtual.Workload) {
			o.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		})
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.until(time.Minute, "the pod that is left alone is known to be lost", func() bool {
			_, reason := p.said("kept", nodeA)
			return reason == failover.Exempt
		})
		moved := w.pod("db-0")
		p.view.Pause()
		w.SilenceKubelet("node-x")
		w.pass(time.Second)
		w.Change(client.ObjectKey{Namespace: "default", Name: "kept-0"}, func(o *virtual.Workload) { o.Gone = true })
		w.forceDelete("kept-0")
		w.forceDelete("db-0")
		for _, o := range []client.Object{
			w.attachment("kept", nodeA),
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-x"}},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.LeaseNamespace, Name: "node-x"}},
		} {
			w.must(w.Client().Delete(w.ctx, o))
		}
		w.until(30*time.Second, "another pod of the workload runs", func() bool { return w.runs("db-0", nodeB) })
		before := len(w.removed("db-0"))

		p.view.Relist()
		w.pass(5 * time.Second)
		if verdict, reason := p.said("kept", nodeA); verdict != "" {
			t.Errorf("a volume that is gone is still %s: %s", verdict, reason)
		}
		if p.kubelets.Node("node-x").LeaseKnown {
			t.Error("a node that is gone is still known")
		}
		var pod corev1.Pod
		w.must(p.view.Get(w.ctx, client.ObjectKeyFromObject(moved), &pod))
		if pod.UID == moved.UID {
			t.Error("the pod that was replaced is still in the cache")
		}
		w.Return(nodeA)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
		w.wantRunning("db-0", nodeB)
		if after := len(w.removed("db-0")); after != before {
			t.Errorf("%d pods more were removed", after-before)
		}
	})
}

// The clocks of the nodes are wrong, each in another way: the age of a Lease is what this process saw of its changes.
func TestFaultsOfClocks(t *testing.T) {
	for name, skew := range map[string]map[string]time.Duration{
		"an hour slow": {nodeA: -time.Hour, nodeB: -time.Hour, nodeT: -time.Hour},
		"an hour fast": {nodeA: time.Hour, nodeB: time.Hour, nodeT: time.Hour},
		"that of the lost node is an hour fast, others are slow": {nodeA: time.Hour, nodeB: -10 * time.Minute, nodeT: -time.Hour},
		"that of the lost node is an hour slow, others are fast": {nodeA: -time.Hour, nodeB: 10 * time.Minute, nodeT: time.Hour},
		"the survivor is minutes behind the lost node":           {nodeA: 3 * time.Minute, nodeB: -3 * time.Minute, nodeT: 0},
		"the survivor is seconds ahead of the lost node":         {nodeA: -15 * time.Second, nodeB: 15 * time.Second, nodeT: 30 * time.Second},
	} {
		t.Run(name, fault{
			begin: func(w *world, _ *process) {
				for node, by := range skew {
					w.SetClock(node, by)
				}
				w.pass(time.Minute)
			},
			limit: 30 * time.Second, lasts: time.Minute,
			seen: func(w *world, _ *process) bool { return w.tainted(nodeB) == "" && w.tainted(nodeT) == "" },
		}.befalls)
	}
	// A kubelet whose clock runs an hour behind was heard of all the same, and one that is silent is not heard of although its last
	// word lies in the future.
	t.Run("who is silent, by clocks that differ", func(t *testing.T) {
		scene(t, func(w *world, p *process) {
			w.SetClock(nodeA, time.Hour)
			w.SetClock(nodeB, -time.Hour)
			w.pass(time.Minute)
			w.SilenceKubelet(nodeA)
			w.pass(30 * time.Second)
			if a, b := p.kubelets.Node(nodeA), p.kubelets.Node(nodeB); a.LeaseSilence < 20*time.Second || b.LeaseSilence > 12*time.Second {
				t.Errorf("silent for %s and %s, want the first alone for half a minute", a.LeaseSilence, b.LeaseSilence)
			}
			w.wantUntouched()
			w.wantRunning("db-0", nodeA)
		})
	})
}
