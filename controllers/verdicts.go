package controllers

import (
	"sync"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// verdicts remembers the newest decision on each volume on each node that uses it, to count them. It is the leader's.
type verdicts struct {
	mu    sync.Mutex
	nodes byVolume[verdict]
}

// verdict is what a decision says in a word, and why.
type verdict struct {
	verdict failover.Verdict
	reason  failover.Reason
}

func newVerdicts() *verdicts { return &verdicts{nodes: make(byVolume[verdict])} }

// note takes a decision.
func (v *verdicts) note(volume, node string, d failover.Decision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodes.put(volume, node, verdict{d.Verdict, d.Reason})
}

// prune forgets every node of the volume that is not among the inputs.
func (v *verdicts) prune(volume string, inputs []failover.Input) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodes.prune(volume, inputs)
}

// forget forgets one.
func (v *verdicts) forget(volume, node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nodes.remove(volume, node)
}

// each visits all of them. It holds the lock, so that visit must not note or prune.
func (v *verdicts) each(visit func(volume, node string, known verdict)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for volume, nodes := range v.nodes {
		for node, known := range nodes {
			visit(volume, node, known)
		}
	}
}
