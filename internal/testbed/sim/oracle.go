package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The invariants, by the names under which they are reported.
const (
	// RuleWritable: no pod is force-deleted whose node can commit a write to one of its volumes, and could during all of the last moments.
	RuleWritable = "a pod was deleted by force although its node could still write"
	// RuleHarmless: none is deleted at all unless its node cannot write one of its volumes, or could not a moment ago.
	RuleHarmless = "a pod was deleted although its node could still write all its volumes"
	// ruleSelected: none is deleted that is not selected, or is exempt, when the API deletes it.
	ruleSelected = "a pod was deleted that must not be"
	// ruleTogether: none is deleted that would wait elsewhere for a volume which another pod keeps on its node.
	ruleTogether = "a pod was deleted although another one keeps a volume of it"
	// ruleIdentity: none is deleted whose UID was not the one decided on.
	ruleIdentity = "a pod was deleted that was not the one decided on"
	// ruleDemoted: a pod removed as Demoted did not have its volume open for the whole grace.
	ruleDemoted = "a pod was deleted as Demoted although its volume was open a while ago"
	// ruleEarly: a pod that is deleted before the confirmed grace has passed was lost to three networks.
	ruleEarly = "a pod was deleted early although three networks did not agree"
	// ruleUnknown: nothing is done on an unknown alone.
	ruleUnknown = "something was done without positive evidence"
	// RuleInUse: no attachment is deleted or released while a pod on its node uses the volume.
	RuleInUse = "a volume was taken from a node under a pod"
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
	for _, v := range w.VolumesOf(pod) {
		volumes = append(volumes, w.volumeNamed(v.Name))
	}
	return volumes
}

// volumeNamed returns the volume of a PersistentVolume: one of the history, or one that came with a pod.
func (w *world) volumeNamed(name string) Volume {
	for _, v := range w.history.World.Volumes {
		if v.Name == name {
			return v
		}
	}
	return Volume{Name: name, Handle: w.VolumeNamed(name).Handle, Kind: Filesystem, Quorum: "off", ephemeral: true}
}

// NeedlessRestart counts the pods that were deleted although their node could write all their volumes again.
const NeedlessRestart = "needless restart of a healthy workload, by facts of the last five seconds"

// auditRemoval holds the deletion of a pod against the invariants. meant is the UID of the one that was decided on.
func (w *world) auditRemoval(b basis, meant types.UID, pod *corev1.Pod, silence time.Duration, options *client.DeleteOptions) {
	node, reason := home(pod), b.reason
	forced := options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0
	what := fmt.Sprintf("pod %s on %s (%s, by force: %t)", pod.Name, node, reason, forced)
	w.count(fmt.Sprintf("removed: %s", reason))
	w.count(fmt.Sprintf("removed by force: %t", forced))

	w.auditView(b, what)
	if deleted := w.deletedAs(pod); deleted.UID != meant {
		w.violated(ruleIdentity, "%s: its UID is %s, and %s was meant", what, deleted.UID, meant)
	} else if isSpared(deleted) {
		w.violated(ruleSelected, "%s, with the labels %v and the annotations %v", what, deleted.Labels, deleted.Annotations)
	}
	spec, known := w.workload(pod.Name)
	if strings.Contains(pod.Name, endedInfix) || b.spared || known && (spec.Exempt || spec.Unsafe && !w.history.World.Reckless || spec.Owner != "") {
		w.violated(ruleSelected, "%s", what)
	}
	if b.keptBy != "" {
		w.violated(ruleTogether, "%s: %s", what, b.keptBy)
	}
	w.mu.Lock()
	begun := w.marks[meant] == reason // what a fail-over that has begun finds closed under the pod is lost without another grace
	w.mu.Unlock()
	var writable []string
	lost, evidence, needless, open := false, false, true, time.Duration(0)
	taken, one := pardons{}, "" // one volume was taken for lost, and the others are taken with it
	for _, v := range w.volumesOf(pod) {
		if v.Kind == NFSExport || v.ephemeral && !w.history.World.Planned.Is {
			continue // balancing, or a copy, gives an ephemeral volume a second disk, and with it quorum
		}
		r, healthy := b.readings[v.Resource()], b.healthy[v.Resource()]
		w.takes(v, node, forced && !healthy)
		w.vacates(v, node)
		held := healthy || reason != failover.Demoted && r.promotable(node) && !w.abandoned(v, silence, reason) && !(begun && w.closedFor(v.Resource(), node) > 0)
		if healthy && !v.ephemeral { // that goes with its pod, and nobody else will ever write it
			writable = append(writable, v.Resource())
			taken.add(w.pardon(v, node, r.excused(node, true)))
		}
		lost, needless = lost || !held, needless && b.writes[v.Resource()]
		if held {
			one = cmp.Or(one, w.pardon(v, node, r.misled(node, reason)))
		}
		evidence = evidence || w.positive(r, node)
		open = max(open, w.closedFor(v.Resource(), node))
	}
	if !lost {
		w.breach(RuleHarmless, what, writable, one)
	} else if forced && len(writable) > 0 {
		w.breach(RuleWritable, what, writable, taken.all())
	}
	if lost && needless {
		w.count(NeedlessRestart)
		w.note("NEEDLESS RESTART: " + what)
	}
	if !evidence {
		w.violated(ruleUnknown, "%s", what)
	}
	if reason == failover.NodeUnreachable || reason == failover.QuorumLost {
		w.auditEarly(b, pod, silence, what)
	}
	if reason == failover.Demoted && open < grace.KnownGrace && !w.switchedOff(node) {
		w.breach(ruleDemoted, fmt.Sprintf("%s: closed for %s", what, open), writable, one)
	}
}

