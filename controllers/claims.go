package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// youngPod is the age up to which a pod's claim is read past the cache before the pod is removed: the volume of a claim that was
// re-created under its name may be shown as bound for a moment after that.
const youngPod = time.Minute

// claimOf returns the claim that a volume is bound to as "namespace/claim", empty when none. A volume that was released, or is only
// reserved, still names a claim: another one may have that name by now.
func claimOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound {
		return ""
	}
	return key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
}

// handleOf returns the name that all PersistentVolumes of the same CSI volume share; empty for a volume of no CSI driver.
func handleOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle
}

// sameVolume tells whether two PersistentVolumes are the same CSI volume.
func sameVolume(a, b *corev1.PersistentVolume) bool {
	return a.Name == b.Name || handleOf(a) != "" && handleOf(a) == handleOf(b)
}

// volumesNaming returns the volumes that name the claim ("namespace/claim"), bound or not. They are the cache's own.
func (g *gatherer) volumesNaming(ctx context.Context, claim string) ([]corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	err := g.cache.List(ctx, &volumes, client.MatchingFields{indexVolumeClaim: claim}, shared)
	return volumes.Items, err
}

// volumesOfClaim returns the volumes that are bound to the claim. That is one at most, but for a moment after the claim was re-created.
func (g *gatherer) volumesOfClaim(ctx context.Context, claim string) ([]*corev1.PersistentVolume, error) {
	all, err := g.volumesNaming(ctx, claim)
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

// boundTo returns the PersistentVolumes of the same CSI volume that are bound to a claim: who uses one of them uses the other.
func (g *gatherer) boundTo(ctx context.Context, pv *corev1.PersistentVolume) ([]*corev1.PersistentVolume, error) {
	var bound []*corev1.PersistentVolume
	add := func(pv *corev1.PersistentVolume) {
		if claimOf(pv) != "" {
			bound = append(bound, pv)
		}
	}
	add(pv)
	if !g.isOurs(pv) {
		return bound, nil
	}
	var volumes corev1.PersistentVolumeList
	if err := g.cache.List(ctx, &volumes, client.MatchingFields{indexVolumeHandle: handleOf(pv)}, shared); err != nil {
		return nil, err
	}
	for i := range volumes.Items {
		if volumes.Items[i].Name != pv.Name {
			add(&volumes.Items[i])
		}
	}
	return bound, nil
}

// claimsTo returns the claims, as "namespace/claim", by which pods use the volume.
func (g *gatherer) claimsTo(ctx context.Context, pv *corev1.PersistentVolume) ([]string, error) {
	bound, err := g.boundTo(ctx, pv)
	if err != nil {
		return nil, err
	}
	claims := make([]string, 0, len(bound))
	for _, pv := range bound {
		claims = append(claims, claimOf(pv))
	}
	return claims, nil
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get

// confirmClaims leaves the pods that use the volume indeed. Where several PersistentVolumes name a pod's claim, or the pod is young, the
// cache may not know yet whose the claim is, and it is read.
func (g *gatherer) confirmClaims(ctx context.Context, pv *corev1.PersistentVolume, pods []corev1.Pod) ([]corev1.Pod, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	bound, err := g.boundTo(ctx, pv)
	if err != nil {
		return nil, err
	}
	var confirmed []corev1.Pod
	for i := range pods {
		for _, volume := range bound {
			if !slices.Contains(claimsOf(&pods[i]), claimOf(volume)) {
				continue
			}
			its, err := g.confirmClaim(ctx, volume, &pods[i])
			if err != nil {
				return nil, err
			}
			if its {
				confirmed = append(confirmed, pods[i])
				break
			}
		}
	}
	return confirmed, nil
}

// confirmClaim tells whether the volume is that of the claim by which the pod would use it.
func (g *gatherer) confirmClaim(ctx context.Context, pv *corev1.PersistentVolume, pod *corev1.Pod) (bool, error) {
	naming, err := g.volumesNaming(ctx, claimOf(pv))
	if err != nil {
		return false, err
	}
	if len(naming) == 1 && g.clock.Now().Sub(g.serverTime.Local(pod.CreationTimestamp.Time)) >= youngPod {
		return true, nil
	}
	ref := pv.Spec.ClaimRef
	var claim corev1.PersistentVolumeClaim
	err = g.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &claim)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading claim %s: %w", claimOf(pv), err)
	}
	return claim.UID == ref.UID && claim.Spec.VolumeName == pv.Name, nil
}
