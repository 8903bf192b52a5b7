package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// nfsExport is the volume attribute that linstor-csi sets where consumers mount the volume by NFS.
const nfsExport = "linstor.csi.linbit.com/nfs-export"

// mountedReadOnly is the mount option that mounts a volume read-only.
const mountedReadOnly = "ro"

// Volumes looks up PersistentVolumes in the cache. They are the cache's own, and must not be changed.
type Volumes struct {
	cache  client.Reader
	driver string
}

// Get returns a volume of our driver; nil where there is none of that name.
func (v Volumes) Get(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	var pv corev1.PersistentVolume
	err := v.cache.Get(ctx, client.ObjectKey{Name: name}, &pv, shared)
	if apierrors.IsNotFound(err) || err == nil && v.Resource(&pv) == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up volume %s: %w", name, err)
	}
	return &pv, nil
}

// Resource returns the LINSTOR resource of a volume, empty where the volume is of another driver. A volume handle is the name of
// the resource or, in a consistency group, "<resource>/<volume number>" (linstor-csi, ParseVolumeId).
// It is never derived from the volume's own name.
func (v Volumes) Resource(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != v.driver {
		return ""
	}
	resource, _, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	return resource
}

// OfClaim returns the volumes of any driver that are bound to the claim ("namespace/claim"). That is one at most, but for a moment after
// the claim was re-created.
func (v Volumes) OfClaim(ctx context.Context, claim string) ([]*corev1.PersistentVolume, error) {
	all, err := v.naming(ctx, claim)
	if err != nil {
		return nil, err
	}
	var bound []*corev1.PersistentVolume
	for i := range all {
		if claimOf(&all[i]) == claim {
			bound = append(bound, &all[i])
		}
	}
	return bound, nil
}

// OfResource returns the names of the volumes of a LINSTOR resource.
func (v Volumes) OfResource(ctx context.Context, resource string) ([]string, error) {
	return v.names(ctx, client.MatchingFields{indexVolumeResource: strings.ToLower(resource)})
}

// OfPod returns the names of the volumes of ours that a pod uses, and of those of the same LINSTOR resources.
func (v Volumes) OfPod(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var all []string
	for _, claim := range ClaimsOf(pod) {
		bound, err := v.OfClaim(ctx, claim)
		if err != nil {
			return nil, err
		}
		for _, pv := range bound {
			names, err := v.OfResource(ctx, v.Resource(pv))
			if err != nil {
				return nil, err
			}
			all = append(all, names...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (v Volumes) names(ctx context.Context, field client.MatchingFields) ([]string, error) {
	volumes, err := v.list(ctx, field)
	names := make([]string, 0, len(volumes))
	for i := range volumes {
		names = append(names, volumes[i].Name)
	}
	return names, err
}

// naming returns the volumes that name the claim ("namespace/claim"), bound or not.
func (v Volumes) naming(ctx context.Context, claim string) ([]corev1.PersistentVolume, error) {
	return v.list(ctx, client.MatchingFields{indexVolumeClaim: claim})
}

func (v Volumes) list(ctx context.Context, field client.MatchingFields) ([]corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	if err := v.cache.List(ctx, &volumes, field, shared); err != nil {
		return nil, fmt.Errorf("looking up volumes: %w", err)
	}
	return volumes.Items, nil
}

// sharing returns the PersistentVolumes of the same LINSTOR resource that are bound to a claim. DRBD promotes a resource as a whole: who uses
// one volume of a consistency group on another node takes the others from under their pods here.
func (v Volumes) sharing(ctx context.Context, pv *corev1.PersistentVolume) ([]*corev1.PersistentVolume, error) {
	var bound []*corev1.PersistentVolume
	add := func(pv *corev1.PersistentVolume) {
		if claimOf(pv) != "" {
			bound = append(bound, pv)
		}
	}
	add(pv)
	resource := v.Resource(pv)
	if resource == "" {
		return bound, nil
	}
	volumes, err := v.list(ctx, client.MatchingFields{indexVolumeResource: strings.ToLower(resource)})
	if err != nil {
		return nil, err
	}
	for i := range volumes {
		if volumes[i].Name != pv.Name {
			add(&volumes[i])
		}
	}
	return bound, nil
}

// claims returns the claims, as "namespace/claim", by which pods use the volume.
func (v Volumes) claims(ctx context.Context, pv *corev1.PersistentVolume) ([]string, error) {
	bound, err := v.sharing(ctx, pv)
	if err != nil {
		return nil, err
	}
	claims := make([]string, 0, len(bound))
	for _, pv := range bound {
		claims = append(claims, claimOf(pv))
	}
	return claims, nil
}

// claimOf returns the claim that a volume is bound to as "namespace/claim", empty when none. A volume that was released, or is only
// reserved, still names a claim: another one may have that name by now.
func claimOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound {
		return ""
	}
	return Key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// IsToBeBound reports whether a volume names a claim and the controller manager has not bound it yet.
func IsToBeBound(pv *corev1.PersistentVolume) bool {
	return pv.Spec.ClaimRef != nil && pv.Status.Phase == corev1.VolumePending
}

// handleOf returns the name that all PersistentVolumes of the same CSI volume share; empty for a volume of no CSI driver.
func handleOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle
}

// sameVolume reports whether two PersistentVolumes are the same CSI volume.
func sameVolume(a, b *corev1.PersistentVolume) bool {
	return a.Name == b.Name || handleOf(a) != "" && handleOf(a) == handleOf(b)
}

// volumeFacts translates a volume into what the policy wants to know of it.
func volumeFacts(pv *corev1.PersistentVolume) failover.Volume {
	modes := pv.Spec.AccessModes
	readOnly := pv.Spec.CSI.ReadOnly || slices.Contains(pv.Spec.MountOptions, mountedReadOnly) || len(modes) > 0 && !slices.ContainsFunc(modes,
		func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
	return failover.Volume{
		Name:      pv.Name,
		NFSExport: IsNFSExport(pv),
		Block:     isBlock(pv),
		Shared:    slices.Contains(modes, corev1.ReadWriteMany),
		ReadOnly:  readOnly,
	}
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// IsNFSExport reports whether consumers mount the volume by NFS.
func IsNFSExport(pv *corev1.PersistentVolume) bool {
	_, nfs := pv.Spec.CSI.VolumeAttributes[nfsExport]
	return nfs
}
