package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// Burial drops what is remembered of replicas that LINSTOR no longer lists once their node has no attachment of theirs any more: nobody
// would be removed for them. It runs on every replica, and changes nothing in the cluster.
type Burial struct {
	volumes     cluster.Volumes
	attachments cluster.Attachments
	kubelets    *cluster.Kubelets
	linstor     Linstor
}

// burialInterval is how often that is looked at.
const burialInterval = time.Minute

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Burial) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (b *Burial) Start(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if err := b.bury(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot look up who uses replicas that LINSTOR no longer lists")
		}
	}, burialInterval)
	return nil
}

func (b *Burial) bury(ctx context.Context) error {
	if !b.linstor.Status().Synced {
		return nil // what an attachment has told of may be listed by LINSTOR yet
	}
	for _, place := range b.linstor.Gone() {
		used, err := b.isAttached(ctx, place)
		if err != nil {
			return err
		}
		if !used {
			b.linstor.Forget(place)
		}
	}
	return nil
}

// isAttached tells whether a volume of the resource is attached to the node.
func (b *Burial) isAttached(ctx context.Context, place linstor.Place) (bool, error) {
	volumes, err := b.volumes.OfResource(ctx, place.Resource)
	if err != nil {
		return false, err
	}
	for _, volume := range volumes {
		attachments, err := b.attachments.Of(ctx, volume)
		if err != nil {
			return false, err
		}
		for _, va := range attachments {
			if b.kubelets.Satellite(va.Spec.NodeName) == place.Node {
				return true, nil
			}
		}
	}
	return false, nil
}
