package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// showBystanders counts the pods that the controller does nothing about although they could be moved. The cache has selected pods only:
// all are read past it, a part at a time.
func (g *Gauges) showBystanders(ctx context.Context) error {
	unselected, next := 0, ""
	return wait.PollUntilContextCancel(ctx, partsApart, true, func(ctx context.Context) (done bool, err error) {
		var pods corev1.PodList
		if err := g.live.List(ctx, &pods, client.Limit(listedAtOnce), client.Continue(next)); err != nil {
			return false, fmt.Errorf("listing pods: %w", err)
		}
		for i := range pods.Items {
			missed, err := g.isUnselected(ctx, &pods.Items[i])
			if err != nil {
				return false, err
			}
			if missed {
				unselected++
			}
		}
		if next = pods.Continue; next != "" {
			return false, nil
		}
		g.metrics.Unselected(unselected)
		return true, nil
	})
}

// isUnselected tells whether a pod uses a volume of ours and is not selected, although it could be moved.
func (g *Gauges) isUnselected(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if g.selector.Matches(labels.Set(pod.Labels)) || !cluster.Movable(pod) {
		return false, nil
	}
	for _, claim := range cluster.ClaimsOf(pod) {
		bound, err := g.volumes.OfClaim(ctx, claim)
		if err != nil {
			return false, fmt.Errorf("finding the volume of claim %s: %w", claim, err)
		}
		if slices.ContainsFunc(bound, func(pv *corev1.PersistentVolume) bool { return g.volumes.Resource(pv) != "" }) {
			return true, nil
		}
	}
	return false, nil
}
