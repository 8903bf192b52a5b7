package controllers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// A volume that its mount options mount read-only is Secondary under its pods. It was in use for a moment, as it is when it is resized.
func TestAVolumeThatIsMountedReadOnlyByItsOptionsIsNotDemoted(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
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
		p.leads()
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
		p.leads()
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
				p.leads()
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

// Nothing could follow from what LINSTOR says of a healthy volume, so nobody would ask for it. A pod that has lost another one goes by that
// word too, and it must be fresh when the grace is over.
func TestAPodMovesInTimeForOneOfItsVolumesThoughTheOtherIsWell(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		w.volume("db")
		w.volume("wal")
		w.workload("both", selected, func(workload *virtual.Workload) { workload.Claims = []string{"data-db", "data-wal"} })
		w.pass(2 * time.Minute)
		w.wantRunning("both-0", nodeA)
		w.DRBD.Close("pvc-db", nodeA)
		grace := defaults().Settings.KnownGrace
		if took := w.untilRemoved(2*time.Minute, "both-0"); took < grace-time.Second || took > grace+5*time.Second {
			t.Errorf("the pod is removed after %s, want the known grace", took)
		}
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("both-0", nodeB) })
		if p.events.has(string(failover.OtherVolumeUnavailable), "Pod", "both-0") {
			t.Error("it was told that the healthy volume could not be used on another node")
		}
	})
}
