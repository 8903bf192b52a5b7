package controllers

import (
	"context"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// goneInterval is how often replicas that LINSTOR no longer lists are looked at.
const goneInterval = time.Minute

// goneReplicas forgets what is remembered of replicas that LINSTOR no longer lists once their node has no attachment of theirs any more:
// nobody would be removed for them. It runs on every replica, and changes nothing in the cluster.
type goneReplicas struct {
	volumes     cluster.Volumes
	attachments cluster.Attachments
	kubelets    *cluster.Kubelets
	linstor     Linstor
}

func (g *goneReplicas) forget(ctx context.Context) error {
	if !g.linstor.Status().Synced {
		return nil // what an attachment has told of may be listed by LINSTOR yet
	}
	for _, place := range g.linstor.Gone() {
		used, err := g.isAttached(ctx, place)
		if err != nil {
			return err
		}
		if !used {
			g.linstor.Forget(place)
		}
	}
	return nil
}

// isAttached tells whether a volume of the resource is attached to the node.
func (g *goneReplicas) isAttached(ctx context.Context, place linstor.Place) (bool, error) {
	volumes, err := g.volumes.OfResource(ctx, place.Resource)
	if err != nil {
		return false, err
	}
	for _, volume := range volumes {
		attachments, err := g.attachments.Of(ctx, volume)
		if err != nil {
			return false, err
		}
		for _, va := range attachments {
			if g.kubelets.Satellite(va.Spec.NodeName) == place.Node {
				return true, nil
			}
		}
	}
	return false, nil
}
