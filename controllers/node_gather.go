package controllers

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// gather collects what the caches know of the named volumes on the node, of all if none is named, and forgets what does not concern it any more. A
// volume that cannot be looked up waits for the next reconcile.
func (r *NodeReconciler) gather(ctx context.Context, state *nodeState, names []string) (volumes []*volume) {
	if len(names) == 0 {
		all, err := r.candidates(ctx, state)
		if names = all; err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up the volumes of a node in the cache", "node", state.node)
			state.again(lookAgain)
		}
	}
	for _, name := range names {
		v, err := r.gatherVolume(ctx, name, state)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up a volume in the cache", "node", state.node, "volume", name)
			state.again(lookAgain)
		}
		if v != nil {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// candidates returns the names of all volumes that may concern the node.
func (r *NodeReconciler) candidates(ctx context.Context, state *nodeState) ([]string, error) {
	attachments, err := r.attachments.On(ctx, state.node)
	if err != nil {
		return nil, err
	}
	pods, err := r.pods.On(ctx, state.node)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(state.volumes))
	for i := range attachments {
		names = append(names, *attachments[i].Spec.Source.PersistentVolumeName)
	}
	for i := range pods {
		of, err := r.volumes.OfPod(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		names = append(names, of...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// gatherVolume returns one volume; nil if it does not concern the node.
func (r *NodeReconciler) gatherVolume(ctx context.Context, name string, state *nodeState) (*volume, error) {
	pv, err := r.volumes.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	attachments, err := r.attachments.Of(ctx, name)
	if err != nil {
		return nil, err
	}
	known := state.volume(name)
	if pv == nil || cluster.IsToBeBound(pv) {
		if after, recreated := known.isRecreated(attachments, state.node, r.clock.Now()); recreated {
			state.again(after)
			return nil, nil
		}
	} else {
		known.missing = time.Time{}
	}
	if pv == nil {
		delete(state.volumes, name)
		r.memory.forget(name)
		return nil, nil
	}
	resource := r.volumes.Resource(pv)
	if err := r.memory.take(name, resource, attachments, r.clock.Now()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot read which nodes are unconfirmed", "volume", name)
	}
	r.arrived(ctx, state.node, pv, known, attachments)
	in, concerns, err := r.inputs.On(ctx, pv, attachments, state.node, r.remembered(known))
	if err != nil {
		return nil, err
	}
	if !concerns {
		if known.leave(); known.over(r.clock.Now()) {
			delete(state.volumes, name)
		}
		return nil, nil
	}
	return &volume{pv: pv, attachments: attachments, state: known, in: in, resources: resourcesOf(in)}, nil
}

// remembered returns what this process knows of a volume although no object shows it.
func (r *NodeReconciler) remembered(v *volumeState) cluster.Remembered {
	known := cluster.Remembered{Begun: v.progress.begun, Healthy: v.healthy}
	if r.fastDetach { // else a kubelet claims no volume that was released
		known.Deleted = v.lingering(r.clock.Now())
	}
	return known
}

// isRecreated reports whether a volume that is attached to the node has no PersistentVolume for a moment: an affinity controller deletes and
// creates those of volumes whose replicas have moved. after is when to check again.
func (v *volumeState) isRecreated(attachments []storagev1.VolumeAttachment, node string, now time.Time) (after time.Duration, is bool) {
	if v.missing.IsZero() {
		v.missing = now
	}
	left := recreatedWithin - now.Sub(v.missing)
	for i := range attachments {
		if va := &attachments[i]; va.Spec.NodeName == node && (va.DeletionTimestamp == nil || left > 0) {
			return left, true
		}
	}
	return 0, false
}

// resourcesOf returns the resources that a decision rests on.
func resourcesOf(in failover.Input) []string {
	resources := []string{in.Resource.Name}
	for _, pod := range in.Pods {
		for _, other := range pod.Others {
			resources = append(resources, other.Resource.Name)
		}
	}
	return resources
}

// arrived reports that a volume whose fail-over from the node is in progress is attached to another node.
func (r *NodeReconciler) arrived(
	ctx context.Context, node string, pv *corev1.PersistentVolume, known *volumeState, attachments []storagev1.VolumeAttachment,
) {
	if known.move == nil {
		return
	}
	stays := func(va storagev1.VolumeAttachment) bool {
		return va.Spec.NodeName == node && va.DeletionTimestamp == nil
	}
	if !known.move.left {
		if slices.ContainsFunc(attachments, stays) {
			return
		}
		known.move.left, known.move.since = true, r.clock.Now() // Kubernetes has detached it itself
	}
	for i := range attachments {
		if va := &attachments[i]; va.Spec.NodeName != node && va.Status.Attached {
			r.reporter.failedOver(ctx, node, pv, known, va)
			return
		}
	}
}
