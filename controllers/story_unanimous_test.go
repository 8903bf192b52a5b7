package controllers

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// elected is a scene whose controller stands for election, and is elected.
func elected(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	electedIn(t, virtual.Options{}, tell)
}

func electedIn(t *testing.T, options virtual.Options, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, options, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		leads := p.stands()
		<-leads
		w.volume("db")
		w.workload("db", selected)
		w.pass(3 * time.Minute)
		w.wantRunning("db-0", nodeA)
		tell(w, p)
	})
}

// silentFor lets time pass until A's Lease has been silent for so long.
func (w *world) silentFor(p *process, node string, d time.Duration) {
	w.Helper()
	w.until(20*time.Second, "the Lease is that old", func() bool {
		silence := p.kubelets.Node(node).LeaseSilence
		return silence >= d && silence < d+time.Second
	})
}

// crashAfter crashes A when its Lease was renewed so long ago, and returns how long after B may be promoted its pod is deleted.
func (w *world) crashAfter(p *process, renewed time.Duration) time.Duration {
	w.Helper()
	w.silentFor(p, nodeA, renewed)
	w.Crash(nodeA)
	w.survivorReady("db")
	return w.untilRemoved(30*time.Second, "db-0")
}

func TestALossThatThreeNetworksAgreeOn(t *testing.T) {
	const step = 200 * time.Millisecond // until looks that often
	t.Run("is moved a second after DRBD has noticed it", func(t *testing.T) {
		elected(t, func(w *world, p *process) {
			if removed := w.crashAfter(p, 5*time.Second); removed < time.Second-step || removed > 1500*time.Millisecond {
				t.Errorf("the pod was removed %s after B could be promoted, want a second", removed)
			}
			w.until(5*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			if got := len(w.removed("db-0")); got != 1 {
				t.Errorf("pod deleted %d times, want once", got)
			}
		})
	})
	t.Run("waits until A's Lease is silent for long enough", func(t *testing.T) {
		elected(t, func(w *world, p *process) {
			w.crashAfter(p, 0)
			if silence := p.kubelets.Node(nodeA).LeaseSilence; silence < 12*time.Second || silence > 13*time.Second {
				t.Errorf("the pod was removed when the Lease was silent for %s, want twelve seconds", silence)
			}
		})
	})
	t.Run("waits for the confirmed grace where the Lease of the election was not renewed since A's fell due", func(t *testing.T) {
		cfg := defaults()
		cfg.Renewed = func() time.Time { return time.Now().Add(-10 * time.Second) }
		sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
			if removed := w.crashAfter(p, 5*time.Second); removed < 5*time.Second-step {
				t.Errorf("the pod was removed %s after B could be promoted, want five seconds", removed)
			}
		})
	})
	for name, disagrees := range map[string]func(w *world, p *process){
		"A's Lease cannot be read": func(w *world, _ *process) {
			w.API.Fail(func(r apimodel.Request) error {
				if r.Kind == "Lease" && r.Verb == apimodel.VerbGet && r.Name == nodeA {
					return errors.New("the server was unable to return a response in the time allotted")
				}
				return nil
			})
		},
		"the API server takes long to answer what A's Lease is": func(w *world, _ *process) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if r.Kind == "Lease" && r.Verb == apimodel.VerbGet && r.Name == nodeA {
					return 3 * time.Second
				}
				return 0
			})
		},
	} {
		t.Run("waits for the confirmed grace where "+name, func(t *testing.T) {
			elected(t, func(w *world, p *process) {
				w.silentFor(p, nodeA, 5*time.Second)
				w.Crash(nodeA)
				w.pass(5200 * time.Millisecond) // A's renewal falls due
				disagrees(w, p)
				w.survivorReady("db")
				if removed := w.untilRemoved(30*time.Second, "db-0"); removed < 5*time.Second-step {
					t.Errorf("the pod was removed %s after B could be promoted, want five seconds", removed)
				}
			})
		})
	}
}

// In none of these stories are three networks silent for long enough, however soon DRBD notices.
func TestWhatThreeNetworksDoNotAgreeOn(t *testing.T) {
	frozen := func(length time.Duration) func(w *world) {
		return func(w *world) {
			for range 10 {
				w.Freeze(nodeA)
				w.pass(length)
				w.Thaw(nodeA)
				w.pass(33 * time.Second)
			}
		}
	}
	for name, happens := range map[string]func(w *world){
		"a node that is frozen for three seconds": frozen(3 * time.Second),
		"a node that is frozen for six seconds":   frozen(6 * time.Second),
		"links that flap five times for three seconds": func(w *world) {
			for range 5 {
				w.DRBD.Isolate(nodeA)
				w.pass(3 * time.Second)
				w.DRBD.Rejoin(nodeA)
				w.pass(3 * time.Second)
			}
		},
		"a LINSTOR that restarts": func(w *world) {
			w.Linstor.Restart()
			w.pass(time.Minute)
		},
		"a switch that reboots in three seconds": func(w *world) {
			for range 10 {
				for _, node := range []string{nodeA, nodeB, nodeT} {
					w.Freeze(node) // no packet comes or goes
				}
				w.pass(3 * time.Second)
				for _, node := range []string{nodeA, nodeB, nodeT} {
					w.Thaw(node)
				}
				w.pass(33 * time.Second)
			}
		},
	} {
		for notices, times := range map[string]drbd.Options{
			"after ten seconds": {},
			"at once":           {DetectionDelay: drbd.Immediately},
			"as a real one":     drbd.Measured(rand.New(rand.NewPCG(1, 0))),
		} {
			t.Run(name+", DRBD notices "+notices, func(t *testing.T) {
				electedIn(t, virtual.Options{DRBD: times}, func(w *world, _ *process) {
					pod := w.pod("db-0")
					happens(w)
					w.pass(time.Minute)
					w.wantStill(pod)
					w.wantUntouched()
				})
			})
		}
	}
}

// The half minute that a node was away is no habit of its kubelet: it is as silent after twelve seconds as before.
func TestANodeThatHasJustBootedCrashesAgain(t *testing.T) {
	elected(t, func(w *world, _ *process) {
		// With its default the CSI driver takes a node for OFFLINE for up to a minute after it is back.
		w.Driver.Restart(csidriver.Options{NodeCache: 5 * time.Second})
		on, other := nodeA, nodeB
		for range 6 {
			w.Crash(on)
			w.until(17*time.Second, "the workload runs on "+other, func() bool { return w.runs("db-0", other) })
			w.pass(10 * time.Second)
			w.Return(on)
			w.until(time.Minute, on+" takes pods again", func() bool { return w.tainted(on) == "" })
			on, other = other, on
		}
	})
}
