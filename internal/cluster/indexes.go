package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The fields by which the cache is searched.
const (
	// indexPodClaims finds pods by "namespace/claim".
	indexPodClaims = "claims"
	// indexPodNode finds pods by node.
	indexPodNode = "node"
	// indexVolumeResource finds PersistentVolumes of our driver by LINSTOR resource, in lower case.
	indexVolumeResource = "linstorResource"
	// indexVolumeClaim finds PersistentVolumes by the "namespace/claim" that they name, bound or not.
	indexVolumeClaim = "claim"
	// indexAttachmentVolume finds VolumeAttachments by PersistentVolume.
	indexAttachmentVolume = "persistentVolume"
	// indexAttachmentNode finds VolumeAttachments by node.
	indexAttachmentNode = "node"
)

// index is one searchable field of one kind.
type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

func indexes(driver string) []index {
	volumes := Volumes{driver: driver}
	return []index{
		{&corev1.Pod{}, indexPodClaims, func(o client.Object) []string { return ClaimsOf(o.(*corev1.Pod)) }},
		{&corev1.Pod{}, indexPodNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }},
		{&corev1.PersistentVolume{}, indexVolumeResource, func(o client.Object) []string {
			resource := volumes.Resource(o.(*corev1.PersistentVolume))
			if resource == "" {
				return nil
			}
			return []string{strings.ToLower(resource)}
		}},
		{&corev1.PersistentVolume{}, indexVolumeClaim, func(o client.Object) []string {
			claim := o.(*corev1.PersistentVolume).Spec.ClaimRef
			if claim == nil {
				return nil
			}
			return []string{Key(claim.Namespace, claim.Name)}
		}},
		{&storagev1.VolumeAttachment{}, indexAttachmentVolume, func(o client.Object) []string {
			volume := o.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName
			if volume == nil {
				return nil
			}
			return []string{*volume}
		}},
		{&storagev1.VolumeAttachment{}, indexAttachmentNode, func(o client.Object) []string {
			return []string{o.(*storagev1.VolumeAttachment).Spec.NodeName}
		}},
	}
}

// AddIndexes registers the searchable fields of the cache; driver is the CSI driver's name.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer, driver string) error {
	for _, i := range indexes(driver) {
		if err := indexer.IndexField(ctx, i.object, i.field, i.extract); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.object, i.field, err)
		}
	}
	return nil
}

// ClaimsOf returns the claims a pod uses as "namespace/claim", those of generic ephemeral volumes included.
func ClaimsOf(pod *corev1.Pod) []string {
	var claims []string
	for _, volume := range pod.Spec.Volumes {
		if name := claimName(pod, volume); name != "" {
			claims = append(claims, Key(pod.Namespace, name))
		}
	}
	return claims
}

// claimName returns the name of the claim behind a pod's volume, empty when there is none.
func claimName(pod *corev1.Pod, volume corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	default:
		return ""
	}
}

// Key returns "namespace/name".
func Key(namespace, name string) string {
	return types.NamespacedName{Namespace: namespace, Name: name}.String()
}
