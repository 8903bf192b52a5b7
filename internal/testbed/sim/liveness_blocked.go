package sim

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// fullFor is for how long a pool that was full a moment ago may keep LINSTOR from being asked again.
const fullFor = evacuation.RefusalHolds + time.Minute

// isBlocked tells whether a node cannot get on for a reason that is true, and counts that as an excuse. hindered tells whether a volume has
// what it takes.
func (w *world) isBlocked(name string, reason evacuation.Reason, hindered func(v Volume, name string) bool) bool {
	excuse := w.blockedBy(name, reason, hindered)
	if excuse == "" {
		return false
	}
	if !slices.Contains(w.outcome.Excuses, excuse) {
		w.excuse(excuse, "node %s: %s", name, reason)
	}
	return true
}

func (w *world) blockedBy(name string, reason evacuation.Reason, hindered func(v Volume, name string) bool) string {
	some := func(is func(Volume) bool) bool { return slices.ContainsFunc(w.volumes(), is) }
	switch reason { //nolint:exhaustive // with the others it gets on, or nothing must be wrong
	case evacuation.AffinityPinned:
		if some(func(v Volume) bool { return v.Pinned }) {
			return ExcusePinned
		}
	case evacuation.BalancingEnabled:
		if some(func(v Volume) bool { return w.balanceOf(v.Resource()) == "true" }) {
			return ExcuseBalances
		}
	case evacuation.QuorumWouldBeLost:
		if some(func(v Volume) bool { return w.losesQuorum(v.Resource(), name) || w.mayRunAnother(v.Resource()) }) {
			return ExcuseQuorumLost
		}
	case evacuation.NoTarget:
		if some(func(v Volume) bool { return hindered(v, name) }) || !w.fullUntil.IsZero() && time.Since(w.fullUntil) < fullFor {
			return ExcuseNoTarget
		}
	case evacuation.LeavingStalled:
		if some(func(v Volume) bool { return w.keepsSnapshot(v, name) }) {
			return ExcuseNoTarget
		}
	case evacuation.LinstorStale:
		switch {
		case w.isForgotten():
			return ExcuseUnlisted
		case w.lacksReplica(name):
			return ExcuseTaken
		}
	case evacuation.FailingOver:
		if w.lacksReplica(name) {
			return ExcuseTaken
		}
	case evacuation.PeerOffline, evacuation.Copying:
		if w.isForgotten() {
			return ExcuseUnlisted
		}
		if some(func(v Volume) bool {
			return w.damaged[v.Resource()] && w.hasDisk(v, name) && !w.hasReliable(v.Resource(), name, true)
		}) {
			return ExcuseNeverFilled
		}
	}
	return ""
}

// volumes returns the volumes of the history, and those that have come with a pod.
func (w *world) volumes() []Volume {
	all := slices.Clone(w.history.World.Volumes)
	var list corev1.PersistentVolumeList
	w.must(w.oracle.List(w.ctx, &list))
	for _, pv := range list.Items {
		if v := w.volumeNamed(pv.Name); v.ephemeral && pv.Spec.CSI.Driver == virtual.Driver {
			all = append(all, v)
		}
	}
	return all
}

// isForgotten tells whether LINSTOR lists no disk of a volume that somebody claims, but for those that it is told to delete: what is left of
// it where nobody knows, or will be gone.
func (w *world) isForgotten() bool {
	var list corev1.PersistentVolumeList
	w.must(w.oracle.List(w.ctx, &list))
	return slices.ContainsFunc(list.Items, func(pv corev1.PersistentVolume) bool {
		return pv.Status.Phase == corev1.VolumeBound && pv.Spec.CSI.Driver == virtual.Driver &&
			len(w.Linstor.DiskNodes(Volume{Handle: pv.Spec.CSI.VolumeHandle}.Resource())) == 0
	})
}

// lacksCopy reports whether a volume on a node has no copy elsewhere that is known to be as good, and no node that could have one.
func (w *world) lacksCopy(v Volume, name string) bool {
	return w.hasDisk(v, name) && (!w.hasReliable(v.Resource(), name, true) || w.mayMove(v, name) || w.isApart(v.Resource(), name)) && !w.hasTarget(v)
}

// isApart reports whether a replica has peers and is connected to none: what they have may be old.
func (w *world) isApart(resource, node string) bool {
	connections := w.DRBD.Inspect(resource)[node].Connections
	for _, connection := range connections {
		if connection == drbd.Connected {
			return false
		}
	}
	return len(connections) > 0
}