// abandoned tells whether the kubelet was silent for the known grace, and no node has a volume open that a pod must hold open.
func (w *world) abandoned(v Volume, silence time.Duration, reason failover.Reason) bool {
	open := func(node string) bool { return w.writesNow(place{v.Resource(), node}) }
	return reason == failover.NodeUnreachable && silence >= grace.KnownGrace-factsAge && v.Kind == Filesystem && !slices.ContainsFunc(w.history.World.Nodes, open)
}

// deletedAs returns a pod as it was when the API deleted it; the pod itself where that is not known.
func (w *world) deletedAs(pod *corev1.Pod) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted := w.deleted[client.ObjectKeyFromObject(pod)]; deleted != nil {
		return deleted
	}
	return pod
}

// writesNow reports whether a node can write a resource.
func (w *world) writesNow(at place) bool { return w.DRBD.CanWrite(at.what, at.node) }

// hasWritten reports whether a node can write a resource, and could during all of the last moments.
func (w *world) hasWritten(at place) bool {
	w.mu.Lock()
	since := w.writing[at]
	w.mu.Unlock()
	return w.writesNow(at) && time.Since(since) > factsAge
}

// keptBy returns the name of a pod on the node of another one, there since before the look, that is not to go and uses a volume of it; empty where
// there is none. stays tells whether a pod was to stay by each look of the last moments.
func (w *world) keptBy(pod *corev1.Pod, stays func(types.UID) bool) string {
	var pods corev1.PodList
	w.must(w.oracle.List(w.ctx, &pods, client.MatchingFields{"spec.nodeName": pod.Spec.NodeName}))
	needed := w.volumesOf(pod)
	for i := range pods.Items {
		other := &pods.Items[i]
		spec, known := w.workload(other.Name)
		if !known || hasEnded(other) || time.Since(w.boundAt(other)) <= factsAge ||
			!stays(other.UID) && !spec.Unsafe && spec.Owner == "" || spec.Unsafe && w.history.World.Reckless {
			continue
		}
		if slices.ContainsFunc(w.volumesOf(other), func(v Volume) bool {
			return !v.Shared && v.Kind != NFSExport && slices.ContainsFunc(needed, func(n Volume) bool { return n.Resource() == v.Resource() })
		}) {
			return other.Name
		}
	}
	return ""
}

// breach reports what is wrong unless there is an excuse.
func (w *world) breach(rule, what string, writable []string, excuse string) {
	if excuse != "" {
		w.excuse(excuse, "%s: %s can write %v", rule, what, writable)
		return
	}
	w.violated(rule, "%s can write %v", what, writable)
}

// runsFenced tells whether the settings that a node runs fence it: if they do not, it is no excuse that words were old.
func (w *world) runsFenced(v Volume, node string) bool {
	state, ok := w.DRBD.Replica(v.Resource(), node)
	if !ok {
		return true
	}
	switch state.Quorum {
	case drbd.QuorumMajority, drbd.QuorumAll:
		return true
	}
	votes, _ := strconv.Atoi(state.Quorum)
	return 2*votes > len(v.Diskful)
}

// old tells whether LINSTOR may not know that what it knows from a satellite is old: that had been cut off a moment before,
// or LINSTOR wrongly takes it for ONLINE.
func (r reading) old(node string) bool {
	since, silent := r.silent[node]
	return silent && (r.at.Sub(since) < excuse || r.frozen[node])
}

// stillThere is how long after the node LINSTOR must call the witnesses ONLINE.
const stillThere = 2500 * time.Millisecond

