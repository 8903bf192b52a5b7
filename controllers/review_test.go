package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

const nodeC = "node-c"

// cutTogether takes A and C off the other nodes, LINSTOR and Kubernetes, but not off each other.
func (w *world) cutTogether() {
	for _, node := range []string{nodeA, nodeC} {
		w.Linstor.CutSatellite(node)
		w.SilenceKubelet(node)
		for _, other := range []string{nodeB, nodeT} {
			w.DRBD.CutLink(node, other)
		}
	}
}

// wantNoSecondWriter lets time pass, and fails the story as soon as a second node could write the volume "db", or the pod is removed.
func (w *world) wantNoSecondWriter(p *process, d time.Duration) {
	w.Helper()
	for passed := time.Duration(0); passed < d; passed += time.Second {
		w.pass(time.Second)
		if passed > 15*time.Second && !w.DRBD.CanWrite("pvc-db", nodeA) { // until DRBD has noticed the cut its writes hang
			w.Fatalf("after %s A cannot write any more", passed)
		}
		if n := len(w.removed("db-0")); n > 0 {
			w.Fatalf("after %s the pod was removed although A can write", passed)
		}
	}
	verdict, reason := p.said("db", nodeA)
	w.Logf("said %s %s", verdict, reason)
}

// LINSTOR is given a database of a time before C had its replica. C has it still, and A goes on with C's vote: it fails to apply what
// LINSTOR wants now.
func TestAReplicaThatARestoredDatabaseLacksHasItsVote(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.must(w.AddNode(w.ctx, nodeC))
		w.bystanders()
		p := w.startProcess("one", defaults())
		p.leads(defaults())
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		snapshot := w.Linstor.Snapshot()
		w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
		w.pass(3 * time.Minute)
		w.Linstor.SetAdjustFault(nodeA, "pvc-db", linstorsim.AdjustHangs)
		w.Linstor.RestoreDatabase(snapshot)
		w.pass(40 * time.Second)
		w.cutTogether()
		w.wantNoSecondWriter(p, 3*time.Minute)
	})
}

// A and C are cut off together. A person gives C up in LINSTOR as soon as it is OFFLINE there; LINSTOR gives B a tie-breaker.
func TestANodeThatIsLostAsSoonAsItIsOfflineHasItsVote(t *testing.T) {
	for _, phase := range []time.Duration{0, 300, 600, 900} {
		t.Run(fmt.Sprint(int64(phase)), func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				w.must(w.AddNode(w.ctx, nodeC))
				w.bystanders()
				p := w.startProcess("one", defaults())
				p.leads(defaults())
				w.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB, nodeC}, "" })
				w.workload("db", selected)
				w.pass(3*time.Minute + phase*time.Millisecond)
				w.cutTogether()
				for w.Linstor.ConnectionStatus(nodeC) == "ONLINE" {
					w.pass(20 * time.Millisecond)
				}
				w.must(w.Linstor.LoseNode(nodeC))
				_ = w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeT, TieBreaker: true}) // where LINSTOR has not done so itself
				w.wantNoSecondWriter(p, 3*time.Minute)
			})
		})
	}
}

// Quorum is set on the controller, of which no satellite is told, so that all nodes go on with quorum off. The next process reaches LINSTOR
// two minutes after it has started. A's satellite is restarted, and the pod moves to B, whose was not.
func TestWhatTheNodesMayRunOutlivesAStartWithoutLinstor(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		w.bystanders()
		p, later := w.startProcess("one", defaults()), w.newView(defaults())
		p.leads(defaults())
		w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "off")
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "majority")
		w.pass(2 * time.Minute)
		if kept := w.attachment("db", nodeA).Annotations[AnnotationMayRun]; !strings.Contains(kept, "off") {
			t.Fatalf("the attachment says %q of what the nodes may run", kept)
		}
		p.stops()
		p = &process{world: w}
		p = w.startProcessOn("two", defaults(), later)
		p.cable.cut()
		w.pass(2*time.Minute + 10*time.Second)
		p.cable.mend()
		p.leads(defaults())
		w.pass(2 * time.Minute)
		w.Linstor.StopSatellite(nodeA)
		w.pass(2 * time.Second)
		w.Linstor.RestoreSatellite(nodeA)
		w.pass(2 * time.Minute)
		w.must(w.cordon(nodeA))
		w.must(w.Client().Delete(w.ctx, w.pod("db-0")))
		w.until(2*time.Minute, "db-0 runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(2 * time.Minute)
		w.cutOff(nodeB)
		for range 180 {
			w.pass(time.Second)
			if w.DRBD.CanWrite("pvc-db", nodeB) && len(w.removed("db-0")) > 0 {
				t.Fatal("the pod was removed although B can write")
			}
		}
	})
}

