package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

func TestNodeRegisters(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		n := b.node()
		if n.Labels[corev1.LabelHostname] != node || n.Labels["zone"] != "z" {
			t.Errorf("labels: %v", n.Labels)
		}
		if n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
			t.Errorf("annotations: %v", n.Annotations)
		}
		if n.Status.NodeInfo.BootID != b.k.BootID() || b.k.BootID() == "" {
			t.Errorf("boot ID %q, want %q", n.Status.NodeInfo.BootID, b.k.BootID())
		}
		if !nodeReady(n) {
			t.Errorf("conditions: %v", n.Status.Conditions)
		}
		csiNode, err := b.client.StorageV1().CSINodes().Get(t.Context(), node, metav1.GetOptions{})
		b.must(err)
		if d := csiNode.Spec.Drivers[0]; d.Name != csidriver.Name || d.NodeID != node || *d.Allocatable.Count == 0 {
			t.Errorf("driver in CSINode: %v", d)
		}
	})
}

// nodeReady tells whether a node's condition Ready is True.
func nodeReady(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// renewed returns the time of the Lease's last renewal.
func (b *bench) renewed() time.Time {
	b.Helper()
	var at time.Time
	b.behindGate(func() {
		lease, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(b.Context(), node, metav1.GetOptions{})
		b.must(err)
		at = lease.Spec.RenewTime.Time
	})
	return at
}

func TestLeaseIsRenewedEveryTenSeconds(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		first := b.renewed()
		b.pass(30 * time.Second)
		if got := b.renewed().Sub(first); got != 30*time.Second {
			t.Errorf("renewed %s after the first time, want 30s", got)
		}
	})
}

func TestStatusIsPostedEveryFiveMinutesUnlessItChanges(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		heartbeat := func() time.Time { return b.node().Status.Conditions[0].LastHeartbeatTime.Time }
		first := heartbeat()
		b.pass(4 * time.Minute)
		if got := heartbeat(); !got.Equal(first) {
			t.Errorf("an unchanged status was posted after %s", got.Sub(first))
		}
		b.pass(2 * time.Minute)
		if got := heartbeat().Sub(first); got < 5*time.Minute || got > 5*time.Minute+11*time.Second {
			t.Errorf("an unchanged status was posted after %s, want 5 minutes", got)
		}
		n := b.node()
		n.Status.Conditions[0].Status = corev1.ConditionUnknown // the node lifecycle controller's word
		_, err := b.client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		b.must(err)
		b.pass(10 * time.Second)
		if !nodeReady(b.node()) {
			t.Error("the kubelet does not contradict the node lifecycle controller")
		}
	})
}

func TestCrashEndsEverythingAtOnce(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.k.Crash()
		before := b.renewed()
		b.client.ClearActions()
		b.forceDeletePod("db")
		b.pass(10 * time.Minute)
		b.wantOpen("db") // DRBD's end is the caller's
		b.wantInUse("db")
		if !b.renewed().Equal(before) || b.k.On() || b.k.BootID() != "" {
			t.Error("the node goes on")
		}
	})
}

func TestBootRestartsPodsThatAreStillBound(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.runPod("gone", nil)
		b.createPod("going", "", nil)
		b.pass(time.Second)
		old, bootID := b.pod("db").Status.ContainerStatuses[0], b.k.BootID()
		b.k.Crash()
		b.storage.set(func(s *fakeStorage) { clear(s.open) })
		b.forceDeletePod("gone")
		b.deletePod("going", 30)
		b.pass(time.Minute)
		b.k.Boot()
		b.pass(2 * time.Second)
		b.wantReady("db", true)
		b.wantOpen("db")
		b.wantInUse("db")
		if b.pod("going") != nil {
			t.Error("the pod that was being deleted is still there")
		}
		now := b.pod("db").Status.ContainerStatuses[0]
		if now.RestartCount != 1 || !now.State.Running.StartedAt.After(old.State.Running.StartedAt.Time) {
			t.Errorf("container after the reboot: %+v", now)
		}
		if id := b.node().Status.NodeInfo.BootID; id == bootID || id != b.k.BootID() {
			t.Errorf("boot ID %q, was %q before", id, bootID)
		}
	})
}

func TestPartitionedNodeRunsOnAndCatchesUp(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		b.runPod("db", nil)
		b.runPod("stays", nil)
		before := b.renewed()
		b.k.PartitionAPI()
		b.forceDeletePod("db")
		b.pass(5 * time.Minute)
		b.wantOpen("db", "stays")
		if !b.renewed().Equal(before) {
			t.Error("the Lease was renewed through the partition")
		}
		b.k.HealAPI()
		b.pass(10 * time.Second)
		b.wantOpen("stays")
		b.wantInUse("stays")
		b.wantReady("stays", true)
		if !b.renewed().After(before) {
			t.Error("the Lease is not renewed after the partition")
		}
	})
}

// A Lease that could not be renewed is read again before the next try: the API refuses one without its version.
func TestALeaseThatCouldNotBeRenewedIsReadAgain(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		leases := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		b.k.PartitionAPI()
		b.pass(30 * time.Second)
		b.behindGate(func() {
			lease, err := leases.Get(b.Context(), node, metav1.GetOptions{})
			b.must(err)
			lease.Labels = map[string]string{"of": "somebody"}
			_, err = leases.Update(b.Context(), lease, metav1.UpdateOptions{})
			b.must(err)
		})
		b.k.HealAPI()
		b.pass(30 * time.Second)
		b.behindGate(func() {
			lease, err := leases.Get(b.Context(), node, metav1.GetOptions{})
			b.must(err)
			if lease.Labels["of"] != "somebody" {
				t.Errorf("the Lease was replaced by one that nobody had read: %+v", lease.ObjectMeta)
			}
		})
	})
}
