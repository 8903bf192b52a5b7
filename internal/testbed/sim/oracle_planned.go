package sim

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// The invariants of nodes that leave on purpose, by the names under which they are reported.
const (
	// RuleLastCopy: the last disk with all of the newest data is never taken away, whoever does so, as long as only the controller has had
	// LINSTOR evacuate a node.
	RuleLastCopy = "the last copy of a volume was removed"
	// RuleCopyElsewhere: when LINSTOR is told to move everything off a node, each volume with a disk there has a copy on another one that runs.
	RuleCopyElsewhere = "LINSTOR was told to evacuate a node although a volume has no copy elsewhere"
	// ruleOnlyAdds: nothing that an evacuation does deletes or evicts anything.
	ruleOnlyAdds = "an evacuation deleted something"
	// RuleOffline: LINSTOR is told nothing for a node that it does not reach.
	RuleOffline = "LINSTOR was told something for a node that is offline"
	// RuleLost: nor for one whose storage is lost.
	RuleLost = "LINSTOR was told something for a node that is being failed over"
	// RuleUsed: LINSTOR is not told to move everything off a node on which something is in use.
	RuleUsed = "LINSTOR was told to evacuate a node on which a volume is in use"
	// RuleAttached: nor off one to which a volume of ours is attached.
	RuleAttached = "LINSTOR was told to evacuate a node to which a volume is attached"
	// RuleSettled: nor while a replica of one of its volumes syncs: LINSTOR would add another one.
	RuleSettled = "LINSTOR was told to evacuate a node while a volume of it syncs"
	// RuleTarget: a copy is never asked for where LINSTOR may put it on a node that leaves.
	RuleTarget = "LINSTOR was asked for a copy that may be put on a node that leaves"
	// RuleCopyStays: a copy stays while the node for which it was made has its disk and is to leave, whatever LINSTOR's balancing makes of it.
	RuleCopyStays = "a copy was removed while its node was still to leave"
	// RuleOwn: what somebody else has told LINSTOR is not taken back, nor added to.
	RuleOwn = "LINSTOR was told something for a node that somebody else evacuates"
)

// How far evacuations have got, counted once in a history.
const (
	ReachedSafe      = "nodes leave: Safe"
	ReachedLeaving   = "nodes leave: Leaving"
	ReachedEvacuated = "nodes leave: Evacuated"
	ReachedReturned  = "nodes leave: Returned"
)

// planned is what is known of nodes that leave on purpose.
type planned struct {
	// armed are the nodes that are switched off as soon as that is safe; cuts are those that were.
	armed map[string]bool
	cuts  []*powerCut
	// full are the nodes whose storage pools are full; affinity is set while an affinity controller runs.
	full     map[string]bool
	affinity bool
	// byOther are the nodes that a person has evacuated in LINSTOR by hand; told is set once a controller has told LINSTOR to.
	byOther map[string]bool
	// touched are the resources of which controllers have told LINSTOR something that may move disks.
	touched map[string]bool
	// unbalanced are those of which they have switched LINSTOR's balancing off.
	unbalanced map[string]bool
	begun      map[string]bool
	// personal are the replicas that a person has removed; restored is set once somebody has given LINSTOR an old database.
	personal map[place]bool
	restored bool
	// copies are the disks that the controllers have had made, and for which node each.
	copies map[place]string
	// added counts the disks that a person has added, leavings how often a node was tainted.
	added, leavings map[string]int
	// disks are those of each resource, and whether they have the newest data.
	disks map[string]map[string]bool
	// safe is since when nodes have been StorageSafe, since when the taint has been there, tainted.
	safe, tainted map[string]time.Time
	// unsafe is when nodes have ceased to be StorageSafe last.
	unsafe map[string]time.Time
	// takenFrom is since when a node has the taint of a fail-over.
	takenFrom map[string]time.Time
	// stays is when a node was last told to stay.
	stays map[string]time.Time
	// leftSafe are the nodes that were StorageSafe when LINSTOR lost them: they do not count for the guard.
	leftSafe map[string]bool
	// doomed is since when an autoscaler has been about to delete a node.
	doomed map[string]time.Time
	// failedAt is when a disk of a resource has failed last.
	failedAt map[string]time.Time
	// flags are those of replicas that somebody has LINSTOR delete or deactivate, and that are still there.
	flags map[place]replicaFlag
	// hanging are the nodes whose thin pools hang, so that LINSTOR does not answer.
	hanging map[string]bool
	// ailing is since when nodes have not been well.
	ailing map[string]time.Time
	// ailed are the nodes that ever were not, crowded the volumes that had too many disks.
	ailed, crowded map[string]bool
	// fullUntil is when a pool was last full that is not any more.
	fullUntil time.Time
	// opened is since when a replica has been open.
	opened map[place]time.Time
	// reached is how far evacuations have got.
	reached map[string]bool
	// wantedLast is what LINSTOR wanted of each resource at the last look.
	wantedLast map[string]string
	// apart is since when a survivor has run without quorum that is not connected to a node.
	apart map[apart]time.Time
	// due is since when nodes have had to get on.
	due map[string]dues
	// disksSince is since when nodes that are to leave have had a disk of a resource.
	disksSince map[place]time.Time
	// untrue is since when what a node says of itself has not been so.
	untrue map[untruth]time.Time
}

