package controllers

import (
	"maps"
	"math"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// move is a fail-over that has begun, of a volume that is not attached to another node yet.
type move struct {
	node    string // that lost the volume
	reason  failover.Reason
	message string
	begun   time.Time
	suspect time.Time // since when the loss was suspected; zero where another process saw it first
	left    time.Time // when its attachment there was deleted, by whom ever; zero before that
	// took is how long the stages took that are over.
	took map[metrics.Stage]time.Duration
}

// seconds are those of the stages, as a user reads them.
func (m move) seconds() map[metrics.Stage]float64 {
	seconds := make(map[metrics.Stage]float64, len(m.took))
	for stage, d := range m.took {
		seconds[stage] = math.Round(d.Seconds()*1000) / 1000
	}
	return seconds
}

// begin notes that a volume's fail-over has begun; the caller holds the lock.
func (r *reports) begin(volume, node string, d failover.Decision, suspect time.Time) *move {
	maps.DeleteFunc(r.moves, func(volume string, m *move) bool { return r.forgotten(volume, m) })
	m := &move{
		node: node, reason: d.Reason, message: d.Message, begun: r.now(), suspect: suspect, took: make(map[metrics.Stage]time.Duration),
	}
	r.moves[volume] = m
	return m
}

// forgotten tells whether a volume is not expected elsewhere any more: its pod may have been taken away for good. The caller holds the
// lock.
func (r *reports) forgotten(volume string, m *move) bool {
	if m.left.IsZero() {
		return r.said[volume][m.node] == nil && r.now().Sub(m.begun) > departureMemory
	}
	return r.now().Sub(m.left) > departureMemory
}

// took notes how long a stage of a volume's fail-over has taken; the caller holds the lock.
func (r *reports) took(volume, node string, stage metrics.Stage, d time.Duration) {
	r.metrics.Took(stage, d)
	if m := r.moves[volume]; m != nil && m.node == node {
		m.took[stage] = d
	}
}

// movesFrom returns the node that a volume is moved off, and whether its attachment there was deleted.
func (r *reports) movesFrom(volume string) (node string, left, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.moves[volume]
	if m == nil || r.forgotten(volume, m) {
		return "", false, false
	}
	return m.node, !m.left.IsZero(), true
}

// leftByItself notes that Kubernetes has deleted the attachment of a volume that is moved off its node: a kubelet that lives lets go of
// a volume whose pods are gone.
func (r *reports) leftByItself(volume string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.moves[volume]; m != nil && m.left.IsZero() {
		m.left = r.now()
	}
}

// stays notes that a volume is well where it was lost: its fail-over is over without a move.
func (r *reports) stays(volume, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.moves[volume]; m != nil && m.node == node {
		delete(r.moves, volume)
	}
}

// arrived notes that a volume that was moved off a lost node is attached to another one, and returns its move, once.
func (r *reports) arrived(volume string) (move, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.moves[volume]
	if m == nil {
		return move{}, false
	}
	r.took(volume, m.node, metrics.StageAttached, r.now().Sub(m.left))
	if !m.suspect.IsZero() {
		r.took(volume, m.node, metrics.StageTotal, r.now().Sub(m.suspect))
	}
	r.metrics.FailoverCompleted(m.reason)
	r.arrivals = append(r.arrivals, arrival{volume, m.node, r.now()})
	delete(r.moves, volume)
	delete(r.departed, volume)
	return *m, true
}

// takeArrivals returns the volumes that have arrived elsewhere since the last call.
func (r *reports) takeArrivals() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.arrivals
	r.arrivals = nil
	return all
}

// isWell tells whether pods that are not on their way out use the volume on a node that it works on.
func isWell(in failover.Input, d failover.Decision) bool {
	well := d.Reason == failover.PrimaryHealthy || d.Reason == failover.VolumeUnused
	return well && d.Verdict == failover.NotLost && isKept(in)
}

// isKept tells whether pods use the volume on a node, of which none is on its way out.
func isKept(in failover.Input) bool {
	for _, pod := range in.Pods {
		if !pod.DeleteBy.IsZero() {
			return false
		}
	}
	return len(in.Pods) > 0
}
