package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// lostOn returns the volumes that are lost on a node by what is known already; apart from the others those about which there is nothing to
// do for a moment: what follows the deletion of an attachment is Kubernetes', each of whose steps calls for a look.
func (r *FailoverReconciler) lostOn(ctx context.Context, node string) (lost, resting []*volume, err error) {
	all, err := r.candidatesOn(ctx, node, r.reporter.reports.lingeringOn(node))
	if err != nil {
		return nil, nil, fmt.Errorf("gathering what is known of the volumes: %w", err)
	}
	for _, v := range all {
		if v.d = failover.Decide(v.in); !concernsNode(v.d) {
			continue
		}
		if v.rest = r.reporter.reports.restAfterDetach(v.pv.Name, v.in); v.rest > 0 {
			resting = append(resting, v)
			continue
		}
		v.resources = []string{v.in.Resource.Name}
		for _, pod := range v.in.Pods {
			for _, other := range pod.Others {
				v.resources = append(v.resources, other.Resource.Name)
			}
		}
		lost = append(lost, v)
	}
	return lost, resting, nil
}

// candidatesOn returns from the cache all volumes that candidates returns an input for on the node. The volumes named are looked at, too.
func (r *FailoverReconciler) candidatesOn(ctx context.Context, node string, more []string) ([]*volume, error) {
	attachments, err := r.attachmentsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(more)
	for _, va := range attachments {
		names = append(names, *va.Spec.Source.PersistentVolumeName)
	}
	var pods corev1.PodList
	if err := r.cache.List(ctx, &pods, client.MatchingFields{indexPodNode: node}, shared); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		for _, request := range r.volumesOfPod(ctx, &pods.Items[i]) {
			names = append(names, request.Name)
		}
	}
	slices.Sort(names)
	var all []*volume
	for _, name := range slices.Compact(names) {
		v, err := r.candidateNamed(ctx, name, node)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", name, err)
		}
		if v != nil {
			all = append(all, v)
		}
	}
	return all, nil
}

// candidateNamed is candidate for a volume of that name; nil where there is none.
func (r *FailoverReconciler) candidateNamed(ctx context.Context, name, node string) (*volume, error) {
	var pv corev1.PersistentVolume
	if err := r.cache.Get(ctx, client.ObjectKey{Name: name}, &pv); err != nil || !r.isOurs(&pv) {
		return nil, client.IgnoreNotFound(err)
	}
	pods, err := r.podsOf(ctx, &pv)
	if err != nil {
		return nil, err
	}
	attachments, err := r.attachmentsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	// What others have said must be known before anything is decided.
	resource, _ := resourceOf(&pv, r.driver)
	if err := r.memory.take(name, resource, attachments, r.clock.Now()); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot take over what nodes may run", "volume", name)
	}
	in, ok, err := r.candidate(ctx, &pv, node, pods, attachments)
	if err != nil || !ok {
		return nil, err
	}
	return &volume{pv: &pv, in: in}, nil
}
