package sim

import (
	"context"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// wordsOld tells whether LINSTOR may not have known, for the look that a call rests on, that what it says of a node is not so any more.
func (w *world) wordsOld(node string, call evacuation.Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, silent := w.silent[node]
	return silent && time.Since(since) < excuse+call.MaxAge() || w.oldWords()[node]
}

// Autoplace audits that LINSTOR is asked for a copy.
func (l *witness) Autoplace(ctx context.Context, resource string, nodes []string) (linstor.Answer, error) {
	w := l.process.world
	w.auditCall(ctx, evacuation.Autoplace, "autoplace of "+resource)
	if len(nodes) == 0 {
		w.violated(RuleTarget, "resource %s: the list is empty", resource)
	}
	for _, node := range nodes {
		if w.mustBeKnownToLeave(node) {
			w.violated(RuleTarget, "resource %s on %s", resource, node)
		}
		if !w.history.World.Planned.listed(node) {
			w.violated(RuleTarget, "resource %s on %s, which its group does not list", resource, node)
		}
	}
	w.touch(resource)
	before := w.Linstor.DiskNodes(resource)
	answer, err := l.memory.Autoplace(ctx, resource, nodes)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range w.Linstor.DiskNodes(resource) {
		if !slices.Contains(before, node) {
			w.copies[place{resource, node}] = w.Satellite(workOf(ctx).name)
		}
	}
	return answer, err
}

// touch notes that the controllers have told LINSTOR something that may move disks of a resource.
func (w *world) touch(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched[resource] = true
}

// mustBeKnownToLeave tells whether the leader must know that a node has the taint, and LINSTOR knows the node.
func (w *world) mustBeKnownToLeave(node string) bool {
	w.mu.Lock()
	since, tainted := w.tainted[node]
	if doomed, is := w.doomed[node]; is && (!tainted || doomed.Before(since)) {
		since, tainted = doomed, true
	}
	w.mu.Unlock()
	return tainted && time.Since(since) > failover.ActAge+w.history.World.Lag && !w.cacheIsOld() && w.Linstor.ConnectionStatus(node) != ""
}

// cacheIsOld tells whether the leader's cache may not know what the API does.
func (w *world) cacheIsOld() bool {
	leader := w.processes[w.leader]
	return leader.cacheOld || !leader.reachesAPI() || leader.freezer.frozen() || time.Since(leader.begun) < w.history.World.Late
}

// Evacuate audits that LINSTOR is told to move everything off a node.
func (l *witness) Evacuate(ctx context.Context, node string, doNotTarget []string) (linstor.Answer, error) {
	w := l.process.world
	w.auditCall(ctx, evacuation.Evacuate, "evacuate")
	w.auditEvacuate(ctx, node)
	for _, other := range w.history.World.Nodes {
		if other != node && !slices.Contains(doNotTarget, other) && w.mustBeKnownToLeave(other) {
			w.violated(RuleTarget, "%s may be evacuated to %s", node, other)
		}
	}
	for _, resource := range w.DRBD.Resources() {
		if slices.Contains(w.Linstor.ReplicaNodes(resource), node) {
			w.touch(resource)
		}
	}
	w.reach(ReachedLeaving)
	w.count("told LINSTOR: evacuate")
	w.mu.Lock()
	w.begun[node] = true
	w.mu.Unlock()
	return l.memory.Evacuate(ctx, node, doNotTarget)
}

// Restore audits that LINSTOR is told that a node stays.
func (l *witness) Restore(ctx context.Context, node string) (linstor.Answer, error) {
	w := l.process.world
	w.auditCall(ctx, evacuation.Restore, "restore")
	w.mu.Lock()
	asked := w.begun[node]
	w.mu.Unlock()
	if !asked {
		w.violated(RuleOwn, "restore of %s, which the controllers never told LINSTOR to evacuate", node)
	}
	return l.memory.Restore(ctx, node)
}

// ChangeDefinition audits that properties of a definition are changed.
func (l *witness) ChangeDefinition(ctx context.Context, change evacuation.Change) (linstor.Answer, error) {
	w := l.process.world
	w.auditCall(ctx, evacuation.Properties, "properties of "+change.Resource)
	w.mu.Lock()
	if _, off := change.Set[evacuation.PropBalance]; off {
		w.unbalanced[change.Resource] = true
	}
	if slices.Contains(change.Delete, evacuation.PropBalance) {
		delete(w.unbalanced, change.Resource)
	}
	w.mu.Unlock()
	return l.memory.ChangeDefinition(ctx, change)
}

// isCondition tells whether the conditions of a node that is to leave are written: a dry run says there that it is one.
func (w *world) isCondition(ctx context.Context, o client.Object) bool {
	_, isNode := o.(*corev1.Node)
	return isNode && workOf(ctx).controller == "evacuation"
}

// auditCall holds anything that LINSTOR is told for a node against the invariants.
func (w *world) auditCall(ctx context.Context, call evacuation.Call, what string) {
	w.auditHalt(call, what)
	name := workOf(ctx).name
	if name == "" { // what is left of evacuations is taken back for no node
		w.note("CALL: " + what)
		return
	}
	node := w.Satellite(name)
	w.note("CALL for " + node + ": " + what)
	w.mu.Lock()
	_, silent := w.silent[node]
	w.mu.Unlock()
	switch {
	case !silent || w.Linstor.Hears(node): // it may have been heard again since
	case call == evacuation.Properties && w.Linstor.ConnectionStatus(node) == "": // LINSTOR has forgotten it: nobody need be waited for
	case w.wordsOld(node, call):
		w.excuse(ExcuseOldWords, "%s for %s", what, node)
	default:
		w.violated(RuleOffline, "%s for %s", what, node)
	}
	w.mu.Lock()
	begun := w.takenFrom[node]
	w.mu.Unlock()
	switch {
	case !w.hasTaint(node, cluster.TaintLostQuorum) && !w.failsOver(name):
	case time.Since(begun) <= failover.ActAge:
		w.excuse(ExcuseBegun, "%s for %s", what, node)
	default:
		w.violated(RuleLost, "%s for %s", what, node)
	}
}

// attachments are those of ours to a node of Kubernetes.
func (w *world) attachments(name string) (ours []storagev1.VolumeAttachment) {
	var list storagev1.VolumeAttachmentList
	w.must(w.oracle.List(w.ctx, &list))
	for _, va := range list.Items {
		if va.Spec.NodeName == name && va.Spec.Attacher == virtual.Driver {
			ours = append(ours, va)
		}
	}
	return ours
}

// failsOver tells whether an attachment to a node is marked by a fail-over.
func (w *world) failsOver(name string) bool {
	return slices.ContainsFunc(w.attachments(name), func(va storagev1.VolumeAttachment) bool {
		return va.Annotations[cluster.AnnotationFailOver] != ""
	})
}

// auditEvacuate holds it against the invariants that LINSTOR is told to move everything off a node.
func (w *world) auditEvacuate(ctx context.Context, node string) {
	name := workOf(ctx).name
	w.mu.Lock()
	byOther := w.byOther[node] && !w.begun[node]
	w.mu.Unlock()
	if byOther && slices.Contains(w.flagged(), node) {
		w.violated(RuleOwn, "evacuate %s", node)
	}
	for _, va := range w.attachments(name) {
		if w.API.Now().Sub(va.CreationTimestamp.Time) > failover.ActAge+time.Second { // times are whole seconds
			w.violated(RuleAttached, "%s is attached to %s", *va.Spec.Source.PersistentVolumeName, node)
		} else {
			w.excuse(ExcuseArrived, "%s is attached to %s", *va.Spec.Source.PersistentVolumeName, node)
		}
	}
	for _, resource := range w.DRBD.Resources() {
		if w.isVolume(resource) && slices.Contains(w.Linstor.ReplicaNodes(resource), node) {
			w.auditMove(resource, node)
		}
	}
}

// auditMove holds it against them for one volume.
func (w *world) auditMove(resource, node string) {
	w.mu.Lock()
	open := w.opened[place{resource, node}]
	w.mu.Unlock()
	state, _ := w.DRBD.Replica(resource, node)
	switch {
	case open.IsZero() || w.wordsOld(node, evacuation.Evacuate):
	case state.ForceIOFailures:
		w.excuse(ExcuseDemoted, "resource %s on %s", resource, node)
	case time.Since(open) <= failover.ActAge:
		w.excuse(ExcuseArrived, "resource %s was opened on %s", resource, node)
	default:
		w.violated(RuleUsed, "resource %s on %s, for %s", resource, node, time.Since(open))
	}
	disks, states := w.DRBD.Disks(resource), w.DRBD.Inspect(resource)
	if _, has := disks[node]; !has || !slices.Contains(w.Linstor.DiskNodes(resource), node) {
		return
	}
	copied, old := false, false
	// What only a disk has that DRBD calls old, such as the loser of a split brain, is not asked for.
	good := slices.ContainsFunc(states[node].DiskStates, func(disk string) bool { return disk == drbd.UpToDate || disk == drbd.Consistent })
	for other, newest := range disks {
		state, runs := states[other]
		if other == node || w.goes(place{resource, other}) {
			continue
		}
		// Of two disks that are UpToDate and connected DRBD says that they are the same, also where one was the loser of a split brain.
		same := state.Connections[node] == drbd.Connected && states[node].Connections[other] == drbd.Connected && !state.Unnoticed
		copied = copied || (w.DRBD.Covers(resource, node, other) || newest && (same || !good)) && runs && !slices.ContainsFunc(state.DiskStates, func(disk string) bool { return disk != drbd.UpToDate })
		old = old || w.wordsOld(other, evacuation.Evacuate)
	}
	switch {
	case copied:
	case old:
		w.excuse(ExcuseOldWords, "resource %s has no copy but on %s", resource, node)
	default:
		w.violated(RuleCopyElsewhere, "resource %s on %s, whose disk is %v; disks with the newest data, as far as any is newer: %v", resource, node, states[node].DiskStates, disks)
	}
	for other, state := range states {
		if len(state.Syncs) > 0 && !w.wordsOld(other, evacuation.Evacuate) && !w.wordsOld(node, evacuation.Evacuate) {
			w.violated(RuleSettled, "resource %s on %s", resource, other)
		}
	}
}

// auditRequest holds it against the invariant that the controllers send a request to LINSTOR.
func (w *world) auditRequest(r *http.Request) {
	if r.Method == http.MethodDelete && r.UserAgent() == controllerAgent {
		w.violated(ruleOnlyAdds, "%s %s was sent to LINSTOR", r.Method, r.URL.Path)
	}
}

// controllerAgent is how the controllers call themselves in their requests to LINSTOR.
const controllerAgent = "piraeus-ha-controller"

// auditPlannedDeletion holds it against the invariant that something is deleted.
func (w *world) auditPlannedDeletion(ctx context.Context, o client.Object) {
	if workOf(ctx).controller == "evacuation" {
		w.violated(ruleOnlyAdds, "%T %s was deleted", o, o.GetName())
	}
}

// SubResource audits that something is asked of a subresource beside the status: that can be an eviction only.
func (c *auditedClient) SubResource(name string) client.SubResourceClient {
	c.process.world.violated(ruleOnlyAdds, "subresource %s was used", name)
	return c.Client.SubResource(name)
}