// missed tells whether LINSTOR must have missed a witness by the time at which it is believed that the node is not ONLINE.
func (r reading) missed(witness, node string) bool {
	a, _ := r.resource.Replica(node)
	return a.Online.Known && !a.Online.Value && !r.frozen[witness] &&
		r.silent[witness].Add(excuse).Before(a.Online.Since.Add(stillThere))
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
		connection, ok := replica.Connections[node]
		if replica.Node == node || !ok || !connection.Known || !replica.Online.Known || !replica.Online.Value {
			continue
		}
		old, truth := r.old(replica.Node) && !r.missed(replica.Node, node), r.truth[replica.Node]
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
		connection, ok := replica.Connections[node]
		about = about || replica.Node != node && ok && connection.Known && !connection.Value
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return survivor && (about || time.Since(w.renewed[node]) >= grace.KubeletSilence)
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

// user is a pod that uses a volume, and when it was bound to the node.
type user struct {
	name  string
	bound time.Time
	// runs is set once its containers run.
	runs bool
}

// users returns the pods on a node of Kubernetes that use a volume of that handle.
func (w *world) users(ctx context.Context, node, handle string) []user {
	var pods corev1.PodList
	w.must(w.oracle.List(context.WithoutCancel(ctx), &pods, client.MatchingFields{"spec.nodeName": node}))
	var users []user
	for i := range pods.Items {
		pod := &pods.Items[i]
		if strings.Contains(pod.Name, endedInfix) {
			continue // it holds nothing
		}
		for _, v := range w.volumesOf(pod) {
			if v.Handle == handle {
				users = append(users, user{pod.Name, w.boundAt(pod), pod.Status.Phase == corev1.PodRunning})
			}
		}
	}
	return users
}

// usedUnder holds it against the invariant that a volume was taken from under pods. Who arrived after the list that the write
// rests on could not be seen, and does not run yet.
func (w *world) usedUnder(users []user, format string, args ...any) {
	var seen, unseen []string
	for _, u := range users {
		if time.Since(u.bound) <= factsAge && !u.runs {
			unseen = append(unseen, u.name)
		} else {
			seen = append(seen, u.name)
		}
	}
	what := fmt.Sprintf(format, args...)
	if len(seen) > 0 {
		w.violated(RuleInUse, "%s under %v", what, seen)
	} else if len(unseen) > 0 {
		w.excuse(ExcuseArrived, "%s under %v", what, unseen)
	}
}

func (w *world) usersOfHandle(ctx context.Context, node, unique string) []user {
	handle, ok := strings.CutPrefix(unique, "kubernetes.io/csi/"+virtual.Driver+"^")
	if !ok || !w.HasHandle(handle) {
		w.violated(ruleForeign, "%s was released from %s", unique, node)
		return nil
	}
	return w.users(ctx, node, handle)
}

// auditRelease holds it against the invariants that a volume was taken out of a node's list.
func (w *world) auditRelease(node string, released []string, users []user) {
	w.count("volumes released")
	w.usedUnder(users, "%v were released from %s", released, node)
}

// auditDetach holds the deletion of an attachment against the invariants.
func (w *world) auditDetach(b basis, v Volume, va *storagev1.VolumeAttachment, users []user) {
	node := w.Satellite(va.Spec.NodeName)
	if va.Spec.Attacher != virtual.Driver {
		w.violated(ruleForeign, "attachment %s of %s was deleted", va.Name, va.Spec.Attacher)
		return
	}
	w.usedUnder(users, "attachment %s was deleted", va.Name)
	r, healthy := b.readings[v.Resource()], b.healthy[v.Resource()]
	w.takes(v, node, !healthy)
	if healthy && v.Kind != NFSExport && !w.usedByOther(v, node) {
		w.breach(ruleForeign, "attachment "+va.Name, []string{v.Resource()}, w.pardon(v, node, r.excused(node, true)))
	}
	if !w.positive(r, node) {
		w.violated(ruleUnknown, "attachment %s was deleted", va.Name)
	}
}

// taking is when the controllers took a volume from a node, and whether LINSTOR had ever shown for long enough what that runs.
type taking struct {
	at     time.Time
	unseen bool
	// vouched is set where somebody has said that the node does not run.
	vouched bool
}

// takes notes that the controllers have taken a volume from a node. If that could not write when it was looked at, and can by the
// time that the API acts, nobody could know.
func (w *world) takes(v Volume, node string, couldNot bool) {
	can, unseen, vouched := w.DRBD.CanWrite(v.Resource(), node), w.unseen(v.Resource(), node), w.vouched(node)
	w.mu.Lock()
	if state, ok := w.DRBD.Replica(v.Resource(), node); ok && state.Open > 0 {
		w.taken[place{v.Resource(), node}] = taking{time.Now(), unseen, vouched}
	}
	w.mu.Unlock()
	if couldNot && can {
		w.excuse(ExcuseDelayed, "resource %s on %s", v.Resource(), node)
	}
}

// usedByOther tells whether another volume of the same resource is used on the node: DRBD has one role for all.
func (w *world) usedByOther(v Volume, node string) bool {
	for _, other := range w.history.World.Volumes {
		if other.Handle != v.Handle && other.Resource() == v.Resource() && len(w.users(w.ctx, w.kube(node), other.Handle)) > 0 {
			return true
		}
	}
	return false
}
