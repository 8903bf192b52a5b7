package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// linstorController is the value of the component label for the LINSTOR controller.
const linstorController = "linstor-controller"

// strangersOn returns the volumes of the pods that nobody has selected on the node that is asked about, none where no node is.
func strangersOn(ctx context.Context, survey *cluster.Survey, facts *Facts) ([]cluster.Use, error) {
	if facts.Node == nil {
		return nil, nil
	}
	return survey.Strangers(ctx, facts.Namespace, facts.Node.Name)
}

// usesToRead returns all volumes of which something is to be told.
func usesToRead(ctx context.Context, survey *cluster.Survey, facts *Facts) ([]cluster.Use, error) {
	uses, _, err := survey.Uses(ctx, facts.Namespace)
	if err != nil {
		return nil, err
	}
	strangers, err := strangersOn(ctx, survey, facts)
	return slices.Concat(uses, strangers), err
}

// readNode finds out whether there is the node that is asked about, if one is, and what runs on it that every fail-over needs.
func (s sources) readNode(
	ctx context.Context, reader client.Reader, d deployment, kubelets *cluster.Kubelets, memory *linstor.Store, facts *Facts,
) error {
	n := facts.Node
	if n == nil {
		return nil
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if !slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool { return node.Name == n.Name }) {
		n.Missing = true
		for i := range nodes.Items {
			name := nodes.Items[i].Name
			n.Others = append(n.Others, name)
			if kubelets.Satellite(name) == strings.ToLower(n.Name) {
				n.Namesake = name
			}
		}
		slices.Sort(n.Others)
		return nil
	}
	n.Satellite = kubelets.Satellite(n.Name)
	n.Unlisted = facts.LinstorError == "" && !isSatellite(memory.Nodes(), n.Satellite)
	leader := s.leader(ctx, d, facts.Controller.Name)
	var pods corev1.PodList
	if err := reader.List(ctx, &pods); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := cluster.Key(pod.Namespace, pod.Name)
		switch {
		case pod.Spec.NodeName != n.Name || cluster.Ended(pod):
		case name == leader:
			n.Leader, n.Takeover = name, d.options.LeaseDuration+d.options.RetryPeriod
		case pod.Labels[cluster.ComponentLabel] == linstorController:
			n.Linstor = name
		}
	}
	return nil
}

// leader returns the pod of the controller that leads, as "namespace/name"; empty where that cannot be told. Whoever asks may not be
// allowed to read the Lease, and does without.
func (s sources) leader(ctx context.Context, d deployment, controller string) string {
	namespace, _, _ := strings.Cut(controller, "/")
	namespace = cmp.Or(d.options.LeaderElectionNamespace, namespace)
	var lease coordinationv1.Lease
	err := s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: d.options.LeaderElectionResourceName}, &lease)
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return ""
	}
	return cluster.Key(namespace, *lease.Spec.HolderIdentity)
}

func isSatellite(nodes []linstor.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n linstor.Node) bool { return n.Satellite && n.Name == name })
}
