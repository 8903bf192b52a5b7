package failover

import (
	"testing"
	"time"
)

// LINSTOR misses each satellite at its own time: when all were cut off together, the first to be missed looks like the only one.
func TestTheOthersAreStillThere(t *testing.T) {
	t.Parallel()

	// LINSTOR has missed A for so long, and must have listed the others for enough of it.
	const missed, enough, tooShort = 4 * time.Second, stillThere, stillThere - 1
	after := func(from func() Input, want Verdict, reason Reason, edits ...edit) scenario {
		edits = append(edits, func(in *Input) { in.Node.Shutdown = true }) // so that nothing else is waited for
		return scenario{from: from, edit: edited(edits...), want: want, reason: reason}
	}
	offline := func() Input {
		in := crashed()
		at(nodeA, func(r *Replica) { r.Online, r.Reports = held(false, missed), held(false, missed) })(&in)
		return in
	}
	lost := func(edits ...edit) scenario { return after(offline, Lost, NodeUnreachable, edits...) }
	pending := func(edits ...edit) scenario { return after(offline, Pending, NodeUnreachable, edits...) }
	// listed lets a node have been listed for the last time when A had been missed for so long.
	listed := func(online bool, node string, since time.Duration) edit {
		return at(node, func(r *Replica) {
			r.Online = Fact[bool]{Value: online, Known: true, Since: ago(time.Minute), Confirmed: ago(missed - since)}
		})
	}
	changed := func(in *Input) { in.Resource.SetSince = ago(missed) }
	forgotten := edited(changed, at(nodeA, func(r *Replica) { r.Gone = true }))
	without := at(nodeA, func(r *Replica) { r.Online = held(true, time.Minute) }) // any state, though ONLINE
	noWitness := func(node string) edit { return at(node, func(r *Replica) { r.Connections = nil }) }
	noSurvivor := func(node string) edit {
		return at(node, func(r *Replica) { r.MayPromote, r.Score = held(false, time.Minute), held(0, time.Minute) })
	}

	runScenarios(t, map[string]scenario{
		"the others were listed long enough after": lost(listed(true, nodeB, enough), listed(true, nodeT, enough)),
		"a survivor was not":                       pending(listed(true, nodeB, tooShort)),
		"a survivor that is no witness was not":    pending(listed(true, nodeB, tooShort), noWitness(nodeB)),
		"a witness was not":                        pending(listed(true, nodeT, tooShort)),
		"a witness that is no survivor was not":    pending(listed(true, nodeT, tooShort), noSurvivor(nodeT)),
		"one that is neither need not":             lost(listed(true, nodeT, tooShort), noSurvivor(nodeT), noWitness(nodeT)),
		"one that is OFFLINE itself need not":      lost(listed(false, nodeT, tooShort)),
		"one that is silent itself need not":       lost(listed(true, nodeB, enough), silent(nodeT)),

		"a node is also missed where it is not known whether LINSTOR has a state of the replica": pending(
			listed(true, nodeB, tooShort), at(nodeA, func(r *Replica) { r.Reports = untold[bool](missed) })),
		"a node that LINSTOR takes for ONLINE is missed since there is no state of the replica": pending(
			listed(true, nodeB, tooShort), without),
		"it is lost once the others were listed long enough after that": lost(
			listed(true, nodeB, enough), listed(true, nodeT, enough), without),
		"it need not be listed itself, though an event said that it may promote": lost(
			without, listed(true, nodeA, tooShort), at(nodeA, func(r *Replica) { r.MayPromote = held(true, time.Minute) })),
		"a replica that LINSTOR has forgotten is missed since then": after(isolated, Pending, NodeUnreachable,
			forgotten, listed(true, nodeB, tooShort)),
		"it is lost once the others were listed long enough after it": after(isolated, Lost, NodeUnreachable,
			forgotten, listed(true, nodeB, enough)),
		"a replica that LINSTOR has forgotten is missed since its node was, where that was before": after(crashed, Lost, NodeUnreachable,
			forgotten, listed(true, nodeB, tooShort)),

		"a node that says itself that it is lost waits for nobody": after(isolated, Lost, QuorumLost, listed(true, nodeB, 2*time.Second)),
		"a replica that has really gone waits for nobody":          after(gone, Lost, ReplicaGone, changed, listed(true, nodeB, tooShort)),
		"where LINSTOR is blind for the node, its kubelet is waited for instead": after(healthy, Lost, NodeUnreachable,
			takeover, blindFor(nodeA), theLease(20*time.Second+missed), listed(true, nodeB, tooShort)),
	})
}
