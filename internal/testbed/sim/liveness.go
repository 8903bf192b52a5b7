package sim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

type liveness struct {
	// stuck are the pods that were reported as StuckOnNode.
	stuck map[types.UID]bool
	// lost is since when a pod has had to go.
	lost map[types.UID]time.Time
}

func newLiveness() liveness {
	return liveness{stuck: make(map[types.UID]bool), lost: make(map[types.UID]time.Time)}
}

func (w *world) settled() {}

// check holds the world as it is against the invariants that no single act can break.
func (w *world) check() {
	w.listen()
	w.checkWriters()
}

// checkWriters: where quorum fences, and nobody has changed that, two nodes never write and the data never diverges.
func (w *world) checkWriters() {
	for _, v := range w.history.World.Volumes {
		resource := v.Resource()
		if w.changed[resource] || !w.fenced(v) || v.Shared {
			continue
		}
		if writers := w.writers(resource); len(writers) > 1 {
			w.violated(ruleTwoPrimaries, "resource %s: %v", resource, writers)
		}
		if w.DRBD.Diverged(resource) {
			w.violated(ruleTwoPrimaries, "resource %s has diverged", resource)
		}
	}
}

// fenced tells whether the quorum of a volume fences a node without its peers.
func (w *world) fenced(v Volume) bool {
	switch v.Quorum {
	case "majority", "all":
		return true
	case "":
		return len(v.Diskful) >= 3 || len(v.Diskful) == 2 && v.TieBreaker != ""
	}
	return false
}
