package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// vigilInterval is how often the nodes and their kubelets are looked at, and what a silent one's node has is read.
	vigilInterval = 2 * time.Second
	// vigilEnd is how long a kubelet must have been silent for a reading to be of no more use: who has noticed the loss
	// of a node by now keeps its clocks running, and nobody else will.
	vigilEnd = 40 * time.Second
)

// Vigil asks LINSTOR about the volumes of a node whose kubelet has fallen silent. LINSTOR's events tell of the loss of a node
// sooner, but a stream that a firewall has forgotten tells nothing for as long as nobody compares it. As often it has the guard
// look at the nodes. It runs on every replica, and changes nothing.
type Vigil struct {
	volumes     cluster.Volumes
	attachments cluster.Attachments
	kubelets    *cluster.Kubelets
	linstor     Linstor
	halt        *haltSwitch
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas keep the clocks.
func (*Vigil) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (v *Vigil) Start(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		v.halt.observe(ctx)
		for _, node := range v.kubelets.Silent(failover.ForceSilence, vigilEnd) {
			if err := v.read(ctx, node); err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "Cannot ask LINSTOR about a node whose kubelet is silent", "node", node)
			}
		}
	}, vigilInterval)
	return nil
}

// read has LINSTOR's word on all volumes that are attached to the node read again.
func (v *Vigil) read(ctx context.Context, node string) error {
	attachments, err := v.attachments.On(ctx, node)
	if err != nil {
		return fmt.Errorf("looking up the attachments on node %s: %w", node, err)
	}
	for _, va := range attachments {
		pv, err := v.volumes.Get(ctx, *va.Spec.Source.PersistentVolumeName)
		if err != nil {
			return err
		}
		if pv != nil && pv.Status.Phase == corev1.VolumeBound {
			v.linstor.Poll(v.volumes.Resource(pv))
		}
	}
	return nil
}