// What an attachment no longer says is over, also where it goes on to say something.
func TestAnAttachmentThatSaysLessTakesBackTheRest(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	store := linstor.NewStore()
	m.memory = newSettingsMemory(keeping{store: store})
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"},{"quorum":"all"}]}`)
	m.take()
	m.say(`{"node-a":[{"quorum":"majority"},{"quorum":"all"}]}`)
	m.take()
	sets, _ := store.Doubts("pvc-db")
	for _, setting := range sets[nodeA] {
		if setting.Quorum == "off" {
			t.Errorf("node A may still run %+v", sets[nodeA])
		}
	}
}

// Two reconcilers look at the attachments of a volume. What the slower one has seen is over when it comes to take it.
func TestAnOldLookAtAnAttachmentIsNoNews(t *testing.T) {
	t.Parallel()
	m := newMemoryTest(t)
	m.say(`{"node-a":[{"quorum":"off"},{"quorum":"majority"}]}`)
	old := m.listed()
	m.take()
	m.say("")
	m.take()
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	m.take()
	if len(m.word.united) != 1 && m.word.retracted != 2 {
		t.Errorf("united %d times, and retracted %d times", len(m.word.united), m.word.retracted)
	}
	m.must(m.memory.take("db", "pvc-db", old, m.now))
	if len(m.word.united) > m.word.retracted {
		t.Errorf("united %d times, and retracted %d times", len(m.word.united), m.word.retracted)
	}
}

type keeping struct {
	noLinstor
	store *linstor.Store
}

func (k keeping) Doubts(resource string) (linstor.Sets, time.Time) { return k.store.Doubts(resource) }

func (k keeping) Unite(resource string, sets linstor.Sets, at time.Time) {
	k.store.Unite(resource, sets, at)
}

func (k keeping) Retract(resource string, still linstor.Sets, at time.Time) {
	k.store.Retract(resource, still, at)
}

// The cache has not heard of the claim's new volume, and shows the old one as bound.
func TestTheClaimOfAnOldPodIsReadTooWhereTheCacheIsBehind(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.replaceClaim("new")
	s.r.clock = clockAt{new(time.Now().Add(2 * youngPod))}
	pods, err := s.r.confirmPods(s.ctx, s.pv, nodeA)
	s.must(err)
	pods, err = s.r.confirmClaims(s.ctx, s.pv, pods)
	s.must(err)
	if len(pods) > 0 {
		t.Error("the pod counts as one of the volume that its claim no longer has")
	}
}

// A volume that its mount options mount read-only is Secondary under its pods. It was in use for a moment, as it is when it is resized.
func TestAVolumeThatIsMountedReadOnlyByItsOptionsIsNotDemoted(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads(defaults())
		w.volume("db", func(v *virtual.Volume) { v.ReadOnly = true })
		pv := read[corev1.PersistentVolume](w, "", "db")
		pv.Spec.CSI.ReadOnly, pv.Spec.MountOptions = false, []string{"noatime", "ro"}
		w.must(w.Client().Update(w.ctx, pv))
		w.workload("db", selected)
		w.pass(2 * time.Minute)
		before := w.pod("db-0")
		w.must(w.DRBD.Open("pvc-db", nodeA, false))
		w.pass(5 * time.Second)
		w.DRBD.Close("pvc-db", nodeA)
		w.pass(3 * time.Minute)
		w.wantStill(before)
	})
}

// What a pod has beside its volume, and needs not, is gone in LINSTOR.
func TestAnotherVolumeThatLinstorHasNotHoldsNothingUp(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads(defaults())
		w.volume("db")
		w.volume("exp", func(v *virtual.Volume) {
			v.Attributes = map[string]string{nfsExport: "true"}
			v.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		})
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Claims = append(workload.Claims, "data-exp") })
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA)
		w.must(w.Linstor.DeleteResource("pvc-exp"))
		w.pass(2 * time.Minute)
		w.Crash(nodeA)
		w.until(time.Minute, "db-0 was removed", func() bool { return len(w.removed("db-0")) > 0 })
	})
}

// The same with a volume that is created anew with each pod.
func TestAnEphemeralVolumeThatLinstorHasNotHoldsNothingUp(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads(defaults())
		w.volume("db")
		w.workload("db", selected, func(workload *virtual.Workload) { workload.Ephemeral = []string{"scratch"} })
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA)
		var volumes corev1.PersistentVolumeList
		w.must(w.Client().List(w.ctx, &volumes))
		for i := range volumes.Items {
			if pv := &volumes.Items[i]; pv.Name != "db" {
				w.Linstor.Intercept(func(rw http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "resource-definitions/"+pv.Spec.CSI.VolumeHandle) {
						return false
					}
					http.Error(rw, `[{"ret_code":-4611686018427386903,"message":"not found"}]`, http.StatusNotFound)
					return true
				})
			}
		}
		w.pass(time.Minute)
		w.Crash(nodeA)
		w.until(time.Minute, "db-0 was removed", func() bool { return len(w.removed("db-0")) > 0 })
	})
}

