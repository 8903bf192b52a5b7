// Package affinity is a model of linstor-affinity-controller, which keeps the node affinity of PersistentVolumes in line with where LINSTOR
// has their disks. The affinity of a PersistentVolume cannot be changed, so that it is deleted and made again, with another UID.
//
// It works on any Kubernetes API, modelled or real, and takes the time as an argument.
package affinity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Label is the label of LINSTOR's CSI driver by which a PersistentVolume names the nodes that it allows.
const Label = "linbit.com/hostname"

const (
	// Period is how often the controller looks.
	Period = 15 * time.Second
	// Age is how old a PersistentVolume must be before it is replaced.
	Age = time.Minute
)

// To allows the nodes of some satellites.
func To(satellites ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: Label, Operator: corev1.NodeSelectorOpIn, Values: slices.Sorted(slices.Values(satellites)),
		}},
	}}}}
}

// Satellites are those that an affinity made by [To] allows; none for another.
func Satellites(affinity *corev1.VolumeNodeAffinity) []string {
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return nil
	}
	for _, expression := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if expression.Key == Label {
			return expression.Values
		}
	}
	return nil
}

// Look replaces each PersistentVolume that allows other nodes than those with a disk, of which disks returns the satellites by the volume
// handle, those that still sync and those that are to leave included. Volumes without such an affinity, without a disk, and those younger
// than [Age] stay. What could not be replaced is in the error; the next look tries it again.
func Look(ctx context.Context, api client.Client, now time.Time, disks func(handle string) []string) error {
	var list corev1.PersistentVolumeList
	if err := api.List(ctx, &list); err != nil {
		return fmt.Errorf("listing PersistentVolumes: %w", err)
	}
	var failures []error
	for i := range list.Items {
		pv := &list.Items[i]
		allowed := Satellites(pv.Spec.NodeAffinity)
		if len(allowed) == 0 || pv.Spec.CSI == nil || pv.DeletionTimestamp != nil || now.Sub(pv.CreationTimestamp.Time) < Age {
			continue
		}
		wanted := To(disks(pv.Spec.CSI.VolumeHandle)...)
		if len(Satellites(wanted)) > 0 && !slices.Equal(allowed, Satellites(wanted)) {
			failures = append(failures, replace(ctx, api, pv, wanted))
		}
	}
	return errors.Join(failures...)
}

// replace makes a PersistentVolume anew. Its finalizers, of which Kubernetes has one for volumes in use, do not keep it.
func replace(ctx context.Context, api client.Client, pv *corev1.PersistentVolume, affinity *corev1.VolumeNodeAffinity) error {
	successor := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: pv.Name, Labels: pv.Labels, Annotations: pv.Annotations, Finalizers: pv.Finalizers},
		Spec:       *pv.Spec.DeepCopy(),
	}
	successor.Spec.NodeAffinity = affinity
	phase := pv.Status.Phase
	if err := api.Delete(ctx, pv, client.Preconditions{UID: &pv.UID}); err != nil {
		return fmt.Errorf("replacing PersistentVolume %s: %w", pv.Name, err)
	}
	if len(pv.Finalizers) > 0 {
		released := pv.DeepCopy()
		released.Finalizers = nil
		if err := api.Patch(ctx, released, client.MergeFrom(pv)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("replacing PersistentVolume %s: %w", pv.Name, err)
		}
	}
	if err := api.Create(ctx, successor); err != nil {
		return fmt.Errorf("replacing PersistentVolume %s, which is gone: %w", pv.Name, err)
	}
	successor.Status.Phase = phase
	if err := api.Status().Update(ctx, successor); err != nil {
		return fmt.Errorf("replacing PersistentVolume %s: its phase: %w", pv.Name, err)
	}
	return nil
}
