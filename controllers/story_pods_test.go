package controllers

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// initScene is a controller that leads by default settings, and a volume whose workload is in its init container, which takes an hour.
func initScene(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		cfg := defaults()
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(workload *virtual.Workload) { workload.InitTime = time.Hour })
		w.pass(2 * time.Minute)
		if pod := w.pod("db-0"); len(pod.Status.InitContainerStatuses) == 0 || len(pod.Status.ContainerStatuses) > 0 {
			t.Fatalf("its init container does not run: %+v", pod.Status)
		}
		tell(w, p)
	})
}

// The kubelet mounts all volumes before the first init container starts: it may restore a backup for hours.
func TestStorageIsLostUnderALongInitContainer(t *testing.T) {
	initScene(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.survivorReady("db")
		w.untilRemoved(10*time.Second, "db-0")
	})
}

func TestANodeCrashesUnderALongInitContainer(t *testing.T) {
	initScene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.untilRemoved(20*time.Second, "db-0")
	})
}
