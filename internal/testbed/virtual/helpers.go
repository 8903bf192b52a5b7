package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// What comes and goes with a pod: its helpers, and its generic ephemeral volumes.

// help keeps a helper beside the pod that owns it, and tells whether nothing is left to do.
func (o *owners) help(ctx context.Context, w *Workload) bool {
	var owner, helper corev1.Pod
	there := o.view.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.HelperOf}, &owner) == nil
	err := o.view.Get(ctx, w.Key(), &helper)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false
	case err == nil && (!there || !metav1.IsControlledBy(&helper, &owner)):
		return o.owner.Delete(ctx, &helper, client.GracePeriodSeconds(0)) == nil // as the garbage collector does
	case err == nil || !there || w.Gone || owner.Spec.NodeName == "" || owner.DeletionTimestamp != nil || ended(&owner):
		return true
	case !w.Tolerant && o.isOutOfService(ctx, owner.Spec.NodeName):
		return false // where the scheduler lets no such pod go
	}
	pod := w.pod()
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: owner.Name, UID: owner.UID, Controller: new(true),
	}}
	return o.owner.Create(ctx, pod) == nil && o.bind(ctx, pod, owner.Spec.NodeName) == nil
}

// ephemeralName is the PersistentVolume behind the nth claim of that name.
func ephemeralName(claim string, n int) string { return fmt.Sprintf("%s-%d", claim, n) }

// provision makes the ephemeral volumes of a pod that is about to be bound to a node, and tells whether they are there.
func (o *owners) provision(ctx context.Context, w *Workload, node string) bool {
	for _, volume := range w.Ephemeral {
		claim := w.Name + "-" + volume
		if o.provisioned[claim] {
			continue
		}
		o.generation++
		err := o.AddVolume(ctx, Volume{
			Name: ephemeralName(claim, o.generation), Namespace: w.Namespace, Claim: claim, Diskful: []string{o.Satellite(node)},
		})
		if err != nil {
			return false
		}
		o.provisioned[claim] = true
	}
	return true
}

// retire deletes the claims of the ephemeral volumes of a pod that is gone. Their volumes follow once nothing is attached any more.
func (o *owners) retire(ctx context.Context, w *Workload) bool {
	for _, volume := range w.Ephemeral {
		claim := w.Name + "-" + volume
		if !o.provisioned[claim] {
			continue
		}
		object := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: claim}}
		if err := o.owner.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			return false
		}
		o.release(types.NamespacedName{Namespace: w.Namespace, Name: claim})
		delete(o.provisioned, claim)
	}
	return true
}

// release lets the volume of a claim that was deleted go, as soon as it can.
func (o *owners) release(claim types.NamespacedName) {
	o.mu.Lock()
	name := ""
	for n, v := range o.volumes {
		if v.Namespace == claim.Namespace && v.Claim == claim.Name && !v.Released {
			name = n
			v.Released = true
			o.volumes[n] = v
		}
	}
	o.mu.Unlock()
	o.released = append(o.released, name)
}

// reclaim deletes a volume that was released, and tells whether it is gone. The external-provisioner deletes none that is attached, and LINSTOR
// none that is in use.
func (o *owners) reclaim(ctx context.Context, name string) bool {
	var pv corev1.PersistentVolume
	if err := o.view.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil {
		return apierrors.IsNotFound(err)
	}
	if pv.Status.Phase != corev1.VolumeReleased {
		pv.Status.Phase = corev1.VolumeReleased
		if o.owner.Status().Update(ctx, &pv) != nil {
			return false
		}
	}
	var attachments storagev1.VolumeAttachmentList
	if o.view.List(ctx, &attachments) != nil || slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool {
		return va.Spec.Source.PersistentVolumeName != nil && *va.Spec.Source.PersistentVolumeName == name
	}) {
		return false
	}
	o.mu.Lock()
	resource := o.volumes[name].Resource()
	o.mu.Unlock()
	if err := o.Linstor.DeleteResource(resource); err != nil && !errors.Is(err, linstorsim.ErrNotFound) {
		return false
	}
	return client.IgnoreNotFound(o.owner.Delete(ctx, &pv)) == nil
}
