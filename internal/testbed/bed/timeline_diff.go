package bed

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// podDiff records changes of pods in some namespaces.
func podDiff(t *Timeline, namespaces []string) func(before, after any) {
	return typed(func(before, after *corev1.Pod) {
		for _, pod := range []*corev1.Pod{before, after} {
			if pod != nil && !slices.Contains(namespaces, pod.Namespace) {
				return
			}
		}
		t.pod(before, after)
	})
}

// pod records a change of a pod.
func (t *Timeline) pod(before, after *corev1.Pod) {
	by := func(verb, resource string, pod *corev1.Pod) author {
		return author{verb, resource, pod.Namespace, pod.Name}
	}
	if after == nil {
		t.add("?", by("delete", "pods", before), "pod %s on %s deleted", before.Name, before.Spec.NodeName)
		return
	}
	if before == nil {
		t.add("?", by("create", "pods", after), "pod %s created anew", after.Name)
		before = &corev1.Pod{}
	}
	node := after.Spec.NodeName
	if before.Spec.NodeName != node {
		t.add("kube-scheduler", by("create", "pods/binding", after), "pod %s placed on %s", after.Name, node)
	}
	switch c := podCondition(after, corev1.DisruptionTarget); {
	case c == nil || podCondition(before, corev1.DisruptionTarget) != nil:
	case c.Reason == evicted:
		t.add("?", by("create", "pods/eviction", after), "pod %s on %s evicted", after.Name, node)
	default:
		t.add("?", by("patch", "pods/status", after), "pod %s on %s marked %s: %s", after.Name, node, after.Status.Phase, c.Reason)
	}
	if after.DeletionTimestamp != nil && before.DeletionTimestamp == nil && *after.DeletionGracePeriodSeconds > 0 {
		t.add("?", by("delete", "pods", after), "pod %s on %s asked to stop", after.Name, node)
	}
	if podReady(after) && !podReady(before) {
		t.add("kubelet of "+node, author{}, "pod %s Running on %s", after.Name, node)
	}
}

// evicted is the reason of the condition of a pod that was evicted.
const evicted = "EvictionByEvictionAPI"

// podCondition returns a pod's condition if it is true.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// attachment records a change of an attachment.
func (t *Timeline) attachment(before, after *storagev1.VolumeAttachment) {
	a := after
	if a == nil {
		a = before
	}
	if a.Spec.Source.PersistentVolumeName == nil {
		return
	}
	volume := *a.Spec.Source.PersistentVolumeName
	by := func(verb string) author { return author{verb, "volumeattachments", "", a.Name} }
	switch {
	case after == nil:
		t.add("?", by("delete"), "volume %s detached from %s", volume, a.Spec.NodeName)
	case after.Status.Attached && (before == nil || !before.Status.Attached):
		t.add("csi-attacher", author{"patch", "volumeattachments/status", "", a.Name}, "volume %s attached to %s", volume, a.Spec.NodeName)
	case before == nil:
		t.add("?", by("create"), "attachment of volume %s to %s requested", volume, a.Spec.NodeName)
	}
}

// node records a change of a node.
func (t *Timeline) node(before, after *corev1.Node) {
	if before == nil || after == nil {
		return
	}
	for _, taint := range missing(after.Spec.Taints, before.Spec.Taints) {
		t.add(taintOwner(taint), author{}, "node %s tainted %s", after.Name, taint)
	}
	for _, taint := range missing(before.Spec.Taints, after.Spec.Taints) {
		t.add(taintOwner(taint), author{}, "node %s relieved of taint %s", after.Name, taint)
	}
	if before.Spec.Unschedulable != after.Spec.Unschedulable {
		t.add("you", author{}, "node %s %s", after.Name, map[bool]string{true: "cordoned", false: "uncordoned"}[after.Spec.Unschedulable])
	}
	t.conditions(before, after)
	for _, volume := range before.Status.VolumesInUse {
		if !slices.Contains(after.Status.VolumesInUse, volume) {
			handle := strings.TrimPrefix(string(volume), "kubernetes.io/csi/"+csidriver.Name+"^")
			t.add("kubelet of "+after.Name, author{"patch", "nodes/status", "", after.Name},
				"volume %s taken out of %s's volumesInUse", handle, after.Name)
		}
	}
}

// taintOwner returns who sets and removes a taint. The audit log would not do: on the loss of a node two
// controllers write its taints at the same moment.
func taintOwner(taint string) string {
	switch {
	case strings.HasPrefix(taint, "drbd.linbit.com/"):
		return ControllerName
	case strings.HasPrefix(taint, "node.kubernetes.io/"):
		return "node-controller"
	case strings.HasPrefix(taint, evacuation.TaintKey):
		return "you"
	default:
		return "?"
	}
}

// missing returns the taints of a that b lacks, as kubectl writes them.
func missing(a, b []corev1.Taint) []string {
	var names []string
	for _, taint := range a {
		same := func(other corev1.Taint) bool { return other.MatchTaint(&taint) }
		if !slices.ContainsFunc(b, same) {
			names = append(names, taint.Key+":"+string(taint.Effect))
		}
	}
	return names
}

// conditions records what a node says of its evacuation.
func (t *Timeline) conditions(before, after *corev1.Node) {
	was, is := cluster.EvacuationConditions(before), cluster.EvacuationConditions(after)
	for _, c := range []struct {
		kind    string
		was, is *evacuation.Condition
	}{{evacuation.StorageSafe, was.Safe, is.Safe}, {evacuation.StorageEvacuated, was.Evacuated, is.Evacuated}} {
		switch {
		case c.is == nil && c.was != nil:
			t.add(ControllerName, author{}, "node %s has no condition %s any more", after.Name, c.kind)
		case c.is != nil && (c.was == nil || *c.was != *c.is):
			t.add(ControllerName, author{}, "node %s: %s=%s %s: %s", after.Name, c.kind, c.is.Status, c.is.Reason, c.is.Message)
		}
	}
}

// replica records that a replica may be promoted, and that it gets its data.
func (t *Timeline) replica(resource, node string, state drbd.State) {
	who := "DRBD on " + node
	if state.MayPromote {
		t.add(who, author{}, "resource %s may be promoted here", resource)
	}
	r, fills := replica{resource, node}, state.DiskState == drbd.Inconsistent
	t.mu.Lock()
	filled := t.filling[r]
	t.filling[r] = fills
	t.mu.Unlock()
	switch {
	case fills && !filled:
		t.add(who, author{}, "resource %s begins to sync here", resource)
	case filled && state.DiskState == drbd.UpToDate:
		t.add(who, author{}, "resource %s is UpToDate here", resource)
	}
}
