package sim

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// RuleHalted is that LINSTOR is told nothing while the controller must not act. A dry run tells it nothing at all.
const RuleHalted = "LINSTOR was told something while the controller must not act"

// auditHalt holds anything that LINSTOR is told against what forbids the controller to act, if that has been so for longer than the look may be
// old that the call rests on.
func (w *world) auditHalt(call evacuation.Call, what string) {
	if w.history.World.DryRun {
		w.violated(ruleDryRun, "LINSTOR was told: %s", what)
	}
	if w.paused && time.Since(w.pausedAt) > call.MaxAge() {
		w.violated(RuleHalted, "%s, while fail-over is paused", what)
	}
	w.watchSatellites()
	if lost, well := w.lostNodesFor(call.MaxAge()); 2*lost > lost+well {
		w.violated(RuleHalted, "%s, while %d nodes had just been lost of %d that count", what, lost, lost+well)
	}
}
