package virtual_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The tests hold the cluster against what was measured on a real control plane without any fail-over controller.

type cluster struct {
	*testing.T
	*virtual.Cluster
	ctx context.Context //nolint:containedctx // of the bubble
}

// inCluster runs a test with three nodes, a volume and a workload that has run on node-a for a minute.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &cluster{t, virtual.New(ctx, virtual.Options{}), ctx}
		defer func() {
			cancel()
			c.Stop()
		}()
		for _, node := range []string{"node-a", "node-b", "node-t"} {
			c.must(c.AddNode(ctx, node))
		}
		c.must(c.AddVolume(ctx, virtual.Volume{Name: "db", Diskful: []string{"node-a", "node-b"}, TieBreaker: "node-t"}))
		c.AddWorkload(virtual.Workload{Name: "db-0", Claims: []string{"data-db"}, Nodes: []string{"node-a", "node-b"}})
		c.pass(time.Minute)
		if !c.runs("node-a") {
			t.Fatal("the workload does not run")
		}
		test(c)
	})
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *cluster) pod() *corev1.Pod {
	var pod corev1.Pod
	c.must(c.Client().Get(c.ctx, client.ObjectKey{Namespace: "default", Name: "db-0"}, &pod))
	return &pod
}

func (c *cluster) runs(node string) bool {
	pod := c.pod()
	replica, _ := c.DRBD.Replica("pvc-db", node)
	return pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning && replica.Role == drbd.Primary
}

func (c *cluster) remove(grace int64) {
	c.must(c.Client().Delete(c.ctx, c.pod(), client.GracePeriodSeconds(grace)))
}

func TestADeletedPodIsStoppedAndStartedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.pod()
		c.remove(10)
		c.pass(10 * time.Second)
		if !c.runs("node-a") || c.pod().UID == first.UID {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func TestAStatefulPodIsNeverReplacedOnADeadNode(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.pod()
		c.Crash("node-a")
		c.pass(30 * time.Minute)
		if got := c.pod(); got.UID != first.UID {
			t.Error("the pod was replaced")
		}
		var node corev1.Node
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-a"}, &node))
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }) {
			t.Error("the dead node is not tainted")
		}
	})
}

func TestAForcedDeletionAloneTakesSixMinutes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Crash("node-a")
		c.pass(time.Minute) // until the scheduler knows that the node is dead
		c.remove(0)
		c.pass(5*time.Minute + 55*time.Second)
		if c.runs("node-b") {
			t.Error("the volume was detached too early")
		}
		c.pass(15 * time.Second)
		if !c.runs("node-b") {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func TestReleasingTheVolumeOfADeletedPodDetachesItAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Crash("node-a")
		c.pass(time.Minute)
		c.remove(0)
		var node corev1.Node
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-a"}, &node))
		node.Status.VolumesInUse = nil
		c.must(c.Client().Status().Update(c.ctx, &node))
		c.pass(3 * time.Second)
		if !c.runs("node-b") {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func TestALivingKubeletWritesItsVolumesBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var node corev1.Node
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-a"}, &node))
		node.Status.VolumesInUse = nil
		c.must(c.Client().Status().Update(c.ctx, &node))
		c.pass(11 * time.Second)
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-a"}, &node))
		if len(node.Status.VolumesInUse) != 1 {
			t.Errorf("volumes in use: %v", node.Status.VolumesInUse)
		}
	})
}

func TestAProcessWhoseIOHangsDoesNotStop(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.DRBD.Isolate("node-a")
		c.pass(time.Minute)
		c.remove(10)
		c.pass(5 * time.Minute)
		if c.pod().DeletionTimestamp == nil {
			t.Fatal("the pod was replaced")
		}
		c.DRBD.Rejoin("node-a")
		c.pass(20 * time.Second)
		if !c.runs("node-a") {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func TestANodeThatReturnsStartsItsPodsAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		first := c.pod()
		c.Crash("node-a")
		c.pass(30 * time.Second)
		c.Return("node-a")
		c.pass(time.Minute)
		if got := c.pod(); got.UID != first.UID || !c.runs("node-a") || got.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("pod: %+v", got)
		}
	})
}

func TestAPodStartsOnlyWhenItsNodeReportsTheVolumeInUse(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.SetStatus("node-b", time.Minute)
		c.Crash("node-a")
		c.pass(time.Minute + time.Second) // the next status of node-b comes in 59 s
		c.remove(0)
		var node corev1.Node
		c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "node-a"}, &node))
		node.Status.VolumesInUse = nil
		c.must(c.Client().Status().Update(c.ctx, &node))
		c.pass(30 * time.Second)
		if c.runs("node-b") {
			t.Error("the pod runs before its node reports the volume in use")
		}
		c.pass(35 * time.Second)
		if !c.runs("node-b") || len(c.inUse("node-b")) != 1 {
			t.Errorf("in use: %v, pod: %+v", c.inUse("node-b"), c.pod())
		}
	})
}

func TestAKubeletThatWasStartedAgainUnmountsBeforeItStops(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Change(client.ObjectKeyFromObject(c.pod()), func(w *virtual.Workload) { w.StopTime = time.Minute })
		c.SilenceKubelet("node-a")
		c.pass(time.Minute) // until the scheduler knows that the node is silent
		c.remove(0)
		c.RestartKubelet("node-a")
		c.pass(5 * time.Second)
		if replica, _ := c.DRBD.Replica("pvc-db", "node-a"); len(c.inUse("node-a")) != 0 || replica.Open != 1 {
			t.Errorf("in use: %v, open: %d; want the volume unmounted and still open", c.inUse("node-a"), replica.Open)
		}
	})
}

func TestAContainerHasTwoSecondsToStop(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Change(client.ObjectKeyFromObject(c.pod()), func(w *virtual.Workload) { w.StopTime = time.Minute })
		open := func() int {
			replica, _ := c.DRBD.Replica("pvc-db", "node-a")
			return replica.Open
		}
		c.remove(1)
		c.pass(1500 * time.Millisecond)
		if open() != 1 {
			t.Error("the containers were killed after a second")
		}
		c.pass(time.Second)
		if open() != 0 {
			t.Error("the containers still run")
		}
	})
}

func TestAPodWaitsForTheDriverOfANodeThatBoots(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.Crash("node-a")
		c.pass(time.Minute)
		c.Return("node-a")
		c.pass(3 * time.Second)
		if replica, _ := c.DRBD.Replica("pvc-db", "node-a"); replica.Open != 0 {
			t.Error("the volume is mounted without a driver")
		}
		c.pass(10 * time.Second)
		if !c.runs("node-a") {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func (c *cluster) inUse(node string) []corev1.UniqueVolumeName {
	var n corev1.Node
	c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: node}, &n))
	return n.Status.VolumesInUse
}
