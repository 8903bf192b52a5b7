package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

func csiNode(name string, drivers ...storagev1.CSINodeDriver) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: drivers}}
}

func TestTheNameOfANodeInLinstor(t *testing.T) {
	t.Parallel()
	ours := storagev1.CSINodeDriver{Name: virtual.Driver, NodeID: "Node-A"}
	theirs := storagev1.CSINodeDriver{Name: "other.example.com", NodeID: "i-0815"}
	const node = "node-a.example.com"
	for name, tc := range map[string]struct {
		tell func(*Kubelets)
		want string
	}{
		"is the same where no driver has said anything":  {func(*Kubelets) {}, node},
		"is what our driver calls it, in lower case":     {func(k *Kubelets) { k.ObserveCSINode(csiNode(node, theirs, ours)) }, "node-a"},
		"is not what another driver calls it":            {func(k *Kubelets) { k.ObserveCSINode(csiNode(node, theirs)) }, node},
		"is not what our driver calls another node":      {func(k *Kubelets) { k.ObserveCSINode(csiNode("node-b", ours)) }, node},
		"stays while the driver's pod is being replaced": {func(k *Kubelets) { k.ObserveCSINode(csiNode(node, ours)); k.ObserveCSINode(csiNode(node)) }, "node-a"},
		"stays when the node is gone from Kubernetes":    {func(k *Kubelets) { k.ObserveCSINode(csiNode(node, ours)); k.Forget(csiNode(node)) }, "node-a"},
		"is the newer one where the driver has a new one": {func(k *Kubelets) {
			k.ObserveCSINode(csiNode(node, theirs, ours))
			k.ObserveCSINode(csiNode(node, storagev1.CSINodeDriver{Name: virtual.Driver, NodeID: "b"}))
		}, "b"},
	} {
		k := NewKubelets(clock.RealClock{}, virtual.Driver, nil)
		tc.tell(k)
		if got := k.Satellite(node); got != tc.want {
			t.Errorf("it %s: %s, want %s", name, got, tc.want)
		}
	}
}

// A driver that has no name for its node has no satellite there.
func TestTheSatellitesOfTheDriver(t *testing.T) {
	t.Parallel()
	k := NewKubelets(clock.RealClock{}, virtual.Driver, nil)
	k.ObserveCSINode(csiNode(nodeA, storagev1.CSINodeDriver{Name: virtual.Driver, NodeID: "Node-A"}))
	k.ObserveCSINode(csiNode(nodeB, storagev1.CSINodeDriver{Name: virtual.Driver}))
	k.ObserveCSINode(csiNode(nodeT, storagev1.CSINodeDriver{Name: "other.example.com", NodeID: "i-0815"}))
	if diff := cmp.Diff(map[string]bool{"node-a": true}, k.Registered()); diff != "" {
		t.Errorf("satellites (-want +got):\n%s", diff)
	}
}
