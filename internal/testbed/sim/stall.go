package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A process that gets no processor stops anywhere: also after it has decided, and before it sends what it decided. The other faults of time
// seldom meet that moment. A stall does, in every second act, and a pod may arrive on the node meanwhile.

// StallAct stops a process between a decision and its requests, in every second act, and EndStalls ends that.
const (
	StallAct  Deed = "let every second act of the controller stall between its decision and its requests"
	EndStalls Deed = "let the controller's acts go on"
)

// Stalls is the kind of history in which that happens.
const Stalls Kind = "time: every second act stalls between decision and request, and pods arrive meanwhile"

// withPods is the value of a StallAct during which pods arrive.
const withPods = "and a pod arrives meanwhile"

// withStorage is the value of one during which the node has its storage back. It is the only one: On says at which moment.
const withStorage = "once, and the node has its storage back meanwhile"

// Stalled counts the stalls, StalledArrival the pods that arrived meanwhile, and StalledRecovery the nodes that had their storage back.
const (
	StalledRecovery = "a node had its storage back while an act stalled"
	Stalled         = "an act stalled between its decision and its requests"
	StalledArrival  = "a pod arrived while an act stalled"
)

// Stall returns the history with stalls of that length from the beginning to the end.
func (h History) Stall(d time.Duration) History {
	h.Steps = append([]Step{{What: StallAct, For: d, Value: withPods}}, h.Steps...)
	h.Steps = append(h.Steps, Step{At: h.Length, What: EndStalls})
	h.Kinds = append(h.Kinds, Stalls)
	return h
}

// stallSome draws stalls for some histories. It draws from numbers of its own, so that all other steps of a seed stay what they are.
func stallSome(h History) History {
	g := &generator{Rand: rand.New(rand.NewPCG(h.Seed, 1)), history: h}
	if !g.chance(rare) {
		return h
	}
	s := Step{At: g.around(), What: StallAct, For: pick(g, 3*time.Second, 6*time.Second), Value: pick(g, "", withPods, withPods)}
	g.add(s.At, s)
	g.add(s.At+g.milliseconds(20*time.Second, 2*time.Minute), Step{What: EndStalls})
	g.sort()
	g.drew(Stalls)
	g.history.Length = max(g.history.Length, g.space())
	return g.history
}

// stall begins or ends the stalls.
func (w *world) stall(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.What == EndStalls && w.stalls.What == StallAct {
		w.troubleEnded = time.Now()
	}
	w.stalls = s
	for _, p := range w.processes {
		p.moments.Store(0)
	}
}

// decides notes that an act on a node has read what forbids all removals, or has written something: it decides right after that.
func (p *process) decides(ctx context.Context) {
	if of := workOf(ctx); of.controller == "node" {
		p.deciding.Store(&of.name)
	}
}

// hasDecided lets the process stall once the state of LINSTOR was read for a decision.
func (p *process) hasDecided() {
	if node := p.deciding.Swap(nil); node != nil && p.stalls(*node) {
		_ = p.freezer.wait(p.ctx)
	}
}

// sends lets the process stall right before a request is sent. The request then waits until the process goes on.
func (p *process) sends(ctx context.Context, o client.Object) {
	if of := workOf(ctx); of.controller == "node" || of.controller == "" {
		p.stalls(p.world.nodeOf(o))
	}
}

// stalls stops the process for a while, every second time.
func (p *process) stalls(node string) bool {
	w := p.world
	w.mu.Lock()
	s := w.stalls
	w.mu.Unlock()
	if s.What != StallAct || p.freezer.frozen() || !s.stallsAt(p.moments.Add(1)) {
		return false
	}
	w.count(Stalled)
	w.note(p.name + " stalls for " + s.For.String())
	p.freezer.stop()
	p.view.Pause()
	time.AfterFunc(s.For, func() { p.freeze(false) })
	switch s.Value {
	case withPods:
		time.AfterFunc(time.Millisecond, func() { w.arriveOn(node) })
	case withStorage:
		time.AfterFunc(time.Millisecond, func() { w.recoverStorage(node) })
	}
	return true
}

// stallsAt reports whether a process stalls at one of the moments at which it may.
func (s Step) stallsAt(moment int64) bool {
	if s.Value == withStorage {
		return strconv.FormatInt(moment, 10) == s.On
	}
	return (moment+int64(s.At/time.Millisecond))%2 == 0
}

// nodeOf returns the node of Kubernetes that a write is about; empty if it is about none.
func (w *world) nodeOf(o client.Object) string {
	switch o := o.(type) {
	case *corev1.Node:
		return o.Name
	case *corev1.Pod:
		return o.Spec.NodeName
	case *storagev1.VolumeAttachment:
		var va storagev1.VolumeAttachment
		if w.oracle.Get(w.ctx, client.ObjectKeyFromObject(o), &va) == nil {
			return va.Spec.NodeName
		}
	}
	return ""
}

// arriveOn lets a pod arrive on a node that uses a volume attached there.
func (w *world) arriveOn(node string) {
	if w.ctx.Err() != nil || node == "" {
		return
	}
	for _, va := range w.attachments(node) {
		for _, p := range w.history.World.Workloads {
			if !uses(p, *va.Spec.Source.PersistentVolumeName) {
				continue
			}
			pod := w.like(p.Name, p.Name+"-late")
			pod.Spec.NodeName = node
			if w.Client().Create(w.ctx, pod) == nil {
				w.count(StalledArrival)
				return
			}
		}
	}
}

func uses(p Workload, volume string) bool { return slices.Contains(p.Volumes, volume) }
