package sim

import (
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// A LINSTOR without its connector hears nothing, notices nothing, and goes on to answer. Only a restart ends that: by a step, or by the
// controllers, which may delete the pods of a LINSTOR that they have proven to be blind.

// ruleSees: the pod of a LINSTOR on a node that lives is deleted only where LINSTOR is blind, or was in an answer that is still fresh, a
// kubelet has been silent between two answers ten seconds apart, and not twice in ten minutes.
const ruleSees = "a pod of a LINSTOR that sees was deleted although its kubelet was heard of"

// BlindRestarted counts the pods that were deleted for it.
const BlindRestarted = "pods of a blind LINSTOR deleted"

// loseConnector makes LINSTOR blind.
func (w *world) loseConnector() {
	if w.linstorDown || w.Linstor.Blind() {
		return
	}
	w.mu.Lock()
	w.blind, w.wasFrozen = time.Now(), true
	w.mu.Unlock()
	w.Linstor.LoseConnector()
}

// sees notes that LINSTOR's process ends, and its blindness with it.
func (w *world) sees() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.blind.IsZero() {
		w.blind, w.sighted = time.Time{}, time.Now()
	}
}

// restartLinstor starts another process of LINSTOR.
func (w *world) restartLinstor() {
	w.sees()
	w.linstorDown, w.linstorUp = false, time.Now()
	w.Linstor.Restart()
}

// oldWords are the nodes whose satellites LINSTOR takes for what they were, whatever happens. The caller holds the lock.
func (w *world) oldWords() map[string]bool {
	all := make(map[string]bool, len(w.frozen))
	for _, node := range w.history.World.Nodes {
		all[node] = w.frozen[node] || !w.blind.IsZero()
	}
	return all
}

// auditRestart holds the deletion of a pod of LINSTOR on a node that lives against the invariant, and lets it take effect.
func (w *world) auditRestart(what string) {
	w.count(BlindRestarted)
	w.mu.Lock()
	blind, sighted, again := w.blind, w.sighted, !w.restarted.IsZero() && time.Since(w.restarted) > failover.ActAge && time.Since(w.restarted) < failover.BlindRetry
	first := w.restarted.IsZero() || time.Since(w.restarted) > failover.ActAge
	silent := false
	for _, node := range w.history.World.Nodes {
		silent = silent || time.Since(w.renewed[node]) >= grace.KubeletSilence+failover.BlindApart
	}
	w.mu.Unlock()
	if !first {
		return // another pod of the same LINSTOR, by the same look
	}
	switch {
	case again:
		w.violated(ruleSees, "%s: one was %s ago", what, time.Since(w.restarted))
	case blind.IsZero() && (time.Since(sighted) <= failover.ActAge || w.heldSince(sighted)):
		w.excuse(ExcuseSighted, "%s: since %s", what, sighted)
	case blind.IsZero() || time.Since(blind) < failover.BlindApart:
		w.violated(ruleSees, "%s: blind since %s", what, blind)
	case !silent:
		w.violated(ruleSees, "%s: no kubelet has been silent for so long", what)
	}
	w.mu.Lock()
	w.restarted, w.restartDue = time.Now(), true
	w.mu.Unlock()
}

// heldSince tells whether a request may have been under way since then: no longer than the API keeps one.
func (w *world) heldSince(at time.Time) bool {
	return time.Since(at) < longestHold && slices.ContainsFunc(w.history.Steps, func(s Step) bool { return s.What == HangAPI || s.What == SlowAPI })
}

// restartIfDue lets the deletion of LINSTOR's pod take effect.
func (w *world) restartIfDue() {
	w.mu.Lock()
	due := w.restartDue
	w.restartDue = false
	w.mu.Unlock()
	if due && !w.linstorDown {
		w.note("LINSTOR is restarted, because its pod was deleted")
		w.restartLinstor()
	}
}

// isBlind tells whether LINSTOR has no connector.
func (w *world) isBlind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.blind.IsZero()
}
