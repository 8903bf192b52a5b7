package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The invariants, by the names under which they are reported.
const (
	// ruleWritable: no pod is force-deleted whose node could still commit a write to one of its volumes at the fresh
	// read that precedes the deletion.
	ruleWritable = "a pod was deleted by force although its node could still write"
	// ruleHarmless: none is deleted at all unless its node can no longer write one of its volumes.
	ruleHarmless = "a pod was deleted although its node could still write all its volumes"
	// ruleSelected: none is deleted that was not selected, or is exempt.
	ruleSelected = "a pod was deleted that must not be"
	// ruleIdentity: none is deleted whose UID was not the one decided on.
	ruleIdentity = "a pod was deleted that was not the one decided on"
	// ruleDemoted: a pod removed as Demoted did not have its volume open for the whole grace.
	ruleDemoted = "a pod was deleted as Demoted although its volume was open a while ago"
	// ruleFresh: what precedes a deletion is read at most 2 s before.
	ruleFresh = "something was deleted without a fresh read"
	// ruleUnknown: nothing is done on an unknown alone.
	ruleUnknown = "something was done without positive evidence"
	// ruleInUse: no attachment is deleted or released while a pod on its node uses the volume.
	ruleInUse = "a volume was taken from a node under a pod"
	// ruleForeign: nothing of another driver or node is touched.
	ruleForeign = "something was touched that is none of the controller's business"
	// ruleDryRun: a dry run writes nothing.
	ruleDryRun = "a dry run wrote something"
	// ruleTwoPrimaries: fail-over never lets two nodes write.
	ruleTwoPrimaries = "two nodes can write the same volume"
)

// actorOracle is the name under which the oracle reads the API.
const actorOracle = "oracle"

// excuse is how long ago every witness's satellite may have been cut off for its old word to be no fault: LINSTOR
// takes 5 to 7 s to find out.
const excuse = 7 * time.Second

// auditWrite: a dry run writes nothing.
func (w *world) auditWrite(o client.Object) {
	if w.history.World.DryRun {
		w.violated(ruleDryRun, "%T %s", o, o.GetName())
	}
}

// volumesOf returns the volumes behind a pod's claims.
func (w *world) volumesOf(pod *corev1.Pod) []Volume {
	var volumes []Volume
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != unboundClaim {
			volumes = append(volumes, w.volume(strings.TrimPrefix(v.PersistentVolumeClaim.ClaimName, "data-")))
		}
	}
	return volumes
}

// auditRemoval holds the deletion of a pod against the invariants.
func (w *world) auditRemoval(p *process, a *act, pod *corev1.Pod, options *client.DeleteOptions) {
	node, reason := pod.Spec.NodeName, a.reasons[pod.UID]
	forced := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0
	what := fmt.Sprintf("pod %s on %s (%s, by force: %t)", pod.Name, node, reason, forced)
	w.count(fmt.Sprintf("removed: %s", reason))
	w.count(fmt.Sprintf("removed by force: %t", forced))

	w.auditView(what)
	if uid := options.Preconditions; uid == nil || uid.UID == nil || time.Since(p.acts.pods[*uid.UID]) > failover.MaxAge {
		w.violated(ruleIdentity, "%s: its UID was not among those just read", what)
	}
	spec, known := w.workload(pod.Name)
	if pod.Labels[selectedLabel] != "remove" || known && (spec.Exempt || spec.Unsafe || spec.Owner != "") {
		w.violated(ruleSelected, "%s", what)
	}
	var writable []string
	lost, allExcused, oneExcused, evidence, open := false, true, false, false, time.Duration(0)
	for _, v := range w.volumesOf(pod) {
		if v.Kind == NFSExport {
			continue
		}
		r, ok := p.reading(a, v.Resource())
		if !ok {
			w.violated(ruleFresh, "%s: resource %s was read at %s", what, v.Resource(), r.at.Sub(w.started)-settling)
			continue
		}
		held := r.writable[node] || reason != failover.Demoted && r.promotable(node)
		if r.writable[node] {
			writable, allExcused = append(writable, v.Resource()), allExcused && r.excused(node, true)
		}
		lost, oneExcused = lost || !held, oneExcused || held && r.misled(node, reason)
		evidence = evidence || w.positive(r, node)
		open = max(open, w.closedFor(v.Resource(), node))
	}
	if !lost {
		w.breach(ruleHarmless, what, writable, oneExcused) // that one was taken for lost
	} else if forced && len(writable) > 0 {
		w.breach(ruleWritable, what, writable, allExcused)
	}
	if !evidence {
		w.violated(ruleUnknown, "%s", what)
	}
	if reason == failover.Demoted && open < grace.KnownGrace && !w.switchedOff(node) {
		w.violated(ruleDemoted, "%s: closed for %s", what, open)
	}
}

// breach reports what is only excused while every witness's word may have been old without LINSTOR's knowing.
func (w *world) breach(rule, what string, writable []string, excused bool) {
	if excused {
		w.count("excused: " + rule)
		w.note(fmt.Sprintf("EXCUSED %s: %s can write %v", rule, what, writable))
		return
	}
	w.violated(rule, "%s can write %v", what, writable)
}

