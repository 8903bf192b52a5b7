package virtual

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podState is what a kubelet is about to do with a pod.
type podState int

const (
	waiting podState = iota // for its volumes to be attached
	starting
	initializing
	started
	stopping
	stopped
)

// running is one pod on a node, until its object is gone and its containers have stopped.
type running struct {
	uid   types.UID
	pod   *corev1.Pod
	state podState
	// at is when the containers have started or stopped.
	at time.Time
	// opened are the volumes whose devices its containers hold open.
	opened []mount
	// started is set if a container of the pod has run before.
	started bool
	// reported is set once the node's status has shown its volumes.
	reported bool
	// unseen is set while a kubelet that was started again has not read the pod.
	unseen bool
	// unmounted is set if a kubelet that was started again has unmounted its volumes before its containers stop.
	unmounted bool
	// gone is set once the object is gone.
	gone bool
}

// stop begins to stop the containers, within d. A stop that is under way is not shortened.
func (r *running) stop(d time.Duration) {
	switch r.state {
	case waiting, starting:
		r.state = stopped
	case initializing, started:
		r.state, r.at = stopping, time.Now().Add(d)
	case stopping, stopped:
	}
}

// work goes on with one pod and returns when to look again.
func (k *kubelet) work(ctx context.Context, r *running) time.Duration {
	switch r.state {
	case waiting:
		if !k.heard || !k.attached(ctx, r.pod) {
			return again
		}
		if len(k.volumesOf(r.pod)) > 0 && (!r.reported || time.Now().Before(k.driver)) {
			return again
		}
		start := time.Second
		if w := k.workload(client.ObjectKeyFromObject(r.pod)); w != nil {
			start = w.StartTime
		}
		r.state, r.at = starting, time.Now().Add(start)
		return start
	case starting:
		if wait := time.Until(r.at); wait > 0 {
			return wait
		}
		if !k.open(r) {
			return again
		}
		if w := k.workload(client.ObjectKeyFromObject(r.pod)); w != nil && w.InitTime > 0 {
			r.state, r.at = initializing, time.Now().Add(w.InitTime)
			k.post(ctx, r, k.initStatus())
			return w.InitTime
		}
		r.state = started
		k.post(ctx, r, k.runningStatus(r))
		return idle
	case initializing:
		if wait := time.Until(r.at); wait > 0 {
			return wait
		}
		r.state = started
		k.post(ctx, r, k.runningStatus(r))
		return idle
	case started:
		return idle
	case stopping:
		if wait := time.Until(r.at); wait > 0 {
			return wait
		}
		if slices.ContainsFunc(r.opened, func(v mount) bool { return k.DRBD.IOHangs(v.Resource(), k.host) }) {
			return again
		}
		for _, v := range r.opened {
			k.DRBD.Close(v.Resource(), k.host)
		}
		r.opened, r.state = nil, stopped
		fallthrough
	case stopped:
		return k.leave(ctx, r)
	}
	return idle
}

// attached tells whether all volumes of a pod are attached here.
func (k *kubelet) attached(ctx context.Context, pod *corev1.Pod) bool {
	for _, v := range k.volumesOf(pod) {
		var va storagev1.VolumeAttachment
		err := k.view.Get(ctx, client.ObjectKey{Name: attachmentName(place{k.attachedAs(v.Volume), k.node})}, &va)
		if err != nil || !va.Status.Attached || va.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// open opens the devices of a pod's volumes: all of them or none. The clients of NFS exports open none: those devices
// are open where the export is.
func (k *kubelet) open(r *running) bool {
	for _, v := range k.volumesOf(r.pod) {
		if v.Block && !v.Opened || len(v.Attributes) > 0 {
			continue
		}
		if err := k.DRBD.Open(v.Resource(), k.host, v.readOnly); err != nil {
			for _, opened := range r.opened {
				k.DRBD.Close(opened.Resource(), k.host)
			}
			r.opened = nil
			return false
		}
		r.opened = append(r.opened, v)
	}
	return true
}

// leave removes the object of a pod that has stopped and is being deleted.
func (k *kubelet) leave(ctx context.Context, r *running) time.Duration {
	if !k.heard || r.gone {
		return idle
	}
	err := k.client.Delete(ctx, r.pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &r.uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return again
	}
	return idle
}

func (k *kubelet) post(ctx context.Context, r *running, status corev1.PodStatus) {
	pod := r.pod.DeepCopy()
	before := pod.DeepCopy()
	pod.Status.Phase, pod.Status.ContainerStatuses = status.Phase, status.ContainerStatuses
	if status.InitContainerStatuses != nil {
		pod.Status.InitContainerStatuses = status.InitContainerStatuses
	}
	_ = k.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before))
}

// initStatus is the status while init containers run.
func (k *kubelet) initStatus() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: k.runs()}}}
}

// runs is the state of a container that starts now, by the node's clock.
func (k *kubelet) runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(k.skew))}}
}

func (k *kubelet) runningStatus(r *running) corev1.PodStatus {
	container := corev1.ContainerStatus{
		Name: "main", Ready: true, State: k.runs(),
	}
	if r.started {
		container.RestartCount = 1
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown"}
	}
	r.started = true
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{container}}
}
