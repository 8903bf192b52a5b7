package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// ruleLeftovers: when all is healthy again, no timer, queue entry, store entry, taint or mark of the controller remains.
const ruleLeftovers = "something was left over when all was well again"

// mend undoes every fault.
func (w *world) mend() {
	nodes := w.history.World.Nodes
	w.mendPlanned()
	w.mu.Lock()
	clear(w.atWrite)
	clear(w.hangsNext)
	w.mu.Unlock()
	for _, deed := range []Deed{RecoverAPI, AllowTaints, AllowRelease, CalmAPI, FastAPI, AcceptAPI, UnhangAPI, EndLag, EndStalls, EndOverlap, Unpause, FastLinstor} {
		w.do(Step{What: deed})
	}
	w.Linstor.Start()
	if w.Linstor.Blind() {
		w.do(Step{What: RestartLinstor})
	}
	w.mendSettings()
	for i := range w.processes {
		for _, deed := range []Deed{ThawProcess, RestoreLinstor, RestoreAPI, ResumeCache} {
			w.do(Step{What: deed, On: strconv.Itoa(i)})
		}
	}
	for _, v := range w.history.World.Volumes {
		w.do(Step{What: EndMigration, On: v.Name})
		w.do(Step{What: FreeResource, On: v.Name})
		if w.pending[v.Name] {
			w.do(Step{What: BindAgain, On: v.Name})
		}
		if v.Released != Gone {
			w.Linstor.SetDefinitionProperty(v.Resource(), linstorsim.PropQuorum, v.Quorum)
			w.Linstor.SetDefinitionProperty(v.Resource(), linstorsim.PropAutoTieBreaker, "")
		}
		if !v.TwoPrimaries {
			w.Linstor.SetDefinitionProperty(v.Resource(), linstorsim.PropAllowTwoPrimaries, "")
		}
	}
	for _, p := range w.history.World.Workloads {
		w.do(Step{What: RemoveFinalizer, On: p.Name})
		w.do(Step{What: SpareNoMore, On: p.Name})
		w.do(Step{What: StopSlowly, On: p.Name, For: time.Second})
		w.Change(podKey(p.Name), func(p *virtual.Workload) { p.InitTime = 0 })
	}
	w.leaveLate()
	w.markReleased()
	for _, node := range w.history.World.Foreign {
		w.do(Step{What: Return, Node: node})
		w.do(Step{What: RestoreKubelet, Node: node})
	}
	for _, node := range nodes {
		for _, deed := range []Deed{UnfreezeSatellite, ThawMachine, FreePools, Return, Rejoin, RejoinDRBD, RestoreSatellite, RestoreKubelet, ShutdownUntaint, PutIntoService} {
			w.do(Step{What: deed, Node: node})
		}
		w.do(Step{What: TakeBack, Node: node})
		if w.evicted[node] || !w.history.World.Planned.Is {
			w.do(Step{What: RestoreNode, Node: node})
		}
		for _, peer := range nodes {
			w.DRBD.HealLink(node, peer)
			for _, v := range w.history.World.Volumes {
				if v.Released != Dead {
					w.DRBD.HealResourceLink(v.Resource(), node, peer)
				}
			}
		}
		for _, v := range w.history.World.Volumes {
			w.replaceDisk(v.Resource(), node)
			_ = w.DRBD.Reconnect(v.Resource(), node)
		}
	}
}

// markReleased lets Kubernetes mark the volumes whose claims were deleted.
func (w *world) markReleased() {
	for _, v := range w.history.World.Volumes {
		var pv corev1.PersistentVolume
		if v.Unmarked && w.Client().Get(w.ctx, client.ObjectKey{Name: v.Name}, &pv) == nil {
			pv.Status.Phase = corev1.VolumeReleased
			w.must(w.Client().Status().Update(w.ctx, &pv))
		}
	}
}

// well tells whether every pod runs and every resource is whole; if not, why.
func (w *world) well() string {
	for _, name := range w.DRBD.Resources() {
		if w.ofNobody(name) {
			continue
		}
		for node, state := range w.DRBD.Inspect(name) {
			if state.Score == 0 || state.Unnoticed {
				return "resource " + name + " on " + node
			}
			if !slices.Contains(w.Linstor.ReplicaNodes(name), node) {
				return "replica of " + name + " on " + node + ", which LINSTOR has forgotten"
			}
			for peer, connection := range state.Connections {
				if connection != drbd.Connected {
					return "connection of " + name + " from " + node + " to " + peer
				}
			}
		}
	}
	for _, node := range w.history.World.Nodes {
		if !w.Linstor.Hears(node) {
			return "satellite " + node
		}
	}
	for _, p := range w.history.World.Workloads {
		var pod corev1.Pod
		if w.oracle.Get(w.ctx, podKey(p.Name), &pod) != nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return "pod " + p.Name
		}
		for _, v := range w.volumesOf(&pod) {
			if _, ok := w.DRBD.Replica(v.Resource(), home(&pod)); !ok && v.Kind != NFSExport {
				return "no replica of volume " + v.Name + " under pod " + p.Name
			}
			if v.Kind != NFSExport && !slices.Contains(w.Linstor.ReplicaNodes(v.Resource()), home(&pod)) {
				return "replica of volume " + v.Name + " under pod " + p.Name + ", which LINSTOR has forgotten"
			}
			if opens(v) && !w.isPrimary(v.Resource(), home(&pod)) {
				return "volume " + v.Name
			}
			if opens(v) && !w.DRBD.CanWrite(v.Resource(), home(&pod)) {
				return "quorum of volume " + v.Name // which may be set to more than there are replicas
			}
		}
	}
	return ""
}