// old tells whether LINSTOR may not know that what it knows from a satellite is old: that had been cut off a moment before,
// or LINSTOR wrongly takes it for ONLINE.
func (r reading) old(node string) bool {
	since, silent := r.silent[node]
	return silent && (r.at.Sub(since) < excuse || r.frozen[node])
}

// misled tells whether no word that a reason rests on could be true. ForcedIOErrors rests on the node's own.
func (r reading) misled(node string, reason failover.Reason) bool {
	return r.excused(node, false) || reason == failover.ForcedIOErrors && r.old(node)
}

// excused tells whether no witness that was asked could tell the truth: its word is old, or its DRBD has not noticed yet
// that a connection is gone. Unless strict, one that is really not connected to the node is none who could, beside such a
// witness.
func (r reading) excused(node string, strict bool) bool {
	doubt := false
	for _, replica := range r.resource.Replicas {
		connection, ok := replica.Connection(node)
		if replica.Node == node || !ok || !connection.Known || !replica.Online.Known || !replica.Online.Value {
			continue
		}
		old, truth := r.old(replica.Node), r.truth[replica.Node]
		apart := !connection.Value && truth.Connections[node] != drbd.Connected
		if !old && !truth.Unnoticed && (strict || !apart) {
			return false
		}
		doubt = doubt || old || truth.Unnoticed
	}
	return doubt
}

// positive tells whether LINSTOR's answer has a survivor and says something about the node, or the kubelet has
// been silent.
func (w *world) positive(r reading, node string) bool {
	survivor, about := false, true
	for _, replica := range r.resource.Replicas {
		if replica.Node == node {
			// A replica is there: something must be known of it, by itself or by others.
			about = about && replica.Score.Known
			continue
		}
		online := replica.Online.Known && replica.Online.Value
		survivor = survivor || online && replica.MayPromote.Known && replica.MayPromote.Value
	}
	for _, replica := range r.resource.Replicas {
		connection, ok := replica.Connection(node)
		about = about || replica.Node != node && ok && connection.Known && !connection.Value
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return survivor && (about || time.Since(w.renewed[node]) >= grace.KubeletSilence)
}

// switchedOff tells whether somebody has said that the node was switched off: then there is no grace.
func (w *world) switchedOff(name string) bool {
	var node corev1.Node
	w.must(w.oracle.Get(w.ctx, client.ObjectKey{Name: name}, &node))
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == shutdownTaint })
}

// closedFor is how long a resource has not been open for writing on a node.
func (w *world) closedFor(resource, node string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, ok := w.closed[place{resource, node}]
	if !ok || since.IsZero() {
		return 0
	}
	return time.Since(since)
}

func (w *world) workload(name string) (Workload, bool) {
	for _, p := range w.history.World.Workloads {
		if p.Name == name {
			return p, true
		}
	}
	return Workload{}, false
}

// users returns the pods on a node that use a volume.
func (w *world) users(ctx context.Context, node, volume string) []string {
	var pods corev1.PodList
	w.must(w.oracle.List(context.WithoutCancel(ctx), &pods, client.MatchingFields{"spec.nodeName": node}))
	var names []string
	for i := range pods.Items {
		for _, v := range w.volumesOf(&pods.Items[i]) {
			if v.Name == volume {
				names = append(names, pods.Items[i].Name)
			}
		}
	}
	return names
}

func (w *world) usersOfHandle(ctx context.Context, node, unique string) []string {
	for _, v := range w.history.World.Volumes {
		if unique == "kubernetes.io/csi/"+virtual.Driver+"^"+v.Handle {
			return w.users(ctx, node, v.Name)
		}
	}
	w.violated(ruleForeign, "%s was released from %s", unique, node)
	return nil
}

// auditRelease holds it against the invariants that a volume was taken out of a node's list.
func (w *world) auditRelease(node string, released, users []string) {
	w.count("volumes released")
	if len(users) > 0 {
		w.violated(ruleInUse, "%v were released from %s under %v", released, node, users)
	}
}

// auditDetach holds the deletion of an attachment against the invariants.
func (w *world) auditDetach(p *process, a *act, va *storagev1.VolumeAttachment, users []string) {
	node, name := va.Spec.NodeName, *va.Spec.Source.PersistentVolumeName
	if va.Spec.Attacher != virtual.Driver {
		w.violated(ruleForeign, "attachment %s of %s was deleted", va.Name, va.Spec.Attacher)
		return
	}
	if len(users) > 0 {
		w.violated(ruleInUse, "attachment %s was deleted under %v", va.Name, users)
	}
	v := w.volume(name)
	r, ok := p.reading(a, v.Resource())
	if !ok {
		w.violated(ruleFresh, "attachment %s", va.Name)
		return
	}
	if r.writable[node] && v.Kind != NFSExport && !w.usedByOther(v, node) {
		w.breach(ruleForeign, "attachment "+va.Name, []string{v.Resource()}, r.excused(node, true))
	}
	if !w.positive(r, node) {
		w.violated(ruleUnknown, "attachment %s was deleted", va.Name)
	}
}

// usedByOther tells whether another volume of the same resource is used on the node: DRBD has one role for all.
func (w *world) usedByOther(v Volume, node string) bool {
	for _, other := range w.history.World.Volumes {
		if other.Name != v.Name && other.Resource() == v.Resource() && len(w.users(w.ctx, node, other.Name)) > 0 {
			return true
		}
	}
	return false
}
