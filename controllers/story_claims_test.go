package controllers

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// reclaimed is a controller that leads by default settings, and a workload "db-0" on A whose claim was deleted and created again under
// its name: the volume "a-old" is released and retained beside the volume "db".
func reclaimed(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("a-old", func(v *virtual.Volume) { v.Claim = "data-db" })
		w.pass(time.Minute)
		w.must(w.ReleaseVolume(w.ctx, "a-old"))
		w.volume("db")
		w.workload("db", selected)
		w.pass(2 * time.Minute)
		w.wantRunning("db-0", nodeA)
		tell(w, p)
	})
}

func TestAReleasedVolumeOfTheSameClaimIsNotThePods(t *testing.T) {
	reclaimed(t, func(w *world, _ *process) {
		before := w.pod("db-0")
		for _, peer := range []string{nodeB, nodeT} {
			w.DRBD.CutResourceLink("pvc-a-old", nodeA, peer)
		}
		w.pass(time.Minute)
		w.Linstor.StopSatellite(nodeA)
		w.pass(3 * time.Minute)
		w.Linstor.RestoreSatellite(nodeA)
		w.pass(time.Minute)
		w.wantStill(before)
		if got := w.removed("db-0"); len(got) > 0 {
			t.Errorf("the pod was removed %d times", len(got))
		}
	})
}

func TestAReleasedVolumeThatLinstorHasNotIsNobodysConcern(t *testing.T) {
	reclaimed(t, func(w *world, _ *process) {
		w.must(w.Linstor.DeleteResource("pvc-a-old"))
		w.pass(time.Minute)
		var asked atomic.Int32
		w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.String(), "pvc-a-old") {
				asked.Add(1)
			}
			return false
		})
		w.Linstor.ResetRequests()
		w.pass(time.Minute)
		if got := asked.Load(); got > 0 {
			t.Errorf("LINSTOR was asked %d times about the volume", got)
		}
		total := 0
		for _, n := range w.Linstor.Requests() {
			total += n
		}
		if total > 60 {
			t.Errorf("LINSTOR was asked %d times in a minute: %v", total, w.Linstor.Requests())
		}
		w.Crash(nodeA)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}

// If several volumes name a claim, the claim itself shows which of them it has.
func TestTheClaimIsReadIfSeveralVolumesNameIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		its    bool
	}{
		"one volume names the claim": {func(*steps) {}, true},
		"another volume names the claim, which is that one's": {func(s *steps) {
			s.volumeNaming("new", corev1.VolumeBound)
			s.replaceClaim("new")
		}, false},
		"another volume names the claim, which is gone": {func(s *steps) {
			s.volumeNaming("new", corev1.VolumeBound)
			s.deleteClaim()
		}, false},
		"another volume names the claim, which has this one": {func(s *steps) {
			s.volumeNaming("old", corev1.VolumeReleased)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.change(s)
				pods, err := s.r.live.PodsOn(s.ctx, nodeA)
				s.must(err)
				pods, err = s.r.live.UsersOf(s.ctx, s.pv, pods)
				s.must(err)
				if its := len(pods) == 1; its != tc.its {
					t.Errorf("the pod uses the volume: %t, want %t", its, tc.its)
				}
			})
		})
	}
}

func (s *steps) deleteClaim() {
	s.Helper()
	s.must(s.api.Delete(s.ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db"}}))
}

// replaceClaim lets the claim be another one of that name, which has the volume.
func (s *steps) replaceClaim(volume string) {
	s.Helper()
	s.deleteClaim()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db"}}
	claim.Spec.VolumeName = volume
	s.must(s.api.Create(s.ctx, claim))
}

// volumeNaming adds another volume that names the claim.
func (s *steps) volumeNaming(name string, phase corev1.PersistentVolumePhase) {
	s.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-"+name)
	bind(pv, "default", "data-db")
	pv.Spec.ClaimRef.UID, pv.Status.Phase = types.UID("another"), phase
	s.must(s.api.Create(s.ctx, pv))
}

// Nothing is removed by a claim that cannot be read.
func TestAClaimOrPersistentVolumeThatCannotBeReadIsTold(t *testing.T) {
	for _, kind := range []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.r.live.Reader = without{s.r.live.Reader, kind}
			if err := s.r.live.ConfirmClaims(s.ctx, s.pod()); err == nil || !strings.Contains(err.Error(), "default/data-db") {
				t.Errorf("without %T, ConfirmClaims = %v, want an error that names the claim", kind, err)
			}
		})
	}
}

