package sim

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// RuleLiveness says that a pod whose storage is lost for good is gone in time, or reported as stuck, while a survivor, enough
// witnesses and a reachable LINSTOR exist and no gate holds it.
const RuleLiveness = "a pod was not removed in time"

// patience is what a fail-over may take beyond its grace: the pod is first asked to go, for 10 s.
const patience = 15 * time.Second

// liveness is what must happen in time.
type liveness struct {
	// stuck are the pods that were reported as StuckOnNode.
	stuck map[types.UID]bool
	// lost is since when a pod has had to go.
	lost map[types.UID]time.Time
	// split are the resources whose split brain was reported.
	split map[string]bool
}

func newLiveness() liveness {
	return liveness{stuck: make(map[types.UID]bool), lost: make(map[types.UID]time.Time), split: make(map[string]bool)}
}

// check holds the world as it is against the invariants that no single act can break.
func (w *world) check() {
	w.restartIfDue()
	w.listen()
	w.look()
	w.watchSatellites()
	for _, p := range w.processes {
		if p.synced.IsZero() && p.feed.Status().Synced {
			p.synced = time.Now()
		}
	}
	w.checkPlanned()
	w.checkWriters()
	w.checkLiveness()
	w.checkDetached()
	w.checkExplained()
}

// checkLiveness looks for pods that have had to go for too long.
func (w *world) checkLiveness() {
	due := make(map[types.UID]time.Time)
	if w.mayAct() {
		for _, p := range w.history.World.Workloads {
			pod := w.pod(p.Name)
			if pod == nil || !w.mustGo(p, pod) {
				continue
			}
			if w.awaitsReports() {
				w.free("the leader has just begun, and LINSTOR hears of fewer than half of the replicas")
				continue
			}
			since, known := w.lost[pod.UID]
			if !known {
				since = time.Now()
				w.asked()
			}
			if last := w.lastBound(pod); last.After(since) {
				since = last
			}
			due[pod.UID] = since
			if time.Since(since) > w.applicableTo(p, home(pod))+patience+w.lagPatience() && !w.isStuck(pod.UID) {
				w.violated(RuleLiveness, "pod %s on %s has been there for %s", pod.Name, home(pod), time.Since(since))
				due[pod.UID] = time.Now() // once per grace
			}
		}
	}
	w.lost = due
}

func (w *world) pod(name string) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[podKey(name)]
}

// lastBound is when the last of the pods was bound that use a resource of the pod on its node: the clock of their loss begins then.
func (w *world) lastBound(pod *corev1.Pod) (last time.Time) {
	own, _ := w.workload(pod.Name)
	for _, p := range w.history.World.Workloads {
		if other := w.pod(p.Name); w.history.World.share(p, own) && other != nil && other.Spec.NodeName == pod.Spec.NodeName {
			if at := w.boundAt(other); at.After(last) {
				last = at
			}
		}
	}
	return last
}

// applicableTo is the grace that applies to a pod: the longer one also if DRBD may accept a second Primary of a volume.
func (w *world) applicableTo(p Workload, node string) time.Duration {
	if slices.ContainsFunc(p.Volumes, func(name string) bool { v := w.volume(name); return v.Shared && v.Kind != Filesystem }) {
		return grace.KnownGrace + w.silence(node)
	}
	return w.applicable(node)
}

// applicable is the grace that applies: the longer one for a leader that does not remember the node, which then also
// needs the kubelet's silence.
func (w *world) applicable(node string) time.Duration {
	since, silent := w.silent[node]
	leader := w.processes[w.leader]
	if silent && (leader.synced.IsZero() || leader.synced.Add(memoryAge).After(since)) {
		return grace.KnownGrace + w.silence(node)
	}
	if w.wasFrozen {
		// Whose words LINSTOR did not renew for a while may have said the same before and after: nobody can tell which they are.
		return grace.KnownGrace + w.silence(node)
	}
	return grace.ConfirmedGrace
}

// silence is how long a kubelet must be silent: longer where it renews its Lease rarely.
func (w *world) silence(node string) time.Duration {
	every := max(w.history.World.Renew[node], usualRenewal)
	return time.Duration(float64(grace.KubeletSilence) * float64(every) / float64(usualRenewal))
}

const (
	// compared is how long after a stream has died nothing need be moved in time.
	compared = 80 * time.Second
	// resynced is how long the feed may take to find out what LINSTOR does not announce: the time between two resyncs, and a reading.
	resynced = 10*time.Minute + 20*time.Second
)

// memoryAge is how long a process takes at most until it has heard of every node.
const memoryAge = 5 * time.Second

func (w *world) isStuck(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck[uid]
}

// canAct tells whether the leader hears LINSTOR and the API, has done so long enough to remember the time before a
// loss, and the guard is open: not more than half of the nodes are in any way unwell, and enough replicas report.
func (w *world) canAct() bool { return w.mayAct() && !w.awaitsReports() }

