package apimodel

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (w writer) delete(ctx context.Context, store client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	options := new(client.DeleteOptions).ApplyOptions(opts)
	change := Change{Request: requestFor(w.actor, VerbDelete, o, false), GracePeriodSeconds: options.GracePeriodSeconds}
	return w.record(ctx, change, o, func(old client.Object) error {
		if old == nil {
			return notFound(o, o.GetName())
		}
		if err := checkPreconditions(o, old, options.Preconditions); err != nil {
			return err
		}
		pod, ok := old.(*corev1.Pod)
		if !ok {
			return store.Delete(ctx, o)
		}
		return w.deletePod(ctx, pod.DeepCopy(), options.GracePeriodSeconds)
	})
}

func checkPreconditions(o, old client.Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != old.GetUID():
		return conflict(o, "the UID in the precondition (%s) does not match the UID in record (%s)", *p.UID, old.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion():
		return conflict(o, "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)",
			*p.ResourceVersion, old.GetResourceVersion())
	}
	return nil
}

// evict deletes a pod as an eviction does. There are no disruption budgets; [Model.Fail] can stand for one.
func (w writer) evict(ctx context.Context, subresource string, o, body client.Object) error {
	eviction, ok := body.(*policyv1.Eviction)
	if _, isPod := o.(*corev1.Pod); !ok || !isPod || subresource != "eviction" {
		return fmt.Errorf("the model has no creation of %s of a %s", subresource, kindOf(o))
	}
	request := requestFor(w.actor, VerbCreate, o, false)
	request.Eviction = true
	options := eviction.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	return w.record(ctx, Change{Request: request, GracePeriodSeconds: options.GracePeriodSeconds}, o, func(old client.Object) error {
		if old == nil {
			return notFound(o, o.GetName())
		}
		if err := checkPreconditions(o, old, options.Preconditions); err != nil {
			return err
		}
		pod, ok := old.(*corev1.Pod)
		if !ok {
			return notFound(o, o.GetName())
		}
		return w.deletePod(ctx, pod.DeepCopy(), options.GracePeriodSeconds)
	})
}

// errCutOff is told to the client whose deletion stopped half-way, although that has changed the pod.
var errCutOff = apierrors.NewTimeoutError("the request did not complete within the requested timeout", 0)

// deletePod follows the API server (rest.BeforeDelete and the strategy of pods): the grace begins with the first
// deletion and may only become shorter; without any left the object goes as soon as it has no finalizers.
func (w writer) deletePod(ctx context.Context, pod *corev1.Pod, asked *int64) error {
	grace := deletionGrace(pod, asked)
	if pod.DeletionTimestamp != nil {
		left := *pod.DeletionGracePeriodSeconds
		if left > 0 && (asked == nil || grace >= left) {
			return nil
		}
		grace = min(grace, left)
		ends := pod.DeletionTimestamp.Add(-time.Duration(left-grace) * time.Second)
		if now := w.Now().Time; left > 0 && ends.Before(now) { // the grace is over, and the pod is still given a moment
			ends, grace = now, min(grace, 1)
		}
		pod.DeletionTimestamp = new(metav1.NewTime(ends))
	} else {
		pod.DeletionTimestamp = new(metav1.NewTime(w.Now().Add(time.Duration(grace) * time.Second)))
	}
	pod.DeletionGracePeriodSeconds = &grace

	conceal(pod)
	ends := grace == 0 && len(pod.Finalizers) == 0
	cutOff := ends && w.cutsOff(requestFor(w.actor, VerbDelete, pod, false))
	if ends && !cutOff {
		return w.tracker.Delete(resourceOf(pod), pod.Namespace, pod.Name)
	}
	if grace > 0 || cutOff {
		pod.Finalizers = append(pod.Finalizers, terminating)
	}
	err := w.storeDeletion(ctx, pod)
	if err == nil && cutOff {
		return errCutOff
	}
	return err
}

func deletionGrace(pod *corev1.Pod, asked *int64) int64 {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if asked != nil {
		grace = *asked
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		grace = 0
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

// storeDeletion stores the deletion fields, which the fake client does not let anybody change. A write of the
// finalizers through it gives the new resourceVersion.
func (w writer) storeDeletion(ctx context.Context, pod *corev1.Pod) error {
	carrier := &corev1.Pod{}
	if err := w.store.Get(ctx, client.ObjectKeyFromObject(pod), carrier); err != nil {
		return err
	}
	// Both finalizer sets are there for a moment, so that the carrier is never without one.
	carrier.Finalizers = append(carrier.Finalizers, terminating)
	if err := w.store.Update(ctx, carrier); err != nil {
		return err
	}
	pod.ResourceVersion = carrier.ResourceVersion
	return w.tracker.Update(resourceOf(pod), pod, pod.Namespace)
}
