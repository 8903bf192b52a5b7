package controllers

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// A pod that waits for a volume which nobody seems to use is told where it is in use: Kubernetes waits without a word.
func TestAPodThatWaitsForAVolumeInUseWithoutAPodIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds func(*world)
		told  bool
	}{
		"no pod uses it": {func(w *world) { w.must(w.DRBD.Open("pvc-db", nodeA, false)) }, true},
		"a pod that is not selected uses it": {func(w *world) {
			w.workload("guest", nil, func(x *virtual.Workload) { x.Claims, x.Nodes = []string{"data-db"}, []string{nodeA} })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				p := w.startProcess("one", defaults())
				p.leads()
				w.volume("db")
				w.pass(time.Minute)
				c.holds(w)
				w.pass(2 * time.Minute)
				w.workload("db", selected, func(x *virtual.Workload) { x.Nodes = []string{nodeB} })
				w.pass(5 * time.Minute)
				if pod := w.pod("db-0"); pod == nil || w.runs("db-0", nodeB) {
					t.Fatalf("the pod does not wait: %+v", pod)
				}
				if told := p.events.has(EventInUseWithoutPod, "Pod", "db-0"); told != c.told {
					t.Errorf("told: %t, want %t: %v", told, c.told, p.events.reasons("Pod", "db-0"))
				}
			})
		})
	}
}
