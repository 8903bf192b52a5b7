package sim

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// ruleSuspect: nothing is removed while so much of the cluster was lost within a short time that the view is suspect.
const ruleSuspect = "a pod was deleted while most of the nodes seemed lost at once"

const (
	// suspectFor is for how long a node that has left ONLINE counts at least, but for a tick in which only LINSTOR knew: it counts from the loss of its
	// first volume, and LINSTOR may take seven seconds more to miss the satellite.
	suspectFor = failover.GuardQuiet - 7*time.Second - 2*tick
	// suspectAfter is how long it must have left ONLINE for everybody who may delete anything to know.
	suspectAfter = 5 * time.Second
)

// satellites is what LINSTOR has shown of its satellites.
type satellites struct {
	// left is since when a node has not been ONLINE that was.
	left map[string]time.Time
	// seen are the nodes that were ONLINE a tick ago.
	seen map[string]bool
}

func newSatellites() satellites {
	return satellites{left: make(map[string]time.Time), seen: make(map[string]bool)}
}

// watchSatellites notes which satellites LINSTOR shows as ONLINE.
func (w *world) watchSatellites() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.history.World.Nodes {
		online := w.Linstor.ConnectionStatus(node) == linstorsim.Online
		switch {
		case online:
			delete(w.left, node)
			delete(w.leftSafe, node)
		case w.seen[node]:
			w.left[node] = time.Now()
			w.leftSafe[node] = w.wasSafe(node)
		}
		w.seen[node] = online
	}
}

// auditView holds the deletion of a pod against what LINSTOR showed of the whole cluster when it was sent. It takes a node for lost only where
// everybody must, and for well where anybody may.
func (w *world) auditView(b basis, what string) {
	if 2*b.lost > b.lost+b.well {
		w.violated(ruleSuspect, "%s, while %d nodes had just been lost of %d that count", what, b.lost, b.lost+b.well)
	}
}

// mayBeTainted tells whether the controller may take it that a node is to leave: it is, or was when the controller looked; the lock is held.
func (w *world) mayBeTainted(node string) bool {
	_, is := w.tainted[node]
	at, was := w.stays[node]
	return is || was && time.Since(at) <= failover.ActAge+w.history.World.Lag
}

// lostNodes counts the nodes that must be taken for lost just now, and those that may be taken for well.
func (w *world) lostNodes() (lost, well int) { return w.lostNodesFor(0) }

// lostNodesFor counts those that must have been taken for lost for so long, and those that may have been taken for well.
func (w *world) lostNodesFor(age time.Duration) (lost, well int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.history.World.Nodes {
		if w.Linstor.ConnectionStatus(node) == "" {
			continue // a person has declared it lost
		}
		since, left := w.left[node]
		switch gone := time.Since(since); {
		case left && w.leftSafe[node] && w.mayBeTainted(node): // it was to be expected
		case !left || gone < suspectAfter+age:
			well++
		case gone < suspectFor:
			lost++
		}
	}
	return lost, well
}