func newPlanned() planned {
	return planned{
		flags: make(map[place]replicaFlag), doomed: make(map[string]time.Time),
		armed: make(map[string]bool), full: make(map[string]bool), byOther: make(map[string]bool), touched: make(map[string]bool), unbalanced: make(map[string]bool), begun: make(map[string]bool),
		personal: make(map[place]bool), copies: make(map[place]string), added: make(map[string]int), leavings: make(map[string]int), disks: make(map[string]map[string]bool),
		takenFrom: make(map[string]time.Time), unsafe: make(map[string]time.Time), safe: make(map[string]time.Time), tainted: make(map[string]time.Time), stays: make(map[string]time.Time), ailing: make(map[string]time.Time),
		leftSafe: make(map[string]bool), hanging: make(map[string]bool), failedAt: make(map[string]time.Time), ailed: make(map[string]bool), crowded: make(map[string]bool),
		opened: make(map[place]time.Time), reached: make(map[string]bool), apart: make(map[apart]time.Time), due: make(map[string]dues), untrue: make(map[untruth]time.Time), disksSince: make(map[place]time.Time),
	}
}

// reach counts once how far an evacuation has got.
func (w *world) reach(what string) {
	w.mu.Lock()
	first := !w.reached[what]
	w.reached[what] = true
	w.mu.Unlock()
	if first {
		w.count(what)
	}
}

// observeNode notes what a node says of its evacuation.
func (w *world) observeNode(c apimodel.Change) {
	node, ok := c.New.(*corev1.Node)
	if !ok || !w.history.World.Planned.Is {
		return
	}
	name := w.Satellite(node.Name)
	conditions := cluster.EvacuationConditions(node)
	safe := isTrue(conditions.Safe)
	w.mu.Lock()
	if _, was := w.safe[name]; was && !safe {
		w.unsafe[name] = time.Now()
	}
	keepSince(w.safe, name, safe)
	keepSince(w.takenFrom, name, cluster.HasTaint(node, cluster.TaintLostQuorum, ""))
	tainted := cluster.HasTaint(node, evacuation.TaintKey, "")
	if _, was := w.tainted[name]; was && !tainted {
		w.stays[name] = time.Now()
	}
	keepSince(w.tainted, name, tainted)
	if !tainted { // when it is to leave once more, what is too many of them may go as long as one is left
		maps.DeleteFunc(w.copies, func(_ place, leaver string) bool { return leaver == name })
	}
	w.mu.Unlock()
	if safe {
		w.reach(ReachedSafe)
	}
	if isTrue(conditions.Evacuated) {
		w.reach(ReachedEvacuated)
		if old, ok := c.Old.(*corev1.Node); ok && !isTrue(cluster.EvacuationConditions(old).Evacuated) {
			w.auditGone(name)
		}
	}
	if old, was := c.Old.(*corev1.Node); was && cluster.IsEvacuated(old) && !cluster.IsEvacuated(node) {
		w.reach(ReachedReturned)
	}
}

