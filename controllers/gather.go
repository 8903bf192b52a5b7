package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// gather is how each reconciler of volumes begins: with what is known of one volume on each node that it concerns.
type gather struct {
	watch   volumeWatch
	inputs  cluster.Inputs
	clock   clock.PassiveClock
	metrics *metrics.Metrics
	memory  *settingsMemory
	losses  *losses
}

// gathered is what is known of a volume; pv is nil where there is none of ours.
type gathered struct {
	pv          *corev1.PersistentVolume
	resource    string
	attachments []storagev1.VolumeAttachment
	inputs      []failover.Input
	// remade is set while its PersistentVolume is made anew, by which nothing of it is forgotten, and remadeLeft is when to look at that again.
	remade     bool
	remadeLeft time.Duration
}

// volume gathers what is known of the volume of that name.
func (g *gather) volume(ctx context.Context, name string) (known gathered, err error) {
	if known.pv, err = g.watch.volumes.Get(ctx, name); err != nil {
		return gathered{}, err
	}
	if known.remade, known.remadeLeft, err = g.isRemade(ctx, name, known.pv); err != nil {
		return gathered{}, err
	}
	if known.pv == nil {
		if !known.remade {
			g.memory.forget(name)
			g.losses.prune(name, nil)
		}
		return known, nil
	}
	known.resource = g.watch.volumes.Resource(known.pv)
	if known.attachments, err = g.attachments(ctx, known.pv); err != nil {
		return gathered{}, err
	}
	if known.inputs, err = g.inputs.Of(ctx, known.pv); err != nil {
		return gathered{}, fmt.Errorf("gathering what is known of volume %s: %w", name, err)
	}
	if !known.remade {
		g.losses.prune(name, known.inputs)
	}
	return known, nil
}

// remadeFor is for how long a volume that is being detached may have no PersistentVolume. The attacher ends no detach without, and an attachment
// that hangs for good must not keep what is known of a volume that nobody makes again.
const remadeFor = time.Minute

// isRemade tells whether the PersistentVolume of a volume that is attached has gone, or is about to be bound: an affinity controller deletes and
// creates those of volumes whose replicas have moved. A volume is forgotten with its last attachment. left is for how long one that is being
// detached still counts.
func (g *gather) isRemade(ctx context.Context, name string, pv *corev1.PersistentVolume) (remade bool, left time.Duration, err error) {
	if pv != nil && !cluster.IsToBeBound(pv) {
		return false, 0, nil
	}
	attachments, err := g.watch.attachments.Of(ctx, name)
	for _, va := range attachments {
		if va.DeletionTimestamp == nil {
			remade = true
			continue
		}
		left = max(left, remadeFor-g.clock.Now().Sub(g.inputs.ServerTime.Local(va.DeletionTimestamp.Time)))
	}
	return remade || left > 0, left, err
}

// attachments returns the attachments of a volume. What others have said on them that nodes may run must be known before anything is
// decided, and before it is written anew: it is taken over.
func (g *gather) attachments(ctx context.Context, pv *corev1.PersistentVolume) ([]storagev1.VolumeAttachment, error) {
	attachments, err := g.watch.attachments.Of(ctx, pv.Name)
	if err != nil {
		return nil, fmt.Errorf("looking up the attachments of volume %s: %w", pv.Name, err)
	}
	if err := g.memory.take(pv.Name, g.watch.volumes.Resource(pv), attachments, g.clock.Now()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot take over what nodes may run", "volume", pv.Name)
	}
	return attachments, nil
}

// decided counts how long the events of a resource have waited that came before a decision on it began. Time is the machine's
// here, as the events' is: nothing is decided by it.
func (g *gather) decided(resource string, began time.Time) {
	for _, arrival := range g.watch.linstor.Undecided(resource, began) {
		g.metrics.EventDecided(time.Since(arrival))
	}
}
