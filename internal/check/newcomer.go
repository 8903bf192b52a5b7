package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// learning is how long a process of the controller takes at most from its start on until it knows what a node runs that it hears: LINSTOR
// must show the node ONLINE in a list that is read 10 seconds later, and the kubelet, which does so every 10 seconds, must have renewed its
// Lease since.
const learning = 25 * time.Second

// leadingSince returns when the process of the controller that leads has started; zero where that cannot be told.
func (s sources) leadingSince(ctx context.Context, reader client.Reader, d deployment, controller string) (time.Time, error) {
	leader := s.leader(ctx, d, controller)
	if leader == "" {
		return time.Time{}, nil
	}
	namespace, name, _ := strings.Cut(leader, "/")
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return time.Time{}, fmt.Errorf("listing pods: %w", err)
	}
	var since time.Time
	for _, pod := range pods.Items {
		if pod.Name != name {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses { // which of them it is, nobody need know: the last one counts
			if c.State.Running != nil && c.State.Running.StartedAt.After(since) {
				since = c.State.Running.StartedAt.Time
			}
		}
	}
	return since, nil
}

// unlearn takes back that the leader knows what the pods' nodes run, where its process has not run for long enough while it heard them. It
// has that in its memory only.
func unlearn(uses []cluster.Use, leadingSince time.Time) {
	for i := range uses {
		in := &uses[i].Input
		if !isNewTo(*in, leadingSince) {
			continue
		}
		in.Resource = unlearnt(in.Resource, in.Node.Satellite)
		for _, pod := range in.Pods {
			for j := range pod.Others {
				pod.Others[j].Resource = unlearnt(pod.Others[j].Resource, in.Node.Satellite)
			}
		}
	}
}

// isNewTo tells whether the leader has run for less than it takes to learn what the node of an input runs when that was heard of last.
func isNewTo(in failover.Input, leadingSince time.Time) bool {
	return !leadingSince.IsZero() && in.Node.Name != "" && in.Now.Add(-in.Node.LeaseSilence).Sub(leadingSince) < learning
}

func unlearnt(r failover.Resource, node string) failover.Resource {
	r.Replicas = slices.Clone(r.Replicas)
	for i := range r.Replicas {
		if r.Replicas[i].Node == node {
			r.Replicas[i].Confirmed = false
		}
	}
	return r
}

// newcomer says why a pod would not be moved of whose node the leader knows too little, where that passes by itself; empty where it does not.
func newcomer(in failover.Input, forecast failover.Forecast, leadingSince time.Time) string {
	if forecast.Reason != failover.QuorumUnconfirmed || !isNewTo(in, leadingSince) || lostNow(in, forecast) {
		return ""
	}
	return fmt.Sprintf("the controller's leader has started %s ago, and knows %s after its start what node %s runs: nothing is moved from there until then",
		in.Now.Sub(leadingSince).Round(time.Second), learning, in.Node.Name)
}
