package sim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func (w *world) failAPI(down bool) {
	w.apiDown.Store(down)
	for _, p := range w.processes {
		p.cutAPI(down)
	}
}

// refuse is the fault of the API: nobody reaches it while it is down, and a process not while it is cut off.
func (w *world) refuse(r apimodel.Request) error {
	if r.Actor == virtual.ActorUser || r.Actor == actorOracle {
		return nil
	}
	if w.apiDown.Load() {
		return errAway
	}
	name, ok := strings.CutPrefix(r.Actor, actorPrefix)
	if !ok {
		return nil
	}
	patchOfNode := r.Verb == apimodel.VerbPatch && r.Kind == "Node"
	switch {
	case patchOfNode && (r.Status && w.forbidRelease.Load() || !r.Status && w.forbidTaints.Load()):
		return apierrors.NewForbidden(corev1.Resource("nodes"), r.Name, errAway)
	case w.reject(r) != nil:
		return w.reject(r)
	case w.disturbed.Load() && w.requests.Add(1)%3 == 0:
		return apierrors.NewServerTimeout(corev1.Resource(strings.ToLower(r.Kind)), string(r.Verb), 1)
	}
	for _, p := range w.allProcesses() {
		if p.name == name && !p.reachesAPI() {
			return errAway
		}
	}
	return nil
}

func (w *world) allProcesses() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// changeLeader lets the next process lead. The one that led ends, as a manager does that loses its lease.
func (w *world) changeLeader() {
	old := w.processes[w.leader]
	w.leader = (w.leader + 1) % len(w.processes)
	if w.processes[w.leader] != old {
		w.lead(w.leader)
	}
	w.restartProcess(old)
}

// restartProcess puts a process without memory in the place of another.
func (w *world) restartProcess(old *process) {
	i := slices.Index(w.processes, old)
	w.forget(old)
	old.freezer.thaw()
	old.stops()
	fresh := w.startProcess(old.name + "'")
	w.mu.Lock()
	w.processes[i] = fresh
	w.mu.Unlock()
	if w.leader == i {
		fresh.leads()
	}
	if w.apiDown.Load() {
		fresh.cutAPI(true)
	}
}

func podKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func (w *world) deletePod(name string, opts ...client.DeleteOption) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "default", name
	if p := w.pod(name); p != nil && len(opts) > 0 {
		for _, v := range w.volumesOf(p) {
			w.mu.Lock()
			w.forced[place{v.Resource(), home(p)}] = true
			w.mu.Unlock()
		}
	}
	_ = w.Client().Delete(w.ctx, pod, opts...)
}

func (w *world) removeFinalizer(name string) {
	w.Change(podKey(name), func(p *virtual.Workload) { p.Finalizers = nil })
	var pod corev1.Pod
	if w.Client().Get(w.ctx, podKey(name), &pod) == nil && len(pod.Finalizers) > 0 {
		pod.Finalizers = nil
		_ = w.Client().Update(w.ctx, &pod)
	}
}

// migrate lets a second pod use the volume of a first on another node, both as Primary.
func (w *world) migrate(s Step) {
	name := s.On + "-target"
	if w.migrations[s.On] != "" {
		return
	}
	w.migrations[s.On], w.migrated[s.On] = name, true
	w.Linstor.SetDefinitionProperty(w.resource(s.On), linstorsim.PropAllowTwoPrimaries, "yes")
	w.AddWorkload(virtual.Workload{
		Name: name, Claims: []string{w.volume(s.On).claim()}, Nodes: []string{w.kube(s.Node)}, Labels: map[string]string{selectedLabel: "remove"},
	})
}

func (w *world) endMigration(s Step) {
	name := w.migrations[s.On]
	if name == "" {
		return
	}
	delete(w.migrations, s.On)
	w.Change(podKey(name), func(p *virtual.Workload) { p.Gone = true })
	w.deletePod(name)
}
