package controllers

import (
	"slices"
	"sync"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// losses remembers which volumes are lost on which nodes for a reason that speaks of the node, whether or not anything follows from
// it. Every replica keeps it, so that the guard of a new leader knows which nodes were lost before.
type losses struct {
	mu    sync.Mutex
	nodes byVolume[bool]
}

func newLosses() *losses { return &losses{nodes: make(byVolume[bool])} }

// decided notes a decision on a volume on a node. What is not known for a moment remains what it was.
func (l *losses) decided(volume, node string, d failover.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case failover.SpeaksOfTheNode(d.Loss):
		l.nodes.put(volume, node, true)
	case !isUntold(d):
		l.nodes.remove(volume, node)
	}
}

// isUntold tells whether it is not known that a node has not lost a volume.
func isUntold(d failover.Decision) bool {
	return d.Verdict == failover.Undecided &&
		slices.Contains([]failover.State{failover.Unknown, failover.Unreachable, failover.PrimaryWithoutQuorum}, d.State)
}

// prune forgets every node of the volume that is not among the inputs.
func (l *losses) prune(volume string, inputs []failover.Input) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes.prune(volume, inputs)
}

// lostNodes returns the nodes with a volume that is lost there.
func (l *losses) lostNodes() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := make(map[string]bool)
	for _, nodes := range l.nodes {
		for node := range nodes {
			lost[node] = true
		}
	}
	return lost
}
