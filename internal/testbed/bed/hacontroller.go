package bed

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the shipped manifest.
const (
	// ControllerNamespace is the namespace of the high availability controller.
	ControllerNamespace = "ha-controller"
	// ControllerName is the name of its Deployment and of the Lease its replicas elect a leader by.
	ControllerName = "piraeus-ha-controller"

	controllerAccount = "ha-controller"
)

// DeployController applies the shipped manifest by kubectl and waits until all replicas of the high
// availability controller are ready and one of them leads.
func (b *Bed) DeployController(ctx context.Context) error {
	if err := b.ApplyManifest(ctx); err != nil {
		return err
	}
	return b.WaitController(ctx)
}

// WaitController waits until all replicas of the high availability controller are ready and one of them
// leads.
func (b *Bed) WaitController(ctx context.Context) error {
	if err := b.WaitFor(ctx, "the replicas of the high availability controller to be ready (their logs are in "+b.LogDir+")",
		func() (bool, error) {
			var d appsv1.Deployment
			if err := b.Client.Get(ctx, client.ObjectKey{Namespace: ControllerNamespace, Name: ControllerName}, &d); err != nil {
				return false, err
			}
			if d.Status.ReadyReplicas < *d.Spec.Replicas {
				return false, fmt.Errorf("%d of %d are ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
			}
			return true, nil
		}); err != nil {
		return err
	}
	return b.WaitFor(ctx, "a leader of the high availability controller", func() (bool, error) {
		leader, err := b.Leader(ctx)
		return leader != "", err
	})
}

// Leader returns the name of the pod that leads the high availability controller, empty if none does.
func (b *Bed) Leader(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: ControllerNamespace, Name: ControllerName}, &lease); err != nil {
		return "", fmt.Errorf("lease of the high availability controller: %w", err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_") // the rest is random
	return pod, nil
}

// LeaderNode returns the node that the leader of the high availability controller runs on.
func (b *Bed) LeaderNode(ctx context.Context) (string, error) {
	leader, err := b.Leader(ctx)
	if err != nil {
		return "", err
	}
	var pod corev1.Pod
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: ControllerNamespace, Name: leader}, &pod); err != nil {
		return "", fmt.Errorf("pod of the leader: %w", err)
	}
	return pod.Spec.NodeName, nil
}
