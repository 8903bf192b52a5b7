package controllers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get,namespace=ha-controller,roleName=piraeus-ha-controller-manager
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get,namespace=ha-controller,roleName=piraeus-ha-controller-manager

// deploymentOf returns the Deployment that runs a pod, from the owner references of the pod and of its ReplicaSet: its name depends on how it was
// installed. The name is empty if no Deployment runs the pod, or if there is no such pod.
func deploymentOf(ctx context.Context, live client.Reader, pod types.NamespacedName) (types.NamespacedName, error) {
	owner := types.NamespacedName{Namespace: pod.Namespace}
	if pod.Name == "" {
		return owner, nil
	}
	replicaSet, err := ownerOf(ctx, live, pod, corev1.SchemeGroupVersion.WithKind("Pod"), "ReplicaSet")
	if err != nil || replicaSet == "" {
		return owner, err
	}
	owner.Name = replicaSet
	owner.Name, err = ownerOf(ctx, live, owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "Deployment")
	return owner, err
}

// ownerOf returns the name of the controller of an object if it is of that kind; empty if it is not, or if there is no such object.
func ownerOf(
	ctx context.Context, live client.Reader, name types.NamespacedName, kind schema.GroupVersionKind, ownerKind string,
) (string, error) {
	var object metav1.PartialObjectMetadata
	object.SetGroupVersionKind(kind)
	if err := live.Get(ctx, name, &object); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	owner := metav1.GetControllerOf(&object)
	if owner == nil || owner.Kind != ownerKind {
		return "", nil
	}
	return owner.Name, nil
}
