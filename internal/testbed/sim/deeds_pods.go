package sim

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// endedInfix is in the names of pods that have ended and are still listed.
const endedInfix = "-ended-"

// like returns a pod with the labels and claims of a workload.
func (w *world) like(workload, name string) *corev1.Pod {
	spec, _ := w.workload(workload)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}}}
	if spec.Selected {
		pod.Labels[selectedLabel] = "remove"
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "StatefulSet", Name: workload, UID: types.UID(name), Controller: new(true),
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	for _, volume := range spec.Volumes {
		claim := w.volume(volume).claim()
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// leaveEnded leaves a pod listed that has ended. It is bound only then: no kubelet may start it.
func (w *world) leaveEnded(of, phase string) {
	spec, _ := w.workload(of)
	pod := w.like(of, of+endedInfix+map[string]string{"Evicted": "a", "Failed": "b", "Succeeded": "c"}[phase])
	if w.Client().Create(w.ctx, pod) != nil {
		return // there is one
	}
	switch phase {
	case "Evicted":
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted"
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
			LastTransitionTime: metav1.Now(),
		}}
	default:
		pod.Status.Phase = corev1.PodPhase(phase)
	}
	w.must(w.Client().Status().Update(w.ctx, pod))
	pod.Spec.NodeName = w.kube(spec.Nodes[0])
	w.must(w.Client().Update(w.ctx, pod))
}

// waitForWrite lets a step wait for the controller's next write of a verb and kind.
func (w *world) waitForWrite(s Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atWrite[s.Value] = s
}

// changesNow lets happen what waits for a write: a pod arrives where the workload's own pod is, or a pod changes, which is the one that is written.
func (w *world) changesNow(write string, o client.Object) {
	w.mu.Lock()
	s := w.atWrite[write]
	delete(w.atWrite, write)
	own, of := w.pods[podKey(s.On)], s.On
	w.mu.Unlock()
	if pod, ok := o.(*corev1.Pod); ok && pod.Labels[componentLabel] == "" && s.What != ArriveAtWrite {
		of = pod.Name
	}
	if s.What == UnlabelAtWrite || s.What == ExemptAtWrite || s.What == LabelAtWrite {
		w.count(ChangedAtWrite)
		w.note("at " + write + ": " + string(s.What) + " " + of)
	}
	switch s.What { //nolint:exhaustive // the others do not happen at a write
	case UnlabelAtWrite:
		w.spare(of, "label")
	case ExemptAtWrite:
		w.spare(of, "annotation")
	case LabelAtWrite:
		w.editPod(of, func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, selectedLabel, "remove") })
	case RecoverAtWrite:
		w.recoverStorage(w.kube(s.Node))
	case ReplaceAtWrite:
		w.replaceVolume(s.On, s.For)
	}
	if s.What != ArriveAtWrite || own == nil || own.Spec.NodeName == "" {
		return
	}
	pod := w.like(of, of+"-late")
	pod.Spec.NodeName = own.Spec.NodeName
	_ = w.Client().Create(w.ctx, pod)
	w.count("a pod arrived between a look and its write")
}

// leaveLate deletes the pods that came late.
func (w *world) leaveLate() {
	for _, p := range w.history.World.Workloads {
		w.deletePod(p.Name+"-late", client.GracePeriodSeconds(0))
	}
}

// spare lets a person say of a pod, though not of its template, that it is to stay: by taking its label off, or by exempting it.
func (w *world) spare(name, by string) {
	w.editPod(name, func(pod *corev1.Pod) {
		if by == "label" {
			delete(pod.Labels, selectedLabel)
		} else {
			pod.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		}
	})
}

// spareNoMore makes of a pod again what its template says.
func (w *world) spareNoMore(name string) {
	spec, _ := w.workload(name)
	w.editPod(name, func(pod *corev1.Pod) {
		if spec.Selected {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, selectedLabel, "remove")
		}
		if !spec.Exempt {
			pod.Annotations = nil
		}
	})
}

func (w *world) editPod(name string, change func(*corev1.Pod)) {
	var pod corev1.Pod
	if w.Client().Get(w.ctx, podKey(name), &pod) != nil {
		return
	}
	before := pod.DeepCopy()
	change(&pod)
	_ = w.Client().Patch(w.ctx, &pod, client.MergeFrom(before))
}

// isSpared tells whether a pod says of itself that it is to stay.
func isSpared(pod *corev1.Pod) bool {
	_, exempt := pod.Annotations[cluster.AnnotationIgnore]
	return exempt || pod.Labels[selectedLabel] != "remove"
}

func (w *world) isSpared(name string) bool {
	pod := w.pod(name)
	return pod != nil && isSpared(pod)
}

// kube is the name of a node in Kubernetes.
func (w *world) kube(node string) string { return w.history.World.kubeName(node) }

// home is the name in LINSTOR of the node that a pod is bound to.
func home(pod *corev1.Pod) string { return strings.TrimSuffix(pod.Spec.NodeName, domain) }

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// isPending tells whether a PersistentVolume of the same resource is being created again.
func (w *world) isPending(v Volume) bool {
	for name := range w.pending {
		if w.resource(name) == v.Resource() {
			return true
		}
	}
	return false
}

// setPhase changes whether a PersistentVolume is bound, of all that its deletion and creation changes.
func (w *world) setPhase(name string, phase corev1.PersistentVolumePhase) {
	var pv corev1.PersistentVolume
	if w.Client().Get(w.ctx, client.ObjectKey{Name: name}, &pv) != nil {
		return // it has gone with its claim
	}
	pv.Status.Phase = phase
	w.must(w.Client().Status().Update(w.ctx, &pv))
	if phase == corev1.VolumePending {
		w.pending[name] = true
	} else {
		delete(w.pending, name)
	}
}
