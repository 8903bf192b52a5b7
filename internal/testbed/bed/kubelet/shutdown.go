package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What the real kubelet says of pods and of its node while the node shuts down (pkg/kubelet/nodeshutdown of Kubernetes).
const (
	reasonTerminated    = "Terminated"
	messageTerminated   = "Pod was terminated in response to imminent node shutdown."
	reasonNotAdmitted   = "NodeShutdown"
	messageNotAdmitted  = "Pod was rejected as the node is shutting down."
	reasonNotReady      = "KubeletNotReady"
	messageShuttingDown = "node is shutting down"
)

// ShutDown does what the real kubelet does when systemd tells it that the machine is about to be switched off and its configuration has a
// shutdownGracePeriod, which grace stands for: it calls the node NotReady at once and takes no further pod; it ends all pods, each within its own grace
// period or that of the shutdown, whichever is shorter, and calls them Failed; it unmounts their volumes. What volumesInUse says of these is
// posted with the next periodic status only, for which most machines are off too early.
//
// ShutDown returns when all volumes are unmounted, when the grace has passed, or with ctx. The kubelet runs until Crash, which takes the power.
func (k *Kubelet) ShutDown(ctx context.Context, grace time.Duration) {
	l := k.current()
	if l == nil {
		return
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, unmounted := range l.shutDown(grace) {
		select {
		case <-unmounted:
		case <-timer.C:
			return
		case <-l.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// shutDown ends all pods, and returns channels that are closed when their volumes are unmounted.
func (l *life) shutDown(grace time.Duration) (unmounted []<-chan struct{}) {
	l.mu.Lock()
	l.shuttingDown = true
	for _, w := range l.workers {
		w.shutDown(grace)
		unmounted = append(unmounted, w.unmounted)
	}
	l.mu.Unlock()
	l.postStatusSoon()
	return unmounted
}

// isShuttingDown tells whether the node is about to be switched off.
func (l *life) isShuttingDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shuttingDown
}

// shutDown ends the pod because its node shuts down.
func (w *podWorker) shutDown(grace time.Duration) {
	w.mu.Lock()
	w.mostGrace = grace
	w.mu.Unlock()
	w.endAs(reasonTerminated, messageTerminated)
}

// reject ends a pod that came too late.
func (w *podWorker) reject() { w.endAs(reasonNotAdmitted, messageNotAdmitted) }

// endAs ends the pod for a reason of the node's.
func (w *podWorker) endAs(reason, message string) {
	w.setState(func(s *podState) { s.shutdownReason, s.shutdownMessage = reason, message })
	w.stop()
}

// gracePeriod returns how long the pod's containers may take to stop.
func (w *podWorker) gracePeriod(pod *corev1.Pod) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mostGrace > 0 {
		return min(gracePeriod(pod), w.mostGrace)
	}
	return gracePeriod(pod)
}

// shutDown puts into the status of a pod that it ended because its node shuts down, however its containers ended.
func (s podState) shutDown(status *corev1.PodStatus) {
	status.Phase, status.Reason, status.Message = corev1.PodFailed, s.shutdownReason, s.shutdownMessage
	if s.shutdownReason == reasonTerminated {
		setPodCondition(status, corev1.DisruptionTarget, true, corev1.PodReasonTerminationByKubelet)
	}
}