// ofNobody tells whether a resource is a volume's that no pod uses any more.
func (w *world) ofNobody(resource string) bool {
	return !slices.ContainsFunc(w.history.World.Volumes, func(v Volume) bool { return v.Resource() == resource && v.Released == "" })
}

// opens tells whether a pod holds such a volume open for writing.
func opens(v Volume) bool { return v.Kind == Filesystem || v.Kind == Block }

func (w *world) isPrimary(resource, node string) bool {
	state, ok := w.DRBD.Replica(resource, node)
	return ok && state.Role == drbd.Primary
}

// checkLeftovers looks for what the controller has left behind. Where all has become well a moment ago only, it gets another minute.
func (w *world) checkLeftovers() {
	if w.well() == "" && len(w.leftovers()) > 0 {
		w.pass(time.Minute)
	}
	if why := w.well(); why != "" {
		w.count("not well in the end")
		w.note("NOT WELL in the end: " + why)
		return
	}
	w.count("well in the end")
	for _, left := range w.leftovers() {
		w.violated(ruleLeftovers, "%s", left)
	}
}

// leftovers tells what is left of the controller's doings.
func (w *world) leftovers() (left []string) {
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	var nodes corev1.NodeList
	w.must(w.oracle.List(w.ctx, &nodes))
	for _, node := range nodes.Items {
		_, marked := node.Annotations[cluster.AnnotationKeepAway]
		tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintLostQuorum })
		silenced := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cluster.TaintNodeSilent })
		if marked || tainted || silenced {
			add("node %s: marked %t, tainted %t, as silent %t: %s", node.Name, marked, tainted, silenced, node.Annotations[cluster.AnnotationKeepAway])
		}
	}
	left = append(left, w.plannedLeftovers(nodes.Items)...)
	var attachments storagev1.VolumeAttachmentList
	w.must(w.oracle.List(w.ctx, &attachments))
	for _, va := range attachments.Items {
		if mark, marked := va.Annotations[cluster.AnnotationFailOver]; marked {
			add("attachment %s is marked: %s", va.Name, mark)
		}
	}
	for _, p := range w.processes {
		// One that has ceased to lead ends, in production, and forgets all by that.
		if lines := p.memory.Lines(); len(lines) > 0 && !p.leading.IsZero() {
			add("%s remembers: %s", p.name, strings.Join(lines, "; "))
		}
		for _, volume := range w.timers(p) {
			add("%s", volume)
		}
		for _, name := range p.store.Names() {
			if !slices.Contains(w.DRBD.Resources(), name) && !w.Linstor.HasDefinition(name) {
				add("%s stores resource %s", p.name, name)
			}
		}
	}
	return left
}

// neverStarts tells whether a pod waits for a volume on a node whose replica a person has removed from under its attachment.
func (w *world) neverStarts(v Volume) bool {
	return slices.ContainsFunc(w.allPods(), func(pod *corev1.Pod) bool {
		if home(pod) == "" || hasRun(pod) || !slices.ContainsFunc(w.volumesOf(pod), func(own Volume) bool { return own.Name == v.Name }) {
			return false
		}
		_, there := w.DRBD.Replica(v.Resource(), home(pod))
		return !there
	})
}

// timers are those of a process that are superfluous: if all volumes of a node are in use where they should be, nobody asks for another
// reconcile.
func (w *world) timers(p *process) (left []string) {
	p.mu.Lock()
	again := maps.Clone(p.again)
	p.mu.Unlock()
	for _, node := range w.history.World.Nodes {
		after := again["node "+w.kube(node)]
		if after == 0 {
			continue
		}
		var never, other bool
		for _, pod := range w.allPods() {
			if pod.Spec.NodeName != w.kube(node) {
				continue
			}
			for _, v := range w.volumesOf(pod) {
				never = never || w.neverStarts(v)
				// LINSTOR does not announce that one of several users has opened a volume again: that is read with the next resync.
				other = other || !opens(v) || v.Shared || w.history.World.shared(v)
			}
		}
		switch {
		case never:
			w.excuse(ExcuseNeverStarts, "node %s", node)
		case !other:
			left = append(left, fmt.Sprintf("%s: node %s is reconciled again after %s", p.name, node, after))
		}
	}
	return left
}

// resources are those of a pod's volumes.
func (world World) resources(p Workload) []string {
	var all []string
	for _, name := range p.Volumes {
		all = append(all, world.volume(name).Resource())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// share tells whether two pods use a resource both.
func (world World) share(p, q Workload) bool {
	return slices.ContainsFunc(world.resources(p), func(r string) bool { return slices.Contains(world.resources(q), r) })
}

// shared tells whether several volumes have one resource.
func (world World) shared(v Volume) bool {
	return slices.ContainsFunc(world.Volumes, func(other Volume) bool {
		return other.Name != v.Name && other.Resource() == v.Resource()
	})
}
