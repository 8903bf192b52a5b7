package kubelet

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	w.l.wakeStatus()
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
