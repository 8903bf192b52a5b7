package virtual

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// HostnameLabel is the label of the CSI driver by which a PersistentVolume names the nodes that it allows.
const HostnameLabel = "linbit.com/hostname"

const (
	// affinityPeriod is how often linstor-affinity-controller looks, affinityAge how old a PersistentVolume must be for it.
	affinityPeriod = 15 * time.Second
	affinityAge    = time.Minute
)

// affinityTo allows the nodes of some satellites.
func affinityTo(satellites []string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: HostnameLabel, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(slices.Values(satellites)),
		}},
	}}}}
}

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

// SetAffinityController starts or stops linstor-affinity-controller: every 15 s it replaces each PersistentVolume that allows other nodes
// than those with a disk. The new one has another UID. Those younger than a minute it leaves alone. Disks that still sync, and those that
// are to leave, count.
func (c *Cluster) SetAffinityController(ctx context.Context, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.affinity != nil {
		c.affinity()
		c.affinity = nil
	}
	if !on {
		return
	}
	ctx, c.affinity = context.WithCancel(ctx)
	api := c.API.Client(ActorAffinity)
	c.tasks.Go(func() {
		ticker := time.NewTicker(affinityPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.replaceVolumes(ctx, api)
			}
		}
	})
}

// replaceVolumes replaces the PersistentVolumes that allow other nodes than they should.
func (c *Cluster) replaceVolumes(ctx context.Context, api client.Client) {
	var list corev1.PersistentVolumeList
	if api.List(ctx, &list) != nil {
		return
	}
	for i := range list.Items {
		pv := &list.Items[i]
		disks := c.Linstor.DiskNodes(c.VolumeNamed(pv.Name).Resource())
		young := c.API.Now().Sub(pv.CreationTimestamp.Time) < affinityAge
		if young || pv.Spec.NodeAffinity == nil || len(disks) == 0 || pv.DeletionTimestamp != nil {
			continue
		}
		wanted := affinityTo(disks)
		if slices.Equal(valuesOf(pv.Spec.NodeAffinity), valuesOf(wanted)) {
			continue
		}
		replacement := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: pv.Name, Labels: pv.Labels, Annotations: pv.Annotations}, Spec: pv.Spec, Status: pv.Status,
		}
		replacement.Spec.NodeAffinity = wanted
		if api.Delete(ctx, pv) == nil {
			_ = api.Create(ctx, replacement)
		}
	}
}

// valuesOf are the satellites that an affinity of this package allows.
func valuesOf(affinity *corev1.VolumeNodeAffinity) []string {
	return affinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values
}
