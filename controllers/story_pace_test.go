package controllers

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
)

// intruder is a pod on A that uses the volume "db" and is not selected.
func intruder() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "intruder"},
		Spec: corev1.PodSpec{NodeName: nodeA, Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db"},
		}}}},
	}
}

func TestATaintThatTakesItsTimeIsFollowedByAnotherLook(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		before := w.pod("db-0")
		var once sync.Once
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor != controllerActor+"one" || r.Verb != apimodel.VerbPatch || r.Kind != "Node" {
				return 0
			}
			once.Do(func() { time.AfterFunc(time.Second, func() { w.DRBD.Rejoin(nodeA) }) })
			return 3 * time.Second
		})
		w.DRBD.SetDetectionDelay(0)
		w.DRBD.Isolate(nodeA)
		w.until(20*time.Second, "A is tainted", func() bool { return w.tainted(nodeA) != "" })
		w.pass(20 * time.Second)
		w.wantStill(before)
	})
}

func TestPodsThatComeWhileLinstorIsAskedAreSeen(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.survivorReady("db")
		w.pass(4 * time.Second) // of the grace; the definition is read again when that is over
		before := w.pod("db-0")
		var once sync.Once
		w.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/resource-definitions/pvc-db") {
				once.Do(func() { time.AfterFunc(time.Second, func() { w.must(w.Client().Create(w.ctx, intruder())) }) })
				select {
				case <-time.After(2500 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
			return false
		})
		w.pass(30 * time.Second)
		w.wantStill(before)
		if verdict, reason := p.said("db", nodeA); verdict != failover.Blocked || reason != failover.SharedVolume {
			t.Errorf("told %s: %s", verdict, reason)
		}
	})
}

func TestEachStageOfAFailOverIsTimed(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.pass(5 * time.Minute)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(p.parts.failover.reports.metrics.Collectors()...)
		families, err := registry.Gather()
		w.must(err)
		timed := map[string]uint64{}
		for _, family := range families {
			if family.GetName() == "piraeus_ha_controller_failover_duration_seconds" {
				for _, m := range family.GetMetric() {
					timed[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		want := map[string]uint64{"decide": 1, "pods_gone": 1, "release": 1, "attached": 1}
		if diff := cmp.Diff(want, timed); diff != "" {
			t.Errorf("stages (-want +got):\n%s", diff)
		}
		if left := p.parts.failover.reports.detached; len(left) > 0 {
			t.Errorf("still expected to arrive: %v", left)
		}
	})
}
