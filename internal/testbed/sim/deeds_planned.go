package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// What people and others do where nodes leave on purpose.
const (
	Leave         Deed = "taint to leave"
	Stay          Deed = "remove the taint to leave"
	DrainNode     Deed = "drain"
	Cordon        Deed = "cordon"
	Uncordon      Deed = "uncordon"
	ScaleDown     Deed = "taint by an autoscaler that is about to delete the node"
	ScaleUp       Deed = "remove the autoscaler's taint"
	SwitchOffSafe Deed = "switch off once it has been StorageSafe for 30 s"
	FillPool      Deed = "fill the storage pool"
	EmptyPool     Deed = "empty the storage pool"
	TakeSnapshot  Deed = "take a snapshot"
	OperatorOn    Deed = "let the operator restore nodes once a minute"
	OperatorOff   Deed = "stop the operator"
	AffinityOn    Deed = "start the affinity controller"
	AffinityOff   Deed = "stop the affinity controller"
	BalancingOn   Deed = "switch balancing on"
	BalancingOff  Deed = "switch balancing off"
	EvacuateOther Deed = "evacuate the node in LINSTOR by hand"
	RestoreOther  Deed = "restore the node in LINSTOR by hand"
	FlagReplica   Deed = "flag a replica"
	UnflagReplica Deed = "take the flags off a replica"
	MendAll       Deed = "mend all"
)

// operatorInterval is how often the operator looks.
const operatorInterval = time.Minute

// onPlanned is what is done with nodes that leave.
var onPlanned = map[Deed]func(w *world, s Step){
	Leave: func(w *world, s Step) { w.leave(s.Node, s.Value) },
	Stay:  func(w *world, s Step) { w.retaint(s.Node, leaveTaint(""), false) },
	DrainNode: func(w *world, s Step) {
		w.Drain(w.ctx, w.kube(s.Node))
	},
	Cordon:        func(w *world, s Step) { w.must(w.Cluster.Cordon(w.ctx, w.kube(s.Node), true)) },
	Uncordon:      func(w *world, s Step) { w.must(w.Cluster.Cordon(w.ctx, w.kube(s.Node), false)) },
	ScaleDown:     func(w *world, s Step) { w.scale(s, true) },
	ScaleUp:       func(w *world, s Step) { w.scale(s, false) },
	SwitchOffSafe: func(w *world, s Step) { w.armed[s.Node] = true },
	FillPool:      func(w *world, s Step) { w.fillPool(s.Node, 1) },
	EmptyPool:     func(w *world, s Step) { w.fillPool(s.Node, 0) },
	TakeSnapshot:  func(w *world, s Step) { _ = w.Linstor.TakeSnapshot(w.resource(s.On), snapshotName(s)) },
	OperatorOn:    func(w *world, _ Step) { w.Linstor.SetOperator(operatorInterval) },
	OperatorOff:   func(w *world, _ Step) { w.Linstor.SetOperator(0) },
	AffinityOn:    func(w *world, _ Step) { w.affinity = true; w.SetAffinityController(w.ctx, true) },
	AffinityOff:   func(w *world, _ Step) { w.affinity = false; w.SetAffinityController(w.ctx, false) },
	BalancingOn:   func(w *world, _ Step) { w.Linstor.SetControllerProperty(linstorsim.PropBalance, "true") },
	BalancingOff:  func(w *world, _ Step) { w.Linstor.SetControllerProperty(linstorsim.PropBalance, "false") },
	EvacuateOther: func(w *world, s Step) { w.byOther[s.Node] = true; _ = w.Linstor.Evacuate(s.Node) },
	RestoreOther:  func(w *world, s Step) { _ = w.Linstor.RestoreNode(s.Node) },
	FlagReplica:   (*world).flagReplica,
	UnflagReplica: (*world).flagReplica,
}

// wrongEffect is a value of Leave that gives the taint an effect that it must not have.
const wrongEffect = "PreferNoSchedule"