// awaitsReports tells whether the leader has just begun to follow LINSTOR, and waits until LINSTOR hears of half of all replicas.
func (w *world) awaitsReports() bool {
	since := min(time.Since(w.linstorUp), time.Since(w.processes[w.leader].begun))
	return since < failover.GuardQuiet && !w.halfReports()
}

// mayAct is [world.canAct] but for the reports.
func (w *world) mayAct() bool {
	leader := w.processes[w.leader]
	if w.troubledNow() || time.Since(w.troubleEnded) < hanging || leader.freezer.frozen() || time.Since(leader.begun) < w.history.World.Late {
		return false
	}
	if w.history.World.DryRun || w.paused || w.forbidTaints.Load() || w.disturbed.Load() || w.linstorDown || w.answer.Load() > 0 || w.apiDown.Load() || !leader.reachesAPI() ||
		leader.cacheOld || leader.network.cut.Load() || time.Since(w.linstorUp) < settling {
		return false
	}
	if status := leader.feed.Status(); !status.Synced {
		return false
	}
	if !w.silenced.IsZero() && time.Since(w.silenced) < compared {
		return false
	}
	unwell := 0
	for _, node := range w.history.World.Nodes {
		if !w.nodeIsWell(node) {
			unwell++
		}
	}
	return 2*unwell <= len(w.history.World.Nodes)
}

// halfReports tells whether LINSTOR hears of half of all replicas.
func (w *world) halfReports() bool {
	replicas, reporting := 0, 0
	for _, resource := range w.DRBD.Resources() {
		for _, node := range w.Linstor.ReplicaNodes(resource) {
			replicas++
			if w.Linstor.Hears(node) {
				reporting++
			}
		}
	}
	return 2*reporting >= replicas
}

// nodeIsWell tells whether nothing at all is wrong with a node. A volume that was closed under its pod says nothing of it.
func (w *world) nodeIsWell(node string) bool {
	if !w.Linstor.Hears(node) || w.kubelet[node] || w.machines[node] {
		return false
	}
	for _, v := range w.history.World.Volumes {
		if state, ok := w.DRBD.Replica(v.Resource(), node); ok && state.Score == 0 {
			return false
		}
	}
	return true
}

// mustGo tells whether the pod is one that has lost its storage for all to see.
func (w *world) mustGo(p Workload, pod *corev1.Pod) bool {
	node := home(pod)
	if !p.removable() || isSpared(pod) || node == "" || hasEnded(pod) || !hasRun(pod) || w.leftToKubernetes(pod, node) {
		return false
	}
	lost := false
	for _, name := range p.Volumes {
		v := w.volume(name)
		switch {
		case w.isPending(v):
			return false
		case v.Kind == NFSExport: // its pods do not depend on the node's replica
		case w.movable(v, node):
			lost = lost || w.isLost(v, node)
		default:
			return false
		}
	}
	if !lost || w.applicable(node) > grace.ConfirmedGrace && w.DRBD.Up(node) && !w.kubelet[node] {
		return false
	}
	if w.sharesWithStranger(p, pod) {
		return false
	}
	// One pod that may not be removed blocks the others of its volume.
	for _, other := range w.history.World.Workloads {
		if w.history.World.share(other, p) && (!other.removable() || w.isSpared(other.Name) ||
			!slices.Equal(w.history.World.resources(other), w.history.World.resources(p))) {
			return false
		}
	}
	if w.byOther[node] && !w.DRBD.Up(node) { // LINSTOR has changed its replicas since, and nobody can tell what it runs
		w.free("a person has had LINSTOR evacuate its node, which has crashed")
		return false
	}
	return true
}

// hasRun tells whether any container of a pod has started.
func hasRun(pod *corev1.Pod) bool {
	return len(pod.Status.InitContainerStatuses)+len(pod.Status.ContainerStatuses) > 0
}

// sharesWithStranger tells whether a pod that is no workload's own uses one of the volumes on the same node.
func (w *world) sharesWithStranger(p Workload, pod *corev1.Pod) bool {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.pods))
	w.mu.Unlock()
	return slices.ContainsFunc(all, func(other *corev1.Pod) bool {
		if _, known := w.workload(other.Name); known || hasEnded(other) || other.Spec.NodeName != pod.Spec.NodeName {
			return false
		}
		if metav1.IsControlledBy(other, pod) && !isSpared(other) { // a helper, which goes with it
			return false
		}
		return slices.ContainsFunc(w.volumesOf(other), func(v Volume) bool { return slices.Contains(w.history.World.resources(p), v.Resource()) })
	})
}

