package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podState is what a node knows of a pod's containers, which all share one fate. The zero value is a
// pod whose containers never ran.
type podState struct {
	running   bool
	ready     bool
	over      bool // the containers will not run again
	startedAt metav1.Time
	endedAt   metav1.Time
	exitCode  int32
	restarts  int32
	waiting   string // the reason why the containers do not run, "" if they have not started yet
	message   string // belongs to waiting

	// shutdownReason and shutdownMessage say why the node, which shuts down, has ended the pod; "" where it has not.
	shutdownReason, shutdownMessage string
}

// exitCodeUnknown is what the real kubelet reports of containers whose end it did not see.
const exitCodeUnknown = 137

// firstState returns the state of a pod that the node sees for the first time since it booted: its
// containers do not run, but may have run before.
func firstState(pod *corev1.Pod) podState {
	var s podState
	for _, status := range pod.Status.ContainerStatuses {
		s.restarts = max(s.restarts, status.RestartCount)
		if status.State.Running != nil {
			s.restarts = max(s.restarts, status.RestartCount+1)
			s.startedAt, s.exitCode = status.State.Running.StartedAt, exitCodeUnknown
		}
	}
	return s
}

// started sets the containers running and ready.
func (s *podState) started(now time.Time) {
	*s = podState{
		running: true, ready: true, startedAt: wireTime(now), restarts: s.restarts,
		shutdownReason: s.shutdownReason, shutdownMessage: s.shutdownMessage,
	}
}

// ended sets the containers ended for good.
func (s *podState) ended(now time.Time) {
	s.running, s.ready, s.over, s.endedAt = false, false, true, wireTime(now)
}

// wireTime returns t as the API has it: in whole seconds, so that it compares equal.
func wireTime(t time.Time) metav1.Time {
	return metav1.NewTime(t.Truncate(time.Second))
}

// setState changes the state and makes run post it.
func (w *podWorker) setState(change func(*podState)) {
	w.mu.Lock()
	change(&w.state)
	w.mu.Unlock()
	w.poke()
}

// postStatus posts the pod's status unless the API has it, repeating what fails. It gives up when ctx
// ends or the pod is gone.
func (w *podWorker) postStatus(ctx context.Context) {
	t := w.l.cfg.Timings
	retry(ctx, t.RetryMin, t.RetryMax, func(ctx context.Context) error {
		err := w.tryPostStatus(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or replaced by a pod of the same name
		}
		if err != nil {
			w.l.log.Info("can not post the pod's status, will retry", "pod", w.name, "error", err.Error())
		}
		return err
	})
}

// tryPostStatus posts the pod's status unless the API has it.
func (w *podWorker) tryPostStatus(ctx context.Context) error {
	w.mu.Lock()
	pod, gone, state := w.pod, w.gone, w.state
	w.mu.Unlock()
	status := w.status(pod, state)
	if gone || equality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	from := corev1.Pod{Status: pod.Status}
	// The UID makes the API refuse the patch for another pod of the same name.
	to := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: w.uid}, Status: status}
	patch, err := mergePatch(from, to, corev1.Pod{})
	if err != nil || onlyUID(patch) {
		return err
	}
	_, err = w.l.client.CoreV1().Pods(w.name.Namespace).Patch(ctx, w.name.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of pod %s: %w", w.name, err)
	}
	return nil
}

// onlyUID tells whether a patch has nothing but the precondition.
func onlyUID(patch []byte) bool {
	var parts map[string]json.RawMessage
	return json.Unmarshal(patch, &parts) == nil && parts["status"] == nil
}

// status returns the pod's status by the state of its containers. Conditions of other writers stay.
func (w *podWorker) status(pod *corev1.Pod, s podState) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = new(wireTime(time.Now()))
	}
	status.PodIP = podIP(w.uid)
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	if !terminal(status.Phase) { // a phase that is terminal stays, whoever set it
		status.Phase = s.phase()
		if s.over && s.shutdownReason != "" {
			s.shutDown(&status)
		}
	}
	reason := ""
	if !s.ready {
		reason = "ContainersNotReady"
		if s.over {
			reason = "PodCompleted"
		}
	}
	setPodCondition(&status, corev1.PodReadyToStartContainers, !s.over, "")
	setPodCondition(&status, corev1.PodInitialized, true, "")
	setPodCondition(&status, corev1.ContainersReady, s.ready, reason)
	setPodCondition(&status, corev1.PodReady, s.ready, reason)
	status.InitContainerStatuses = s.initStatuses(pod)
	status.ContainerStatuses = s.containerStatuses(pod, pod.Spec.Containers)
	return status
}

// phase returns the pod's phase.
func (s podState) phase() corev1.PodPhase {
	switch {
	case s.over && s.exitCode == 0 && !s.startedAt.IsZero():
		return corev1.PodSucceeded
	case s.over:
		return corev1.PodFailed
	case !s.startedAt.IsZero():
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

// setPodCondition sets one condition, keeping its transition time while its status stays.
func setPodCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value bool, reason string) {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: wireTime(time.Now())}
	if value {
		condition.Status = corev1.ConditionTrue
	}
	for i, old := range status.Conditions {
		if old.Type != kind {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		condition.ObservedGeneration = old.ObservedGeneration
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// podIP derives an address in 10.0.0.0/8 from the pod's UID: unlikely to clash, and never used.
func podIP(uid types.UID) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid)) // never fails
	n := h.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", byte(n>>16), byte(n>>8), byte(n))
}