func leaveTaint(value string) corev1.Taint {
	if value == wrongEffect {
		return corev1.Taint{Key: evacuation.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule}
	}
	return corev1.Taint{Key: evacuation.TaintKey, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

// leave lets a node leave, in the mode of the value.
func (w *world) leave(node, value string) {
	w.mu.Lock()
	w.leavings[node]++
	w.mu.Unlock()
	w.retaint(node, leaveTaint(value), true)
}

// scale has an autoscaler taint a node that it is about to delete, or spare it after all.
func (w *world) scale(s Step, down bool) {
	w.mu.Lock()
	keepSince(w.doomed, s.Node, down)
	w.mu.Unlock()
	w.retaint(s.Node, corev1.Taint{Key: autoscalerTaint, Effect: corev1.TaintEffectNoSchedule}, down)
}

// autoscalerTaint is that of Karpenter.
const autoscalerTaint = "karpenter.sh/disrupted"

// replicaFlags are those of a replica that a person has LINSTOR delete or deactivate, and whose satellite has not done so yet.
var replicaFlags = []string{linstorsim.FlagDelete, linstorsim.FlagDRBDDelete, linstorsim.FlagInactive}

// replicaFlag is one of them, and since when a replica has it.
type replicaFlag struct {
	name  string
	since time.Time
}

// flagReplica gives a replica with a disk such a flag, or takes back what was given.
func (w *world) flagReplica(s Step) {
	at := place{w.resource(s.On), s.Node}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch flag := w.flags[at]; {
	case s.What == UnflagReplica && flag.name != "":
		delete(w.flags, at)
		w.Linstor.FlagReplica(at.what, at.node, flag.name, false)
	case s.What == FlagReplica && w.usedOn(at): // LINSTOR neither deletes nor deactivates what is in use
	case s.What == FlagReplica && flag.name == "" && slices.Contains(w.Linstor.DiskNodes(at.what), at.node):
		w.flags[at], w.changed[at.what] = replicaFlag{s.Value, time.Now()}, true
		w.added[at.what]++
		w.Linstor.FlagReplica(at.what, at.node, s.Value, true)
	}
}

// usedOn tells whether a replica is open.
func (w *world) usedOn(at place) bool {
	state, ok := w.DRBD.Replica(at.what, at.node)
	return ok && state.Open+state.OpenReadOnly > 0
}

// goes tells whether everybody must know that a replica is about to go. An old database of LINSTOR knows nothing of that.
func (w *world) goes(at place) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	flag, ok := w.flags[at]
	return ok && time.Since(flag.since) > evacuation.Evacuate.MaxAge() && !slices.Contains(w.Linstor.DiskNodes(at.what), at.node)
}

func (w *world) fillPool(node string, kib int64) {
	if w.full[node] && kib == 0 {
		w.fullUntil = time.Now()
	}
	w.full[node] = kib > 0
	w.Linstor.SetPool(node, kib)
}

// notePerson notes by whose hand replicas may go: that is none of an evacuation's doing.
func (w *world) notePerson(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.What { //nolint:exhaustive // the others remove nothing
	case RemoveReplica, ToggleDisk:
		w.personal[place{w.resource(s.On), s.Node}] = true
	case LoseNode:
		for _, v := range w.history.World.Volumes {
			w.personal[place{v.Resource(), s.Node}] = true
		}
	case RestoreDatabase:
		w.restored = true
	case FailDisk:
		w.failedAt[w.resource(s.On)] = time.Now()
	case HangPools, FreePools:
		w.hanging[s.Node] = s.What == HangPools
	}
	if s.What == AddReplica || s.What == ToggleDisk {
		w.added[w.resource(s.On)]++
	}
}

// mendAll undoes every fault before the end.
func (w *world) mendAll() {
	before := w.wanted()
	w.mend()
	w.compare(before)
}

// mendPlanned ends all that people do with nodes that leave.
func (w *world) mendPlanned() {
	if !w.history.World.Planned.Is {
		return
	}
	clear(w.armed)
	w.do(Step{What: OperatorOff})
	for _, node := range w.history.World.Nodes {
		w.do(Step{What: Stay, Node: node})
		w.do(Step{What: Uncordon, Node: node})
		w.do(Step{What: ScaleUp, Node: node})
		w.do(Step{What: EmptyPool, Node: node})
		for _, v := range w.history.World.Volumes {
			w.do(Step{What: UnflagReplica, On: v.Name, Node: node})
		}
		if w.byOther[node] {
			w.do(Step{What: RestoreOther, Node: node})
		}
	}
}

// snapshotName is the name of the snapshot that a step takes.
func snapshotName(s Step) string { return "snapshot-" + s.At.String() }
