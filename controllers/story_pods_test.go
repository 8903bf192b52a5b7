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

// Kubernetes calls a node Ready for up to 50 s after it died, and places pods there. They cannot start, and what the node may run of volumes
// that it never had is not known until it is back.
func TestAPodThatIsPlacedOnADeadNodeMoves(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after  time.Duration
		claims []string
	}{
		"LINSTOR takes the node for ONLINE, which has no replica":      {0, []string{"data-far"}},
		"LINSTOR has missed the node, which has no replica":            {15 * time.Second, []string{"data-far"}},
		"of one volume it has a replica, of another none":              {0, []string{"data-db", "data-far"}},
		"of one volume it has a replica, and of two further ones none": {15 * time.Second, []string{"data-db", "data-far", "data-further"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, virtual.Options{}, func(w *world) {
				const nodeC = "node-c"
				w.must(w.AddNode(w.ctx, nodeC))
				p := w.startProcess("one", defaults())
				p.leads()
				elsewhere := func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeC }
				w.volume("db")
				w.volume("far", elsewhere)
				w.volume("further", elsewhere)
				w.pass(2 * time.Minute)
				w.Crash(nodeA)
				w.pass(tc.after)
				w.workload("db", selected, func(workload *virtual.Workload) { workload.Claims = tc.claims })
				w.until(3*time.Minute, "db-0 runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}

// A kubelet may be silent where the node lives and LINSTOR reaches it. The pod waits for it, as it waits for its volume.
func TestAPodThatIsPlacedOnANodeWithASilentKubeletStays(t *testing.T) {
	inWorld(t, virtual.Options{}, func(w *world) {
		const nodeC = "node-c"
		w.must(w.AddNode(w.ctx, nodeC))
		w.startProcess("one", defaults()).leads()
		w.volume("far", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeB, nodeT}, nodeC })
		w.pass(2 * time.Minute)
		w.StopAttacher()
		w.SilenceKubelet(nodeA)
		w.workload("far", selected)
		w.pass(3 * time.Minute)
		if removed := w.removed("far-0"); len(removed) > 0 {
			t.Errorf("the pod was removed: %v", removed)
		}
	})
}