// The watches have been dead for two minutes. Meanwhile a claim is deleted and created again, and its pod may write to another volume by now.
func TestAPodOfAClaimThatWasCreatedAgainBehindDeadWatchesStays(t *testing.T) {
	scene(t, func(w *world, p *process) {
		pod := w.pod("db-0")
		p.view.Pause()
		w.pass(2 * time.Minute)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db"}}
		w.must(w.Client().Delete(w.ctx, claim))
		claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db"}}
		claim.Spec.VolumeName = "another"
		w.must(w.Client().Create(w.ctx, claim))
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		w.wantStill(pod)
		if w.attachment("db", nodeA) == nil {
			t.Error("the volume was detached")
		}
		if !w.told(p, "claim default/data-db has PersistentVolume \"another\" by now") {
			t.Error("nobody was told why")
		}
	})
}

// A PersistentVolume that was created again, such as with another node affinity, names its claim before it is Bound. Nothing is detached
// meanwhile as if nobody used it.
func TestNobodyKnowsWhoUsesAPersistentVolumeThatIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		pods, err := s.r.live.PodsOn(s.ctx, nodeA)
		s.must(err)
		s.pv.Status.Phase = corev1.VolumePending
		if _, err := s.r.live.UsersOf(s.ctx, s.pv, pods); err == nil || !strings.Contains(err.Error(), "default/data-db") {
			t.Errorf("UsersOf = %v, want an error that names the claim", err)
		}
		s.pv.Spec.ClaimRef = nil
		users, err := s.r.live.UsersOf(s.ctx, s.pv, pods)
		s.must(err)
		if len(users) != 0 {
			t.Errorf("a volume without a claim has users: %v", users)
		}
	})
}

func TestTwoPersistentVolumesOfOneHandleShareTheirPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		twin := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db-again"}}
		twin.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-db")
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-again"}}
		claim.Spec.VolumeName = twin.Name
		s.must(s.api.Create(s.ctx, claim))
		bind(twin, "default", "data-again")
		twin.Spec.ClaimRef.UID = claim.UID
		s.must(s.api.Create(s.ctx, twin))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "again-0"}}
		pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-again", false)}
		s.must(s.api.Create(s.ctx, pod))
		for _, pv := range []*corev1.PersistentVolume{s.pv, twin} {
			cached, err := s.r.pods.Of(s.ctx, pv)
			s.must(err)
			all, err := s.r.live.PodsOn(s.ctx, nodeA)
			s.must(err)
			live, err := s.r.live.UsersOf(s.ctx, pv, all)
			s.must(err)
			if len(cached) != 2 || len(live) != 2 {
				t.Errorf("volume %s has %d pods in the cache and %d in the API, want 2 of both", pv.Name, len(cached), len(live))
			}
		}
		if got, err := s.r.volumes.OfPod(s.ctx, pod); err != nil || len(got) != 2 {
			t.Errorf("a change of a pod concerns %v, %v, want both volumes", got, err)
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, claimVolume("data-db", false))
		s.must(s.api.Update(s.ctx, pod))
		if cached, err := s.r.pods.Of(s.ctx, s.pv); err != nil || len(cached) != 2 {
			t.Errorf("%d pods, %v, want 2: the pod that names both claims is one pod", len(cached), err)
		}
	})
}

func TestAPodThatMayNotGoKeepsTheOneOnTheOtherVolumeOfItsHandle(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.volume("twin", func(v *virtual.Volume) { v.Handle = "pvc-db" })
		w.workload("twin", nil)
		w.pass(2 * time.Minute)
		w.wantRunning("twin-0", nodeA)
		db, twin := w.pod("db-0"), w.pod("twin-0")
		w.Crash(nodeA)
		w.pass(3 * time.Minute)
		w.wantStill(db)
		w.wantStill(twin)
		if _, reason := p.said("db", nodeA); reason != "SharedVolume" {
			t.Errorf("said %s, want SharedVolume", reason)
		}
		if w.attachment("db", nodeA) == nil && w.attachment("twin", nodeA) == nil { // Kubernetes has one for both
			t.Error("a volume was detached under a pod")
		}
	})
}

func TestTwoPodsOnTwoVolumesOfOneHandleMoveTogether(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.volume("twin", func(v *virtual.Volume) { v.Handle = "pvc-db" })
		w.workload("twin", selected)
		w.pass(2 * time.Minute)
		w.wantRunning("twin-0", nodeA)
		w.Crash(nodeA)
		w.until(30*time.Second, "both run on B", func() bool { return w.runs("db-0", nodeB) && w.runs("twin-0", nodeB) })
	})
}

// without is an API by which no object of a kind can be read.
type without struct {
	client.Reader
	kind client.Object
}

func (f without) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if reflect.TypeOf(o) == reflect.TypeOf(f.kind) {
		return errors.New("no")
	}
	return f.Reader.Get(ctx, key, o, options...)
}

