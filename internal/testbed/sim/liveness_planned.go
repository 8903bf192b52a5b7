package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// What must happen in time where nodes leave on purpose.
const (
	// RuleSwitchedOff: where a node has been StorageSafe for half a minute and is switched off, each of its volumes can be used elsewhere
	// as soon as DRBD has noticed.
	RuleSwitchedOff = "a volume cannot be used although its node was StorageSafe when it was switched off"
	// RuleReplicas: a volume never has more disks than it had, and one for each time that a node was to leave.
	RuleReplicas = "a volume has too many replicas"
	// RuleSafeInTime: with a target and room, a node is StorageSafe within the time of the syncs and a minute.
	RuleSafeInTime = "a node that is to leave is not StorageSafe in time"
	// RuleGoneInTime: and once it is drained everything has left it within the time of all syncs and three minutes.
	RuleGoneInTime = "a drained node is not evacuated in time"
)

// SwitchedOff counts the nodes that were switched off because they were StorageSafe, SafeAsked and GoneAsked the histories in which a node
// had to be StorageSafe, and evacuated, in time.
const (
	SwitchedOff = "nodes leave: switched off when StorageSafe"
	SafeAsked   = "nodes leave: a node had to be StorageSafe in time"
	GoneAsked   = "nodes leave: a node had to be evacuated in time"
)

const (
	// safeFor is how long a node must have been StorageSafe to be switched off.
	safeFor = 30 * time.Second
	// noticing is how long DRBD and the others take at most to find out that a node is gone.
	noticing = 15 * time.Second
	// safeTime and goneTime are what being safe and leaving may take beside the syncs.
	safeTime, goneTime = time.Minute, 3 * time.Minute
	// sizeKiB is the size of each volume.
	sizeKiB = drbd.DefaultSizeKiB
)

// powerCut is a node that was switched off because it was StorageSafe.
type powerCut struct {
	node      string
	at        time.Time
	resources []string
	// unusable are those that nobody could use before, as after a split brain.
	unusable map[string]bool
	// ran are the other nodes that ran then.
	ran []string
	// beside is another node that was not well then, or has not been since, for another reason; empty while there is none.
	beside string
}

// dues is since when a node that is to leave has had to get on.
type dues struct {
	// safe is since when it has had all that it takes to be StorageSafe, gone since when it has been drained beside that.
	safe, gone time.Time
	// fine is when it last was what it has to be, or could not be.
	fine     struct{ safe, gone time.Time }
	reported bool
}

// checkPlanned holds the nodes that leave against the invariants that no single act can break.
func (w *world) checkPlanned() {
	if !w.history.World.Planned.Is {
		return
	}
	w.compareLast()
	w.noteAiling()
	w.switchOff()
	w.checkCuts()
	w.checkReplicas()
	w.checkWords()
	for _, node := range w.history.World.Nodes {
		w.checkProgress(node)
	}
}

// compareLast notes of which resources LINSTOR wants something else than a moment ago, whoever has brought that about.
func (w *world) compareLast() {
	if w.wantedLast != nil {
		w.compare(w.wantedLast)
	}
	w.wantedLast = w.wanted()
}

// noteAiling notes since when nodes have not been well.
func (w *world) noteAiling() {
	for _, node := range w.history.World.Nodes {
		keepSince(w.ailing, node, !w.nodeIsWell(node) || !w.DRBD.Up(node) || w.evicted[node] || w.frozen[node] || !w.connected(node, w.isClaimed))
		if !w.ailing[node].IsZero() {
			w.ailed[node] = true
		}
	}
}

// connected tells whether all connections of a node are alive, of the resources that count.
func (w *world) connected(node string, counts func(resource string) bool) bool {
	for _, resource := range w.DRBD.Resources() {
		if !counts(resource) {
			continue
		}
		state, _ := w.DRBD.Replica(resource, node)
		for _, connection := range state.Connections {
			if connection != drbd.Connected {
				return false
			}
		}
	}
	return true
}

func (w *world) isClaimed(resource string) bool { return !w.ofNobody(resource) }

// isEphemeral tells whether a resource came with a pod, and LINSTOR still has it. A peer whose satellite is late to adjust is not connected to
// it yet.
func (w *world) isEphemeral(resource string) bool {
	return !w.isVolume(resource) && len(w.Linstor.ReplicaNodes(resource)) > 0
}

// switchOff switches nodes off that may be.
func (w *world) switchOff() {
	for _, node := range slices.Sorted(maps.Keys(w.armed)) {
		w.mu.Lock()
		since, safe := w.safe[node]
		w.mu.Unlock()
		if !safe || time.Since(since) < safeFor || !w.DRBD.Up(node) {
			continue
		}
		cut := &powerCut{node: node, at: time.Now(), unusable: make(map[string]bool)}
		for _, resource := range w.DRBD.Resources() {
			if w.isVolume(resource) && !w.ofNobody(resource) && slices.Contains(w.Linstor.ReplicaNodes(resource), node) {
				cut.resources = append(cut.resources, resource)
				cut.unusable[resource] = !w.isUsable(resource, "")
			}
		}
		for _, other := range w.history.World.Nodes {
			if other != node && w.DRBD.Up(other) {
				cut.ran = append(cut.ran, other)
			}
		}
		delete(w.armed, node)
		w.cuts = append(w.cuts, cut)
		w.count(SwitchedOff)
		w.note("SWITCHED OFF " + node)
		w.Crash(w.kube(node))
	}
}

