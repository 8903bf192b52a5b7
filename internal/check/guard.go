package check

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// guardOf returns what the controller's guard would say if a node were lost now. A process that has just started does not remember who
// was healthy before: it takes every node that is not for newly lost, but for those whose kubelet has been silent for so long
// that the controller has forgotten their loss.
func guardOf(
	ctx context.Context, reader client.Reader, store *linstor.Store, uses []cluster.Use, maxLostNodes string,
) (func(node string) string, error) {
	limit, err := failover.ParseLimit(maxLostNodes)
	if err != nil {
		return func(string) string { return "" }, nil //nolint:nilerr // validated with the options
	}
	lost, names := make(map[string]bool), make(map[string]string) // of LINSTOR's nodes, the names in Kubernetes
	for _, use := range uses {
		names[use.Input.Node.Satellite] = use.Input.Node.Name
		if use.Volume != "" && use.Input.Node.Name != "" && failover.SpeaksOfTheNode(failover.Foresee(use.Input).Loss) {
			lost[use.Input.Node.Satellite] = true
		}
	}
	view := failover.View{Now: time.Now()}
	for _, node := range store.Nodes() {
		online := node.Online.Known && node.Online.Value
		if !node.Satellite {
			continue
		}
		if !online {
			silent, err := silentForLong(ctx, reader, cmp.Or(names[node.Name], node.Name), view.Now)
			if err != nil {
				return nil, err
			}
			if silent {
				continue
			}
		}
		view.Satellites = append(view.Satellites, failover.Satellite{Name: node.Name, Online: online, LostVolume: lost[node.Name]})
	}
	var memory failover.GuardMemory
	return func(node string) string { return memory.Imagine(view, node, limit) }, nil
}

// silentForLong tells whether the node's Lease says that it was lost so long ago that it is no news.
func silentForLong(ctx context.Context, reader client.Reader, node string, now time.Time) (bool, error) {
	var lease coordinationv1.Lease
	err := reader.Get(ctx, client.ObjectKey{Namespace: cluster.LeaseNamespace, Name: node}, &lease)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the Lease of node %s: %w", node, err)
	}
	return err == nil && lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) > failover.GuardQuiet, nil
}