// crashes lets A crash, and fails the story unless the pod is removed soon.
func (w *world) crashes(p *process) {
	w.Helper()
	w.Crash(nodeA)
	for passed := time.Duration(0); len(w.removed("db-0")) == 0; passed += time.Second {
		w.pass(time.Second)
		if passed > 25*time.Second {
			verdict, reason := p.said("db", nodeA)
			w.Fatalf("the pod was not removed within %s: %s %s", passed, verdict, reason)
		}
	}
}

// Ordinary operations on a volume whose quorum is one that a person has set in an unusual way, before A crashes.
func TestACrashAfterOrdinaryOperationsWithUnusualQuorum(t *testing.T) {
	t.Parallel()
	quorums := map[string]func(w *world){
		"majority by LINSTOR":    func(*world) {},
		"majority on the group":  func(w *world) { w.Linstor.SetGroupProperty(linstorsim.DefaultGroup, linstorsim.PropQuorum, "majority") },
		"majority on controller": func(w *world) { w.Linstor.SetControllerProperty(linstorsim.PropQuorum, "majority") },
	}
	deeds := map[string]func(w *world){
		"nothing": func(*world) {},
		"a disk on C": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
		},
		"a disk on C, and it goes": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
			w.pass(time.Minute)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeC))
		},
		"A's node is rebooted": func(w *world) {
			w.Linstor.StopSatellite(nodeA)
			w.pass(10 * time.Second)
			w.Linstor.RestoreSatellite(nodeA)
		},
		"LINSTOR restarts": func(w *world) {
			w.Linstor.Stop()
			w.pass(5 * time.Second)
			w.Linstor.Restart()
			w.pass(10 * time.Second)
		},
		"T is lost, and C is the tie-breaker": func(w *world) {
			w.Crash(nodeT)
			w.pass(20 * time.Second)
			w.must(w.Linstor.LoseNode(nodeT))
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC, TieBreaker: true}))
		},
		"C has a client": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC, Diskless: true}))
			w.pass(10 * time.Second)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeC))
		},
		"a disk on C, then B's goes": func(w *world) {
			w.must(w.Linstor.Place("pvc-db", drbd.ReplicaSpec{Node: nodeC}))
			w.pass(time.Minute)
			w.must(w.Linstor.RemoveReplica("pvc-db", nodeB))
		},
	}
	for q, set := range quorums {
		for name, deed := range deeds {
			for _, wait := range []time.Duration{3 * time.Second, time.Minute} {
				t.Run(fmt.Sprintf("%s, %s, %s", q, name, wait), func(t *testing.T) {
					inWorld(t, virtual.Options{}, func(w *world) {
						w.must(w.AddNode(w.ctx, nodeC))
						w.bystanders()
						set(w)
						p := w.startProcess("one", defaults())
						p.leads(defaults())
						w.volume("db")
						w.workload("db", selected, func(workload *virtual.Workload) { workload.Nodes = []string{nodeA, nodeB, nodeC} })
						w.pass(2 * time.Minute)
						w.wantRunning("db-0", nodeA)
						deed(w)
						w.pass(wait)
						w.crashes(p)
					})
				})
			}
		}
	}
}

// A pod moves though it has a volume beside its own that cannot be taken over from the lost node, and need not be.
func TestAPodWithAVolumeThatNeedsNoSurvivorMoves(t *testing.T) {
	t.Parallel()
	shared := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	for name, beside := range map[string]func(w *world){
		"a generic ephemeral one": func(w *world) {
			w.workload("db", selected, func(workload *virtual.Workload) { workload.Ephemeral = []string{"scratch"} })
		},
		"an NFS export, whose server is on B": func(w *world) {
			w.volume("exp", func(v *virtual.Volume) {
				v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, ""
				v.Attributes, v.AccessModes = map[string]string{nfsExport: "true"}, shared
			})
			w.must(w.DRBD.Open("pvc-exp", nodeB, false))
			w.workload("db", selected, func(workload *virtual.Workload) { workload.Claims = append(workload.Claims, "data-exp") })
		},
		"a shared raw block volume, open on B": func(w *world) {
			w.volume("exp", func(v *virtual.Volume) { v.Block, v.AccessModes = true, shared })
			w.must(w.DRBD.Open("pvc-exp", nodeB, false))
			w.workload("db", selected, func(workload *virtual.Workload) { workload.Claims = append(workload.Claims, "data-exp") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads(defaults())
				w.volume("db")
				beside(w)
				w.pass(2 * time.Minute)
				w.wantRunning("db-0", nodeA)
				w.Crash(nodeA)
				for range 90 {
					w.pass(time.Second)
				}
				if !w.runs("db-0", nodeB) {
					verdict, reason := p.said("db", nodeA)
					t.Errorf("the pod does not run on B: %s %s, deletions %d", verdict, reason, len(w.removed("db-0")))
				}
			})
		})
	}
}
