package virtual

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/affinity"
)

// Node is a machine with its kubelet and, unless LINSTOR does not know it, its satellite.
type Node struct {
	// Name is the Node's name in Kubernetes. LINSTOR and DRBD know it by the name that [Cluster.Satellite] returns.
	Name string
	// RenewInterval is how often the kubelet renews its Lease, whose duration is four times that; the default is 10 s.
	RenewInterval time.Duration
	// Foreign leaves it out of LINSTOR and without its CSI driver.
	Foreign bool
}

// leaseFactor is how much longer a Lease is valid than its renewal takes, as kubelets have it.
const leaseFactor = 4

// Add adds a node that runs.
func (c *Cluster) Add(ctx context.Context, n Node) error {
	if n.RenewInterval == 0 {
		n.RenewInterval = renewInterval
	}
	k := newKubelet(c, n.Name)
	k.interval, k.skew = n.RenewInterval, c.API.Clock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	node.Status.NodeInfo.BootID = bootID(n.Name, 1)
	if c.placed {
		node.Labels = map[string]string{corev1.LabelHostname: n.Name, affinity.Label: c.Satellite(n.Name)}
		setReady(node, corev1.ConditionTrue)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: n.Name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &n.Name, RenewTime: new(metav1.NewMicroTime(time.Now().Add(k.skew))),
			LeaseDurationSeconds: new(int32(leaseFactor * n.RenewInterval / time.Second)),
		},
	}
	drivers := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if !n.Foreign {
		c.Linstor.AddNode(c.Satellite(n.Name))
		drivers.Spec.Drivers = []storagev1.CSINodeDriver{{Name: Driver, NodeID: c.Satellite(n.Name)}}
	}
	for _, o := range []client.Object{node, lease, drivers} {
		if err := c.user.Create(ctx, o); err != nil {
			return fmt.Errorf("adding node %s: %w", n.Name, err)
		}
	}
	c.mu.Lock()
	c.kubelets[n.Name] = k
	c.mu.Unlock()
	k.waker = c.run(ctx, k.sync, "Pod", "VolumeAttachment")
	return nil
}
