package controllers

import (
	"context"
	"fmt"
	"slices"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// lostOn returns the volumes that are lost on a node by what is known already; apart from the others those about which there is nothing to
// do for a moment: what follows the deletion of an attachment is Kubernetes', each of whose steps calls for a look.
func (r *FailoverReconciler) lostOn(ctx context.Context, node string) (lost, detaching []*volume, err error) {
	all, err := r.candidatesOn(ctx, node, r.reporter.reports.lingeringOn(node))
	if err != nil {
		return nil, nil, fmt.Errorf("gathering what is known of the volumes: %w", err)
	}
	for _, v := range all {
		if v.d = failover.Decide(v.in); !concernsNode(v.d) {
			continue
		}
		if v.lookAfter = r.reporter.reports.waitAfterDetach(v.pv.Name, v.in); v.lookAfter > 0 {
			detaching = append(detaching, v)
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
	return lost, detaching, nil
}

// candidatesOn returns from the cache all volumes that concern the node. The volumes named are looked at, too.
func (r *FailoverReconciler) candidatesOn(ctx context.Context, node string, more []string) ([]*volume, error) {
	attachments, err := r.gather.watch.attachments.On(ctx, node)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(more)
	for _, va := range attachments {
		names = append(names, *va.Spec.Source.PersistentVolumeName)
	}
	pods, err := r.pods.On(ctx, node)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		names = append(names, r.gather.watch.volumesOf(ctx, &pods[i])...)
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

// candidateNamed is the one of that name; nil where there is none.
func (r *FailoverReconciler) candidateNamed(ctx context.Context, name, node string) (*volume, error) {
	pv, err := r.gather.watch.volumes.Get(ctx, name)
	if err != nil || pv == nil {
		return nil, err
	}
	if _, err := r.gather.attachments(ctx, pv); err != nil {
		return nil, err
	}
	in, ok, err := r.gather.inputs.On(ctx, pv, node)
	if err != nil || !ok {
		return nil, err
	}
	return &volume{pv: pv, in: in}, nil
}
