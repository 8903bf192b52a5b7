package controllers

import (
	"slices"
	"sync"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// verdicts remembers the newest decision on each volume on each node that uses it, to count them. It is the leader's.
type verdicts struct {
	mu sync.Mutex
	// volumes has those of each volume, mostly a single one: a map by node would take ten times the memory.
	volumes map[string][]verdict
}

// verdict is what a decision on a volume on a node says in a word, and why.
type verdict struct {
	node    string
	verdict failover.Verdict
	reason  failover.Reason
}

func newVerdicts() *verdicts { return &verdicts{volumes: make(map[string][]verdict)} }

// note takes a decision.
func (v *verdicts) note(volume, node string, d failover.Decision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, newest := v.volumes[volume], verdict{node, d.Verdict, d.Reason}
	if i := slices.IndexFunc(all, func(known verdict) bool { return known.node == node }); i >= 0 {
		all[i] = newest
	} else {
		v.volumes[volume] = append(all, newest)
	}
}

// prune forgets every node of the volume that is not among the inputs.
func (v *verdicts) prune(volume string, inputs []failover.Input) {
	v.drop(volume, func(known verdict) bool {
		return !slices.ContainsFunc(inputs, func(in failover.Input) bool { return in.Node.Name == known.node })
	})
}

// forget forgets one.
func (v *verdicts) forget(volume, node string) {
	v.drop(volume, func(known verdict) bool { return known.node == node })
}

// drop forgets some of a volume, and the volume with the last one.
func (v *verdicts) drop(volume string, dropped func(verdict) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all, ok := v.volumes[volume]
	if !ok {
		return
	}
	if v.volumes[volume] = slices.DeleteFunc(all, dropped); len(v.volumes[volume]) == 0 {
		delete(v.volumes, volume)
	}
}

// each visits all of them. It holds the lock, so that visit must not note or prune.
func (v *verdicts) each(visit func(volume string, known verdict)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for volume, all := range v.volumes {
		for _, known := range all {
			visit(volume, known)
		}
	}
}
