package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

func (w *world) setQuorum(s Step) {
	resource := w.resource(s.On)
	before := w.wanted()
	w.sets(resource)
	w.mu.Lock()
	w.marked[resource] = time.Now()
	w.mu.Unlock()
	w.Linstor.SetDefinitionProperty(resource, linstorsim.PropQuorum, s.Value)
	w.compare(before)
}

func (w *world) removeReplica(s Step) {
	resource := w.resource(s.On)
	w.changes(resource)
	_ = w.Linstor.RemoveReplica(resource, s.Node)
}

func (w *world) failDisk(s Step) {
	w.damaged[w.resource(s.On)] = true
	_ = w.DRBD.SetDisk(w.resource(s.On), s.Node, 0, drbd.Failed)
}

// replaceDisk puts a new disk where one has failed; DRBD copies the data there.
func (w *world) replaceDisk(resource, node string) {
	if state, ok := w.DRBD.Replica(resource, node); ok && state.DiskState == drbd.Failed {
		_ = w.DRBD.SetDisk(resource, node, 0, drbd.Inconsistent)
	}
}

// closeVolume demotes the replica under its pod, which does not know.
func (w *world) closeVolume(s Step) {
	at := place{w.resource(s.On), s.Node}
	state, _ := w.DRBD.Replica(at.what, at.node)
	for range state.Open {
		w.mounts[at]++
		w.DRBD.Close(at.what, at.node)
	}
}

func (w *world) openVolume(s Step) {
	at := place{w.resource(s.On), s.Node}
	if w.mounts[at] > 0 && w.runsOn(s.On, s.Node) && w.DRBD.Open(at.what, at.node, false) == nil {
		w.mounts[at]--
	}
}

// openVolumes opens all volumes again that were closed under their pods.
func (w *world) openVolumes() {
	for _, node := range w.history.World.Nodes {
		for _, v := range w.history.World.Volumes {
			for range w.mounts[place{v.Resource(), node}] {
				w.openVolume(Step{On: v.Name, Node: node})
			}
		}
	}
}

// runsOn tells whether a pod with the volume runs on the node.
func (w *world) runsOn(volume, node string) bool {
	var pods corev1.PodList
	w.must(w.oracle.List(w.ctx, &pods))
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return home(&pod) == node && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil &&
			slices.ContainsFunc(w.volumesOf(&pod), func(v Volume) bool { return v.Name == volume })
	})
}
