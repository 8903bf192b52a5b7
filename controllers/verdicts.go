package controllers

import (
	"slices"
	"sync"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// verdicts remembers the newest decision on each volume on each node that uses it, to count them. It is the leader's.
type verdicts struct {
	mu    sync.Mutex
	nodes map[string]map[string]verdict // by volume
}

// verdict is what a decision says in a word, and why.
type verdict struct {
	verdict failover.Verdict
	reason  failover.Reason
}

func newVerdicts() *verdicts { return &verdicts{nodes: make(map[string]map[string]verdict)} }

// note takes a decision.
func (v *verdicts) note(volume, node string, d failover.Decision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.nodes[volume] == nil {
		v.nodes[volume] = make(map[string]verdict, 1)
	}
	v.nodes[volume][node] = verdict{d.Verdict, d.Reason}
}

// prune forgets every node of the volume that is not among the inputs.
func (v *verdicts) prune(volume string, inputs []failover.Input) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for node := range v.nodes[volume] {
		if !slices.ContainsFunc(inputs, func(in failover.Input) bool { return in.Node.Name == node }) {
			v.remove(volume, node)
		}
	}
}

// forget forgets one.
func (v *verdicts) forget(volume, node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.remove(volume, node)
}

// remove forgets one; the caller holds the lock.
func (v *verdicts) remove(volume, node string) {
	delete(v.nodes[volume], node)
	if len(v.nodes[volume]) == 0 {
		delete(v.nodes, volume)
	}
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
