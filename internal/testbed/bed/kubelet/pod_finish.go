package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stopContainers waits until the modeled containers have stopped.
func (w *podWorker) stopContainers(ctx context.Context) {
	begin := time.Now()
	for ctx.Err() == nil {
		pod, _ := w.current()
		delay := durationAnnotation(pod, AnnotationStopDelay, w.l.cfg.Timings.PodStop)
		left := time.Until(begin.Add(min(delay, w.gracePeriod(pod))))
		if left <= 0 && !w.hangs(pod) {
			return
		}
		w.awaitChange(ctx, max(left, w.l.cfg.Timings.VolumeLoop))
	}
}

// hangs tells whether the containers can not be stopped because they wait for IO.
func (w *podWorker) hangs(pod *corev1.Pod) bool {
	if stuck(pod) {
		return true
	}
	storage, ok := w.l.cfg.Storage.(IOHanger)
	if !ok {
		return false
	}
	for _, v := range w.opened {
		if storage.IOHangs(v.resource, w.l.node) {
			return true
		}
	}
	return false
}

// awaitChange waits until something changed, or for d.
func (w *podWorker) awaitChange(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.changed:
	}
}

// gracePeriod returns how long a pod's containers may take to stop. Like the real kubelet it gives
// even those of a force-deleted pod one second.
func gracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(30)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(max(seconds, 1)) * time.Second
}

// finish ends the pod after its containers have stopped, in the order of the real kubelet: terminal
// status, unmount, volumesInUse, and the deletion of the pod once the API asks for it.
func (w *podWorker) finish(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	if pod, _ := w.current(); !terminal(pod.Status.Phase) {
		w.setState(func(s *podState) { s.ended(time.Now()) })
		w.postStatus(ctx)
	}
	if ctx.Err() != nil {
		return // the node crashed with its volumes mounted
	}
	for _, v := range w.opened {
		w.l.cfg.Storage.Close(v.resource, w.l.node)
	}
	w.opened = nil
	w.l.volumes.release(w.uid)
	close(w.unmounted)
	w.l.volumesChanged()
	w.leave(ctx)
}

// leave deletes the pod from the API once it is being deleted, and returns when it is gone.
func (w *podWorker) leave(ctx context.Context) {
	t := w.l.cfg.Timings
	for ctx.Err() == nil {
		pod, gone := w.current()
		if gone {
			return
		}
		if pod.DeletionTimestamp == nil {
			w.awaitChange(ctx, time.Hour)
			continue
		}
		if retry(ctx, t.RetryMin, t.RetryMax, w.remove) {
			// The watch has not said so yet. Until it does the worker must stay: a late event of
			// this pod would look like a new one.
			w.awaitGone(ctx)
			return
		}
	}
}

// remove deletes the pod object, provided it is still the same pod.
func (w *podWorker) remove(ctx context.Context) error {
	err := w.l.client.CoreV1().Pods(w.name.Namespace).Delete(ctx, w.name.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      &metav1.Preconditions{UID: &w.uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, and perhaps replaced, by somebody else
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", w.name, err)
	}
	return nil
}

// awaitGone waits until the watch has said that the pod is gone. A finalizer can hold that up for ever.
func (w *podWorker) awaitGone(ctx context.Context) {
	for ctx.Err() == nil {
		if _, gone := w.current(); gone {
			return
		}
		w.awaitChange(ctx, time.Hour)
	}
}
