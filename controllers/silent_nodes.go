package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// silentInterval is how often the nodes and their kubelets are looked at, and what a silent one's node has is read.
	silentInterval = 2 * time.Second
	// silentEnd is how long a kubelet must have been silent for a reading to be of no more use: who has noticed the loss
	// of a node by now keeps its clocks running, and nobody else will.
	silentEnd = 40 * time.Second
)

// silentNodes asks LINSTOR about the volumes of a node whose kubelet has fallen silent. LINSTOR's events tell of the loss of a node
// sooner, but a stream that a firewall has forgotten tells nothing for as long as nobody compares it. As often it has the guard
// look at the nodes. It runs on every replica, and changes nothing.
type silentNodes struct {
	volumes     cluster.Volumes
	attachments cluster.Attachments
	kubelets    *cluster.Kubelets
	linstor     Linstor
	halt        *haltSwitch
}

func (s *silentNodes) look(ctx context.Context) error {
	s.halt.observe(ctx)
	var errs []error
	for _, node := range s.kubelets.Silent(failover.ForceSilence, silentEnd) {
		if err := s.read(ctx, node); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node, err))
		}
	}
	return errors.Join(errs...)
}

// read has LINSTOR's word on all volumes that are attached to the node read again.
func (s *silentNodes) read(ctx context.Context, node string) error {
	attachments, err := s.attachments.On(ctx, node)
	if err != nil {
		return fmt.Errorf("looking up the attachments on node %s: %w", node, err)
	}
	for _, va := range attachments {
		pv, err := s.volumes.Get(ctx, *va.Spec.Source.PersistentVolumeName)
		if err != nil {
			return err
		}
		if pv != nil && pv.Status.Phase == corev1.VolumeBound {
			s.linstor.Poll(s.volumes.Resource(pv))
		}
	}
	return nil
}