// movable tells whether a volume could be used elsewhere, if it is lost here, and enough others say so.
func (w *world) movable(v Volume, node string) bool {
	if why := w.notAsked(v, node); why != "" {
		if w.isLost(v, node) {
			w.free(why)
		}
		return false
	}
	all := w.DRBD.Inspect(v.Resource())
	survivor, alone, diskful, heard, connected := false, false, len(v.Diskful), 0, false
	for _, other := range slices.Sorted(maps.Keys(all)) {
		state := all[other]
		if other == node || !w.Linstor.Hears(other) || w.evicted[other] {
			continue
		}
		if slices.Contains(v.Diskful, other) {
			heard++
		}
		if may := state.MayPromote && !state.Unnoticed; may && isAlone(state.Connections) {
			alone = true
		} else {
			survivor = survivor || may
		}
		connected = connected || state.Connections[node] == drbd.Connected || state.Role == drbd.Primary
	}
	if alone && !survivor {
		if !w.isLost(v, node) {
			return false
		}
		w.free("DRBD lets a node promote alone, since it knows that the others have no quorum, and nobody else can tell that from a node without quorum")
		return false
	}
	connected = connected || w.oldWordsSpeakOf(v, node)
	return survivor && !connected && 2*heard > diskful-boolInt(w.breaksTie(v, node))
}

// isAlone tells whether a replica reaches none of several others.
func isAlone(connections map[string]string) bool {
	for _, state := range connections {
		if state == drbd.Connected {
			return false
		}
	}
	return len(connections) > 1
}

// notAsked tells why nobody asks for a volume to be moved in time; empty if there is no such reason.
func (w *world) notAsked(v Volume, node string) string {
	switch {
	case v.Kind == NFSExport:
		return "the volume is an export of NFS"
	case w.changed[v.Resource()]:
		return "somebody has changed settings or replicas"
	case w.setAnew(v.Resource()):
		return "a person has set the quorum of the definition, may have done so twice between two readings, and not all satellites have come back since"
	case w.hangs(v.Resource()):
		return "LINSTOR does not answer on the resource"
	case !w.fenced(v):
		return "quorum does not fence"
	case w.migrated[v.Name]:
		return "the volume was migrated live"
	case !w.learned(node):
		return "the leader was started too late to learn what the node runs"
	}
	return ""
}

// setAnew tells whether a person has set the quorum of the definition, and not each satellite has come back since that was read for sure.
func (w *world) setAnew(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	marked := w.marked[resource]
	return !marked.IsZero() && !w.heardSince(marked.Add(readEvery))
}

// learned tells whether the leader has run for long enough, while LINSTOR heard the node, to know what that runs.
func (w *world) learned(node string) bool {
	leader := w.processes[w.leader]
	w.mu.Lock()
	defer w.mu.Unlock()
	from, until := leader.begun, time.Now()
	if w.returned[node].After(from) {
		from = w.returned[node]
	}
	if silent, is := w.silent[node]; is {
		until = silent
	}
	return until.Sub(from) >= learning+w.history.World.Late
}

// breaksTie tells whether a tie-breaker can tell what became of a node: the node has a disk, as there is no connection
// between two that have none.
func (w *world) breaksTie(v Volume, node string) bool {
	return v.TieBreaker != "" && v.TieBreaker != node && w.Linstor.Hears(v.TieBreaker) && slices.Contains(v.Diskful, node)
}

// oldWordsSpeakOf tells whether LINSTOR shows, of a satellite that it wrongly takes for ONLINE, that it reaches the node or
// knows of a Primary. Nobody can tell that from the truth, so it has to hold a fail-over up.
func (w *world) oldWordsSpeakOf(v Volume, node string) bool {
	shown, _ := w.processes[w.leader].store.Resource(v.Resource())
	for _, r := range shown.Replicas {
		if r.Node == node || !w.frozen[r.Node] && !w.isBlind() {
			continue
		}
		if connection := r.Connections[node]; connection.Value || r.InUse.Value || r.MayPromote.Known && !r.MayPromote.Value && r.Score.Value > 0 {
			return true
		}
	}
	return false
}

// isLost tells whether a node has lost a volume: it is down, or Primary without quorum, and LINSTOR has noticed.
func (w *world) isLost(v Volume, node string) bool {
	if w.frozen[node] || w.isBlind() || !slices.Contains(w.Linstor.ReplicaNodes(v.Resource()), node) {
		return false
	}
	state, ok := w.DRBD.Replica(v.Resource(), node)
	switch {
	case !ok:
		return w.Linstor.ConnectionStatus(node) == linstorsim.Offline
	case state.Role == drbd.Primary && !state.HasQuorum:
		return w.Linstor.Hears(node) || w.Linstor.ConnectionStatus(node) == linstorsim.Offline
	}
	return false
}

// fenced tells whether the quorum of a volume fences a node without its peers.
func (w *world) fenced(v Volume) bool {
	switch v.Quorum {
	case "majority", "all":
		return true
	case "":
		return len(v.Diskful) >= 3 || len(v.Diskful) == 2 && v.TieBreaker != ""
	}
	return false
}
