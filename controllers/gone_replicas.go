package controllers

import (
	"context"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// goneInterval is how often replicas that LINSTOR no longer lists are checked.
const goneInterval = time.Minute

// goneReplicas forgets replicas that LINSTOR no longer lists once they are not attached to their node any more: no pod would be deleted because of
// them. It runs on every replica, and changes nothing in the cluster.
type goneReplicas struct {
	shared

	gone GoneReplicas
}

func (g *goneReplicas) forget(ctx context.Context) error {
	if !g.linstor.Status().Synced {
		return nil // LINSTOR may still list them
	}
	for _, place := range g.gone.Gone() {
		used, err := g.isAttached(ctx, place)
		if err != nil {
			return err
		}
		if !used {
			g.gone.Forget(place)
		}
	}
	return nil
}

// isAttached reports whether a volume of the resource is attached to the node.
func (g *goneReplicas) isAttached(ctx context.Context, place linstor.Place) (bool, error) {
	volumes, err := g.volumes.OfResource(ctx, place.Resource)
	if err != nil {
		return false, err
	}
	there := func(va storagev1.VolumeAttachment) bool { return g.kubelets.Satellite(va.Spec.NodeName) == place.Node }
	for _, volume := range volumes {
		attachments, err := g.attachments.Of(ctx, volume)
		if err != nil || slices.ContainsFunc(attachments, there) {
			return true, err
		}
	}
	return false, nil
}
