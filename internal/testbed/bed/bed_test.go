package bed_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// TestBedIsFaithful proves, without the high availability controller, that the bed behaves as
// Kubernetes does where fail-over is decided: a StatefulSet's pod runs once its volume is attached, and
// after its node has crashed, the volume is free for another node within a moment if the pod is
// deleted by force, the volume taken out of the dead node's volumesInUse, and the attachment deleted;
// without the second step it takes the attach/detach controller up to a minute to notice.
func TestBedIsFaithful(t *testing.T) {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after Stop
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	b, err := bed.Start(ctx, bed.Options{ControllerNodes: -1, DRBDDetection: drbd.Immediately})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	t.Logf("logs in %s", b.LogDir)

	t.Run("scenarios", func(t *testing.T) {
		t.Run("with the entry of volumesInUse removed the volume moves at once", func(t *testing.T) {
			t.Parallel()
			took := loseNodeByHand(ctx, t, b, "fast", true)
			if took > 30*time.Second { // a second, if the machine has nothing else to do
				t.Errorf("attached on the other node after %s, want no wait for a verification", took)
			}
		})
		t.Run("with the attachment deleted only, Kubernetes notices when it verifies", func(t *testing.T) {
			t.Parallel()
			took := loseNodeByHand(ctx, t, b, "slow", false)
			if took < 5*time.Second {
				t.Errorf("attached on the other node after %s, want up to the verification's period of a minute", took)
			}
		})
	})
}

// loseNodeByHand crashes the node of a StatefulSet's pod, does what the controller would do, and
// returns the time from there until the volume is attached on another node.
func loseNodeByHand(ctx context.Context, t *testing.T, b *bed.Bed, name string, removeInUse bool) time.Duration {
	t.Helper()
	nodes, err := b.AddNodes(ctx, name, 3)
	must(t, err)
	w := bed.Workload{
		Namespace: name, Name: "db", Nodes: nodes[:2], PreferNode: nodes[0],
		Volumes: []bed.Volume{{Name: name, Nodes: nodes}},
	}
	must(t, b.Deploy(ctx, w))
	pod, err := b.WaitRunning(ctx, w, nodes[0])
	must(t, err)

	b.Crash(nodes[0])
	// Until LINSTOR has given up its satellite, the CSI driver waits for it.
	must(t, b.WaitFor(ctx, "LINSTOR to miss "+nodes[0], func() (bool, error) {
		return b.LINSTOR.ConnectionStatus(nodes[0]) == linstorsim.Offline, nil
	}))
	began := time.Now()
	must(t, cordon(ctx, b, nodes[0]))
	must(t, b.Client.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	if removeInUse {
		must(t, forgetVolume(ctx, b, nodes[0], name))
	}
	must(t, b.Client.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: objectMeta(csidriver.AttachmentName(name, nodes[0]))}))
	moved := &storagev1.VolumeAttachment{}
	must(t, b.WaitFor(ctx, "the attachment of "+name+" on "+nodes[1], func() (bool, error) {
		err := b.Client.Get(ctx, client.ObjectKey{Name: csidriver.AttachmentName(name, nodes[1])}, moved)
		return moved.Status.Attached, err
	}))
	took := time.Since(began)
	_, err = b.WaitRunning(ctx, w, nodes[1])
	must(t, err)
	t.Logf("attached after %s, Running after %s", took, time.Since(began))
	return took
}

// cordon keeps new pods away from a node that Kubernetes still calls Ready.
func cordon(ctx context.Context, b *bed.Bed, name string) error {
	node := &corev1.Node{ObjectMeta: objectMeta(name)}
	return b.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`)))
}

// forgetVolume removes a volume from the volumesInUse of a node.
func forgetVolume(ctx context.Context, b *bed.Bed, node, handle string) error {
	var n corev1.Node
	if err := b.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
		return err
	}
	before := n.DeepCopy()
	n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse, func(v corev1.UniqueVolumeName) bool {
		return v == csidriver.UniqueVolumeName(handle)
	})
	return b.Client.Status().Patch(ctx, &n, client.MergeFrom(before))
}
