package kubelet

import (
	"context"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseLoop renews the node's Lease until ctx ends. A renewal that fails is repeated with backoff.
func (l *life) leaseLoop(ctx context.Context) {
	t := l.cfg.Timings
	var last *coordinationv1.Lease
	for {
		retry(ctx, 200*time.Millisecond, 7*time.Second, func(ctx context.Context) error {
			lease, err := l.renewLease(ctx, last)
			last = lease // nil after an error, so that the next try reads it
			return err
		})
		if !sleep(ctx, t.LeaseRenewal) {
			return
		}
	}
}

// renewLease writes the time of this renewal into last, or into the Lease as it is if last is nil.
func (l *life) renewLease(ctx context.Context, last *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := l.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if last == nil {
		var err error
		last, err = leases.Get(ctx, l.node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return leases.Create(ctx, l.renewed(&coordinationv1.Lease{}), metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
	}
	updated, err := leases.Update(ctx, l.renewed(last), metav1.UpdateOptions{})
	if err != nil {
		return nil, err // client-go returns an empty Lease beside the error
	}
	return updated, nil
}

// renewed returns a copy of lease that the node holds from now on.
func (l *life) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	lease.Name, lease.Namespace = l.node, corev1.NamespaceNodeLease
	lease.Spec.HolderIdentity = new(l.node)
	lease.Spec.LeaseDurationSeconds = new(int32(math.Ceil(l.cfg.Timings.LeaseDuration.Seconds())))
	lease.Spec.RenewTime = new(metav1.NowMicro())
	return lease
}
