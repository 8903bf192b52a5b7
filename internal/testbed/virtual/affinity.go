package virtual

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
)

// allowed tells whether all volumes of a workload allow a node.
func (o *owners) allowed(ctx context.Context, w *Workload, node *corev1.Node) bool {
	for _, v := range o.VolumesOf(w.pod()) {
		var pv corev1.PersistentVolume
		if o.view.Get(ctx, client.ObjectKey{Name: v.Name}, &pv) != nil || pv.Spec.NodeAffinity == nil {
			continue
		}
		selector, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
		if err != nil || !selector.Match(node) {
			return false
		}
	}
	return true
}

// SetAffinityController starts or stops a linstor-affinity-controller.
func (c *Cluster) SetAffinityController(ctx context.Context, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopAffinity != nil {
		c.stopAffinity()
		c.stopAffinity = nil
	}
	if !on {
		return
	}
	ctx, c.stopAffinity = context.WithCancel(ctx)
	api := c.API.Client(ActorAffinity)
	disks := func(handle string) []string { return c.Linstor.DiskNodes(Volume{Handle: handle}.Resource()) }
	c.tasks.Go(func() {
		ticker := time.NewTicker(affinity.Period)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				// What fails is tried again at the next look.
				_ = affinity.Look(ctx, api, c.API.Now().Time, disks)
			}
		}
	})
}