// What a pod writes by a claim whose PersistentVolume is being created again is not known, so that quorum is known to fence nothing there:
// the pod stays, also where its unsafe volumes do not keep it.
func TestAPodStaysWhileTheVolumeOfAnotherClaimIsCreatedAgain(t *testing.T) {
	cfg := defaults()
	cfg.Settings.RemoveUnsafePods = true
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		w.volume("log")
		w.volume("wal")
		w.workload("log", selected, func(v *virtual.Workload) { v.Claims = []string{"data-log", "data-wal"} })
		w.pass(2 * time.Minute)
		w.wantRunning("log-0", nodeA)
		phase := func(phase corev1.PersistentVolumePhase) {
			var pv corev1.PersistentVolume
			w.must(w.Client().Get(w.ctx, client.ObjectKey{Name: "wal"}, &pv))
			pv.Status.Phase = phase
			w.must(w.Client().Status().Update(w.ctx, &pv))
		}
		pod := w.pod("log-0")
		phase(corev1.VolumePending)
		w.Crash(nodeA)
		w.pass(2 * time.Minute)
		w.wantStill(pod)
		if verdict, reason := p.said("log", nodeA); reason != "OtherVolumeUnavailable" {
			t.Errorf("said %s %s, want OtherVolumeUnavailable", verdict, reason)
		}
		phase(corev1.VolumeBound)
		w.until(time.Minute, "the pod runs on B", func() bool { return w.runs("log-0", nodeB) })
	})
}

// A pod that would wait elsewhere for one of its volumes stays with it: its node may come back, and with it the pod that keeps the volume there.
func TestAPodStaysWithAVolumeThatAnotherPodKeeps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		labels map[string]string
		lose   func(w *world)
		exempt func(*virtual.Workload)
		moves  bool
	}{
		"on a node that has crashed, one that is not selected":     {nil, func(w *world) { w.Crash(nodeA) }, func(*virtual.Workload) {}, false},
		"on a node that has crashed, one that is exempt":           {selected, func(w *world) { w.Crash(nodeA) }, exempt, false},
		"but moves together with one that may go, too":             {selected, func(w *world) { w.Crash(nodeA) }, func(*virtual.Workload) {}, true},
		"on a node that lives and has lost the other volume":       {nil, loseStorageOf("db"), func(*virtual.Workload) {}, false},
		"on a node that lives, as long as the other pod is exempt": {selected, loseStorageOf("db"), exempt, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db")
				w.volume("wal")
				w.workload("both", selected, func(v *virtual.Workload) { v.Claims = []string{"data-db", "data-wal"} })
				w.workload("second", tc.labels, func(v *virtual.Workload) { v.Claims = []string{"data-wal"} }, tc.exempt)
				w.pass(time.Minute)
				w.wantRunning("both-0", nodeA)
				w.wantRunning("second-0", nodeA)
				tc.lose(w)
				if tc.moves {
					w.until(time.Minute, "both run on B", func() bool { return w.runs("both-0", nodeB) && w.runs("second-0", nodeB) })
					return
				}
				w.pass(2 * time.Minute)
				if got := w.removed("both-0"); len(got) > 0 {
					t.Errorf("the pod was removed: %v", got)
				}
				if verdict, reason := p.said("db", nodeA); verdict != failover.Blocked || reason != failover.SharedVolume {
					t.Errorf("told %s: %s, want that it is blocked by the shared volume", verdict, reason)
				}
			})
		})
	}
}

// loseStorageOf cuts a volume on A off from its replicas, while the node and its other volumes are well.
func loseStorageOf(volume string) func(w *world) {
	return func(w *world) {
		w.DRBD.CutResourceLink("pvc-"+volume, nodeA, nodeB)
		w.DRBD.CutResourceLink("pvc-"+volume, nodeA, nodeT)
	}
}

// Without its PersistentVolume a volume is never detached by the attacher. Nobody makes that one again, and nothing is left but its attachment.
func TestAVolumeWhosePersistentVolumeIsDeletedAmidItsFailOverHoldsNothing(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.StopAttacher()
		w.Crash(nodeA)
		w.until(time.Minute, "the attachment is being deleted", func() bool {
			va := w.attachment("db", nodeA)
			return va != nil && va.DeletionTimestamp != nil
		})
		pv := read[corev1.PersistentVolume](w, "", "db")
		pv.Finalizers = nil
		w.must(w.Client().Update(w.ctx, pv))
		w.must(w.Client().Delete(w.ctx, pv))
		w.Return(nodeA)
		w.until(2*recreatedWithin, "A takes pods again", func() bool { return w.tainted(nodeA) == "" })
		if n := p.shown("volumes verdict=Lost"); n != 0 {
			t.Errorf("%g volumes are lost, want none", n)
		}
		if lines := (&Memory{p.parts}).Lines(); len(lines) > 0 {
			t.Errorf("the controller remembers: %s", strings.Join(lines, "; "))
		}
		if lost := p.parts.node.reports.lost(); len(lost) > 0 {
			t.Errorf("nodes that have lost a volume: %v", lost)
		}
	})
}
