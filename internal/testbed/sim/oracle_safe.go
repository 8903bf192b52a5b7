package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// RuleSafeFalsely is that a node is not called StorageSafe while a volume has no disk elsewhere that may be relied upon: UpToDate, to stay, and on a
	// node that is ONLINE, Ready and not leaving. What E5 asks when the node is switched off is asked here all the time.
	RuleSafeFalsely = "a node is StorageSafe although a volume has no copy elsewhere that may be relied upon"
	// RuleGoneFalsely is that none is called, or stays called, evacuated that has a disk.
	RuleGoneFalsely = "a node is StorageEvacuated although it has a disk"
)

// noticed is how long a leader that can act may take until a node says what has become of it: a kubelet's silence comes on top of that.
const noticed = 30 * time.Second

// checkWords holds what nodes say of themselves against the truth.
func (w *world) checkWords() {
	w.mu.Lock()
	tainted := slices.Sorted(maps.Keys(w.tainted))
	w.mu.Unlock()
	able := w.canAct() && w.lagPatience() == 0 && !w.isBlind() && len(w.hung) == 0 && len(w.pending) == 0 &&
		!slices.ContainsFunc(w.history.World.Nodes, func(node string) bool { return w.hanging[node] })
	for _, name := range tainted {
		node, _ := w.leaverOf(name)
		conditions := evacuation.Conditions{}
		if node != nil && able {
			conditions = cluster.EvacuationConditions(node)
		}
		safe, gone := isTrue(conditions.Safe), isTrue(conditions.Evacuated)
		for _, resource := range w.DRBD.Resources() {
			if !w.isVolume(resource) || w.ofNobody(resource) {
				continue
			}
			disk := slices.Contains(w.Linstor.DiskNodes(resource), name)
			at := place{resource, name}
			w.mu.Lock()
			keepSince(w.disksSince, at, disk)
			w.mu.Unlock()
			w.falsely(untruth{RuleSafeFalsely, at, noticed}, safe && disk && !w.hasReliable(resource, name, false))
			w.falsely(untruth{RuleSafeFalsely, at, noticed + w.longestSilence()}, safe && disk && !w.hasReliable(resource, name, true))
			w.falsely(untruth{RuleGoneFalsely, at, noticed}, gone && disk)
		}
	}
}

// auditGone holds it against the truth that a node has just been called evacuated.
func (w *world) auditGone(name string) {
	if slices.ContainsFunc(w.history.World.Nodes, func(node string) bool { return w.hanging[node] }) {
		return // what LINSTOR says may be as old as it pleases
	}
	var left []string
	w.mu.Lock()
	for at, since := range w.disksSince {
		if at.node == name && time.Since(since) > noticed && slices.Contains(w.Linstor.DiskNodes(at.what), name) {
			left = append(left, at.what)
		}
	}
	w.mu.Unlock()
	if slices.Sort(left); len(left) > 0 {
		w.violated(RuleGoneFalsely, "resources %v on %s", left, name)
	}
}

// untruth is what a node may not say of itself for longer than that.
type untruth struct {
	rule    string
	at      place
	noticed time.Duration
}

// falsely reports what has been so for too long.
func (w *world) falsely(u untruth, is bool) {
	since, was := w.untrue[u]
	switch {
	case !is:
		delete(w.untrue, u)
	case !was:
		w.untrue[u] = time.Now()
	case time.Since(since) > u.noticed:
		w.untrue[u] = time.Now()
		w.violated(u.rule, "resource %s on %s, for %s", u.at.what, u.at.node, time.Since(since))
	}
}

func (w *world) longestSilence() (longest time.Duration) {
	for _, node := range w.history.World.Nodes {
		longest = max(longest, w.silence(node))
	}
	return longest
}

// hasReliable tells whether a resource has a disk that may be relied upon on another node than this one; if ready, on one whose kubelet lives.
func (w *world) hasReliable(resource, than string, ready bool) bool {
	states, moves := w.DRBD.Inspect(resource), w.Linstor.Moves(resource, false)
	for _, node := range w.Linstor.DiskNodes(resource) {
		state, runs := states[node]
		if node == than || !runs || slices.Contains(moves, node) || !w.mayKeep(node) || ready && w.kubelet[node] {
			continue
		}
		if w.frozen[node] || !slices.ContainsFunc(state.DiskStates, func(disk string) bool { return disk != drbd.UpToDate }) {
			return true
		}
	}
	return false
}

// mayKeep tells whether a node is one that a copy may be on, as far as everybody can know.
func (w *world) mayKeep(name string) bool {
	w.mu.Lock()
	_, leaves := w.tainted[name]
	_, doomed := w.doomed[name]
	w.mu.Unlock()
	return !leaves && !doomed && w.Linstor.ConnectionStatus(name) == linstorsim.Online && !w.machines[name] && !w.evicted[name] &&
		!w.switchedOff(name) && !w.isOutOfService(name)
}

func isTrue(c *evacuation.Condition) bool { return c != nil && c.Status == evacuation.True }
