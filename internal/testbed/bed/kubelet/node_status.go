package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// statusLoop posts the node's status periodically, and when it changes, until ctx ends.
func (l *life) statusLoop(ctx context.Context) {
	t := l.cfg.Timings
	var lastReport time.Time
	for {
		retry(ctx, t.RetryMin, t.RetryMax, func(ctx context.Context) error {
			posted, err := l.postStatus(ctx, time.Since(lastReport) >= t.StatusReport)
			if posted {
				lastReport = time.Now()
			}
			return err
		})
		if !l.awaitStatusUpdate(ctx) {
			return
		}
	}
}

// awaitStatusUpdate waits until the status is due, and tells whether ctx is still alive then.
func (l *life) awaitStatusUpdate(ctx context.Context) bool {
	t := l.cfg.Timings
	timer := time.NewTimer(t.StatusUpdate)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-l.statusWake:
	}
	return sleep(ctx, max(t.StatusOnChange, 0)) // several pods change at once
}

// postStatus posts the node's status if it changed, or in any case when it is due. It tells whether
// it did.
func (l *life) postStatus(ctx context.Context, due bool) (bool, error) {
	nodes := l.client.CoreV1().Nodes()
	old, err := nodes.Get(ctx, l.node, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read node %s: %w", l.node, err)
	}
	node := old.DeepCopy()
	l.setStatus(node, metav1.Now())
	if !due && !nodeStatusChanged(old, node) {
		l.volumes.setReported(old.Status.VolumesInUse)
		return false, nil
	}
	patch, err := mergePatch(old, node, corev1.Node{})
	if err != nil {
		return false, fmt.Errorf("status of node %s: %w", l.node, err)
	}
	updated, err := nodes.Patch(ctx, l.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return false, fmt.Errorf("patch status of node %s: %w", l.node, err)
	}
	l.volumes.setReported(updated.Status.VolumesInUse)
	return true, nil
}

// nodeStatusChanged compares two statuses without their heartbeats.
func nodeStatusChanged(a, b *corev1.Node) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, node := range []*corev1.Node{a, b} {
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a.Status, b.Status)
}

// mergePatch returns the strategic merge patch from one object to another, as the real kubelet writes
// statuses: fields that other writers own do not appear in it.
func mergePatch(from, to, schema any) ([]byte, error) {
	a, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(a, b, schema)
}