// checkCuts looks whether the volumes of nodes that were switched off can be used.
func (w *world) checkCuts() {
	w.cuts = slices.DeleteFunc(w.cuts, func(cut *powerCut) bool {
		if w.DRBD.Up(cut.node) {
			return true // it is back
		}
		cut.beside = cmp.Or(cut.beside, w.unwellBeside(cut))
		if time.Since(cut.at) < noticing {
			return false
		}
		for _, resource := range cut.resources {
			w.checkCut(cut, resource)
		}
		return true
	})
}

// isUsable tells whether a node other than this one has the resource open for writing, or could.
func (w *world) isUsable(resource, than string) bool {
	for node, state := range w.DRBD.Inspect(resource) {
		if node != than && (state.MayPromote || state.Role == drbd.Primary && state.CanWrite) {
			return true
		}
	}
	return false
}

func (w *world) checkCut(cut *powerCut, resource string) {
	if w.isUsable(resource, cut.node) {
		return
	}
	states := w.DRBD.Inspect(resource)
	if cut.unusable[resource] {
		w.excuse(ExcuseUnusable, "resource %s without %s", resource, cut.node)
		return
	}
	if cut.beside != "" {
		w.excuse(ExcuseAnotherNode, "resource %s without %s: %s", resource, cut.node, cut.beside)
		return
	}
	if since := cut.at.Add(-safeFor); w.changedAt[resource].After(since) || w.failedAt[resource].After(since) {
		w.excuse(ExcuseAnotherNode, "resource %s without %s was changed", resource, cut.node)
		return
	}
	if w.isBlind() { // all that LINSTOR says is what was so before
		w.excuse(ExcuseOldWords, "resource %s without %s", resource, cut.node)
		return
	}
	w.violated(RuleSwitchedOff, "resource %s without %s: %v", resource, cut.node, words(states))
}

// unwellBeside returns a node that has failed since half a minute before the cut; empty where there is none.
func (w *world) unwellBeside(cut *powerCut) string {
	for _, node := range cut.ran {
		if !w.DRBD.Up(node) { // one that was unwell before, too
			return node
		}
	}
	for node, since := range w.ailing {
		if node == cut.node || !since.After(cut.at.Add(-safeFor)) {
			continue
		}
		for _, resource := range cut.resources {
			if !w.lackOf(resource, node, cut.node) {
				return node
			}
		}
	}
	return ""
}

// lackOf tells whether all that is wrong with a node is that the other one is gone.
func (w *world) lackOf(resource, node, gone string) bool {
	if !w.DRBD.Up(node) || !w.Linstor.Hears(node) || w.kubelet[node] || w.machines[node] || w.evicted[node] || w.frozen[node] {
		return false
	}
	for peer, connection := range w.DRBD.Inspect(resource)[node].Connections {
		if peer != gone && (connection != drbd.Connected || !w.DRBD.Live(resource, node, peer)) { // nobody need have noticed yet
			return false
		}
	}
	return true
}

func words(states map[string]drbd.Truth) (all []string) {
	for _, node := range slices.Sorted(maps.Keys(states)) {
		state := states[node]
		all = append(all, node+": "+state.Role+" "+state.DiskState+" quorum "+state.Quorum)
	}
	return all
}

// checkReplicas counts the disks of each volume.
func (w *world) checkReplicas() {
	w.mu.Lock()
	restored, leavings := w.restored, len(w.byOther)
	for _, n := range w.leavings {
		leavings += n
	}
	w.mu.Unlock()
	if restored {
		return
	}
	if slices.ContainsFunc(w.history.Steps, func(s Step) bool { return s.What == Overlap }) {
		leavings++ // two leaders may tell LINSTOR to move the same disk, in the same moment
	}
	for _, v := range w.history.World.Volumes {
		disks := w.Linstor.DiskNodes(v.Resource())
		most := max(len(v.Diskful), 2) + leavings + w.added[v.Resource()] + len(w.ailed) + boolInt(w.damaged[v.Resource()])
		if len(disks) > most && !w.crowded[v.Resource()] {
			w.crowded[v.Resource()] = true
			w.violated(RuleReplicas, "resource %s has disks on %v, at most %d are expected", v.Resource(), disks, most)
		}
	}
}

