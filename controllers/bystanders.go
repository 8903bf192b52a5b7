package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// showBystanders counts the pods that the controller does nothing about although they could be moved. The cache has selected pods only:
// all are read past it, a part at a time.
func (g *Gauges) showBystanders(ctx context.Context) error {
	unselected := 0
	err := eachPod(ctx, g.api, partsApart, func(pod *corev1.Pod) error {
		missed, err := g.isUnselected(ctx, pod)
		if missed {
			unselected++
		}
		return err
	})
	if err == nil {
		g.metrics.Unselected(unselected)
	}
	return err
}

// eachPod visits all pods past the cache, a part at a time. The next part is read some time after the one before.
func eachPod(ctx context.Context, live client.Reader, apart time.Duration, visit func(*corev1.Pod) error, options ...client.ListOption) error {
	next := ""
	return wait.PollUntilContextCancel(ctx, apart, true, func(ctx context.Context) (done bool, err error) {
		var pods corev1.PodList
		if err := live.List(ctx, &pods, append(options, client.Limit(listedAtOnce), client.Continue(next))...); err != nil {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		for i := range pods.Items {
			if err := visit(&pods.Items[i]); err != nil {
				return false, err
			}
		}
		next = pods.Continue
		return next == "", nil
	})
}

// isUnselected reports whether a pod uses a volume of ours and is not selected, although it could be moved.
func (g *Gauges) isUnselected(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if g.selector.Matches(labels.Set(pod.Labels)) || !cluster.Movable(pod) {
		return false, nil
	}
	volumes, err := g.volumes.OfPod(ctx, pod)
	return len(volumes) > 0, err
}