// wasSafe tells whether a node that has fallen silent a moment ago was StorageSafe when its trouble began; the lock is held.
func (w *world) wasSafe(name string) bool {
	_, safe := w.safe[name]
	began, ails := w.ailing[name]
	if !ails {
		began = time.Now()
	}
	return safe || w.unsafe[name].After(began.Add(-noticing))
}

// keepSince keeps since when something has been so.
func keepSince[K comparable](since map[K]time.Time, name K, is bool) {
	if _, was := since[name]; !is {
		delete(since, name)
	} else if !was {
		since[name] = time.Now()
	}
}

// observeDisks holds what has happened to the disks of a resource against the invariant.
func (w *world) observeDisks(resource string) {
	if !w.history.World.Planned.Is || !w.isVolume(resource) {
		return
	}
	w.mu.Lock()
	before, now := w.disks[resource], w.DRBD.Disks(resource)
	w.disks[resource] = now
	for node, state := range w.DRBD.Inspect(resource) {
		at := place{resource, node}
		if open := state.Open+state.OpenReadOnly > 0; !open {
			delete(w.opened, at)
		} else if w.opened[at].IsZero() {
			w.opened[at] = time.Now()
		}
	}
	lost, gone, asked := "", "", ""
	for node, newest := range before {
		_, there := now[node]
		switch at := (place{resource, node}); {
		case there || w.personal[at] || !w.isNeeded(at, now):
		case w.isToDelete(at):
			asked = node
		default:
			gone = node
		}
		if newest && !there && !w.personal[place{resource, node}] {
			lost = node
		}
	}
	kept := false
	for node, newest := range before {
		_, there := now[node]
		kept = kept || newest && there
	}
	free := w.restored || len(w.byOther) > 0
	deleted, touched, unmarked := w.isToDelete(place{resource, lost}), w.touched[resource], !w.unbalanced[resource]
	damaged := w.damaged[resource]
	w.mu.Unlock()
	if gone != "" && !free {
		w.violated(RuleCopyStays, "resource %s on %s", resource, gone)
	}
	if asked != "" && !free {
		w.excuse(ExcuseCopyDeleted, "resource %s on %s", resource, asked)
	}
	if lost == "" || kept || free {
		return
	}
	switch {
	case deleted:
		w.excuse(ExcuseDeleted, "resource %s on %s", resource, lost)
	case w.history.World.Planned.Balancing && (!touched || unmarked && (damaged || w.anyAway(before))):
		w.excuse(ExcuseBalanced, "resource %s on %s", resource, lost)
	default:
		w.violated(RuleLastCopy, "resource %s on %s; disks with the newest data are left: %v", resource, lost, now)
	}
}

// anyAway tells whether a node that has had a disk is down, or cut off from LINSTOR.
func (w *world) anyAway(disks map[string]bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(disks)), func(node string) bool { return !w.DRBD.Up(node) || !w.Linstor.Hears(node) })
}

// isToDelete tells whether a person has had LINSTOR delete a replica, which it does once it reaches the node; the lock is held.
func (w *world) isToDelete(at place) bool {
	flag := w.flags[at].name
	return flag == linstorsim.FlagDelete || flag == linstorsim.FlagDRBDDelete
}

// isNeeded tells whether a copy was made for a node that is to leave, and has its disk still; the lock is held.
func (w *world) isNeeded(at place, now map[string]bool) bool {
	leaver, copied := w.copies[at]
	_, there := now[leaver]
	_, leaves := w.tainted[leaver]
	_, leavesToo := w.tainted[at.node]
	return copied && there && leaves && !leavesToo && w.balanceOf(at.what) == ""
}

// isVolume tells whether a resource is that of a volume of the history.
func (w *world) isVolume(resource string) bool {
	return slices.ContainsFunc(w.history.World.Volumes, func(v Volume) bool { return v.Resource() == resource })
}
