package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=delete

// deletePod deletes the pod of that UID: the name may be another pod's by now. The context says until when the deletion may be sent.
func deletePod(ctx context.Context, c client.Client, pod *corev1.Pod, options ...client.DeleteOption) error {
	if err := c.Delete(ctx, pod, append(options, client.Preconditions{UID: &pod.UID})...); err != nil {
		return fmt.Errorf("deleting pod %s: %w", cluster.Key(pod.Namespace, pod.Name), err)
	}
	return nil
}