// mayMove tells whether LINSTOR says of each disk elsewhere that it moves it away, which it leaves there also when it has forgotten the move.
func (w *world) mayMove(v Volume, name string) bool {
	moves := w.Linstor.Moves(v.Resource(), true)
	return !slices.ContainsFunc(w.Linstor.DiskNodes(v.Resource()), func(node string) bool { return node != name && !slices.Contains(moves, node) })
}

// lacksPlace tells whether a volume on a node has no node that its disk or a snapshot of it could move to, and no copy too many.
func (w *world) lacksPlace(v Volume, name string) bool {
	return w.keepsSnapshot(v, name) || w.hasDisk(v, name) && !w.hasTarget(v) && len(w.Linstor.DiskNodes(v.Resource())) < 1+linstorsim.DefaultPlaceCount
}

// keepsSnapshot tells whether a snapshot of a volume cannot leave a node: others have as many copies as the group wants, which LINSTOR takes for
// enough, or each other node has a copy of it, is not in the volume's group, or has a replica without a disk, to which LINSTOR ships nothing.
func (w *world) keepsSnapshot(v Volume, name string) bool {
	disks, replicas := w.Linstor.DiskNodes(v.Resource()), w.Linstor.ReplicaNodes(v.Resource())
	for _, s := range w.history.Steps {
		if s.What != TakeSnapshot || s.On != v.Name {
			continue
		}
		copies := w.Linstor.SnapshotNodes(v.Resource(), snapshotName(s))
		if slices.Contains(copies, name) && len(copies) > linstorsim.DefaultPlaceCount {
			return true
		}
		if slices.Contains(copies, name) && !slices.ContainsFunc(w.history.World.Nodes, func(node string) bool {
			diskless := slices.Contains(replicas, node) && !slices.Contains(disks, node)
			return !slices.Contains(copies, node) && !diskless && w.history.World.Planned.listed(node)
		}) {
			return true
		}
	}
	return false
}

// hasDisk tells whether a node has a disk of a volume.
func (w *world) hasDisk(v Volume, name string) bool {
	return slices.Contains(w.Linstor.DiskNodes(v.Resource()), name)
}

// hasTarget tells whether some node could have one more disk of a volume.
func (w *world) hasTarget(v Volume) bool {
	disks := w.Linstor.DiskNodes(v.Resource())
	return slices.ContainsFunc(w.history.World.Nodes, func(node string) bool {
		return !slices.Contains(disks, node) && w.schedulable(node) && w.history.World.Planned.listed(node)
	})
}

// losesQuorum tells whether a resource with a replica on a node would have no quorum without it, by what LINSTOR wants or a node runs.
func (w *world) losesQuorum(resource, name string) bool {
	quorums := []string{w.Linstor.WantedQuorum(resource)}
	for _, state := range w.DRBD.Inspect(resource) {
		quorums = append(quorums, state.Quorum)
	}
	return slices.ContainsFunc(quorums, func(quorum string) bool { return w.losesThat(quorum, resource, name) })
}

// mayRunAnother tells whether a person has changed the quorum of a resource, so that a node may not be known to have applied that.
func (w *world) mayRunAnother(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byPerson[resource]
}

// losesThat tells whether it would not have that quorum, by the disks that are there and who is connected to whom.
func (w *world) losesThat(quorum, resource, name string) bool {
	replicas, disks, clients := w.Linstor.ReplicaNodes(resource), w.Linstor.DiskNodes(resource), w.Linstor.ClientNodes(resource)
	if !slices.Contains(replicas, name) || quorum == drbd.QuorumOff {
		return false
	}
	states := w.DRBD.Inspect(resource)
	return !slices.ContainsFunc(disks, func(base string) bool {
		if base == name || slices.ContainsFunc(states[base].DiskStates, func(disk string) bool { return disk != drbd.UpToDate }) {
			return false
		}
		present, breakers, breakersPresent := 0, 0, 0
		for _, node := range replicas {
			state, runs := states[node]
			here := runs && node != name && (node == base || states[base].Connections[node] == drbd.Connected)
			switch isDisk := slices.Contains(disks, node); {
			case isDisk && here && !slices.Contains(state.DiskStates, drbd.Failed):
				present++
			case !isDisk && !slices.Contains(clients, node):
				breakers++
				breakersPresent += boolInt(here)
			}
		}
		return isQuorum(quorum, present, len(disks)) || quorum == drbd.QuorumMajority && 2*present == len(disks) && 2*breakersPresent > breakers
	})
}

// isQuorum tells whether so many disks of all are the quorum that is wanted.
func isQuorum(wanted string, present, all int) bool {
	switch wanted {
	case drbd.QuorumMajority:
		return 2*present > all
	case drbd.QuorumAll:
		return present == all
	}
	votes, err := strconv.Atoi(wanted)
	return err != nil || present >= votes
}