// checkProgress holds a node that is to leave against what must happen in time.
func (w *world) checkProgress(name string) {
	node, mode := w.leaverOf(name)
	d := w.due[name]
	if node == nil || !w.mayLeave(name) {
		delete(w.due, name)
		return
	}
	if d.safe.IsZero() {
		d.safe = time.Now()
	}
	switch {
	case !w.drained(name), mode != evacuation.Everything:
		d.gone = time.Time{}
	case d.gone.IsZero():
		d.gone = time.Now()
	}
	conditions := cluster.EvacuationConditions(node)
	syncs := w.syncs()
	if w.fulfils(name, conditions.Safe, w.lacksCopy) {
		d.fine.safe = time.Now()
	}
	if w.fulfils(name, conditions.Evacuated, w.lacksPlace) {
		d.fine.gone = time.Now()
	}
	if time.Since(d.safe) > syncs+safeTime {
		w.reach(SafeAsked)
		if !d.reported && time.Since(d.fine.safe) > catchUp && time.Since(w.lastDrain) > catchUp {
			d.reported = true
			w.violated(RuleSafeInTime, "node %s for %s: %v", name, time.Since(d.safe), conditions.Safe)
		}
	}
	if mode == evacuation.Everything && !d.gone.IsZero() && time.Since(d.gone) > 2*syncs+goneTime {
		w.reach(GoneAsked)
		if !d.reported && time.Since(d.fine.gone) > catchUp && time.Since(w.lastDrain) > catchUp {
			d.reported = true
			w.violated(RuleGoneInTime, "node %s for %s: %v", name, time.Since(d.gone), conditions.Evacuated)
		}
	}
	w.due[name] = d
}

// catchUp is how long a node may take to be again what it was, or need not be any more: it is looked at every ten seconds, and what has
// changed may take one more step.
const catchUp = 25 * time.Second

// fulfils tells whether a node is what it has to be, or is blocked for a reason that is true.
func (w *world) fulfils(name string, c *evacuation.Condition, hindered func(v Volume, name string) bool) bool {
	return c != nil && (c.Status == evacuation.True || w.isBlocked(name, c.Reason, hindered))
}

// leaverOf returns a node that has the taint, and the mode that it asks for; nil where it has none that means something.
func (w *world) leaverOf(name string) (*corev1.Node, evacuation.Mode) {
	w.mu.Lock()
	_, tainted := w.tainted[name]
	w.mu.Unlock()
	if !tainted {
		return nil, ""
	}
	var node corev1.Node
	w.must(w.oracle.Get(w.ctx, client.ObjectKey{Name: w.kube(name)}, &node))
	for _, t := range node.Spec.Taints {
		mode := evacuation.Mode(t.Value)
		if t.Key == evacuation.TaintKey && t.Effect == corev1.TaintEffectNoSchedule && (mode == evacuation.LastCopies || mode == evacuation.Everything) {
			return &node, mode
		}
	}
	return nil, ""
}

// mayLeave tells whether nothing is wrong in the cluster beside that the node is to leave, and it leaves alone.
func (w *world) mayLeave(name string) bool {
	w.mu.Lock()
	alone := len(w.tainted) == 1 && len(w.byOther) == 0 && !w.restored && len(w.adjusts) == 0 && len(w.hung) == 0 && len(w.flags) == 0
	w.mu.Unlock()
	if !alone || len(w.ailing) > 0 || len(w.pending) > 0 || w.isBlind() || !w.canAct() || w.lagPatience() > 0 || w.hasTaint(name, cluster.TaintLostQuorum) || w.failsOver(w.kube(name)) {
		return false
	}
	for _, node := range w.history.World.Nodes {
		if w.full[node] || w.hanging[node] || w.switchedOff(node) || w.isOutOfService(node) || !w.connected(node, w.isEphemeral) {
			return false
		}
	}
	return true
}

// lacksReplica tells whether LINSTOR has no replica on a node of a volume that is attached there: a person has removed it, or has had LINSTOR
// forget the node. Whatever the pod there writes is lost to LINSTOR, and nobody can say that it is safe.
func (w *world) lacksReplica(name string) bool {
	return slices.ContainsFunc(w.attachments(w.kube(name)), func(va storagev1.VolumeAttachment) bool {
		resource := w.volumeNamed(*va.Spec.Source.PersistentVolumeName).Resource()
		return !slices.Contains(w.Linstor.ReplicaNodes(resource), name)
	})
}

// drained tells whether nothing on a node is in use or attached.
func (w *world) drained(name string) bool {
	for _, resource := range w.DRBD.Resources() {
		if state, ok := w.DRBD.Replica(resource, name); ok && state.Open+state.OpenReadOnly > 0 {
			return false
		}
	}
	return len(w.attachments(w.kube(name))) == 0
}

// syncs is how long it takes to fill as many disks as there are volumes.
func (w *world) syncs() time.Duration {
	p := w.history.World.Planned
	rounds := 1 + len(w.history.World.Volumes)/max(p.MaxCopies, 1)
	if p.SyncRate == 0 {
		return 0
	}
	return time.Duration(rounds) * time.Duration(float64(sizeKiB)/float64(p.SyncRate)*float64(time.Second))
}

// schedulable tells whether a node takes pods and copies.
func (w *world) schedulable(name string) bool {
	var node corev1.Node
	w.must(w.oracle.Get(w.ctx, client.ObjectKey{Name: w.kube(name)}, &node))
	return !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "piraeus.io/") || t.Key == autoscalerTaint })
}
