package virtual_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// inPlannedCluster is inCluster with nodes that have labels and conditions, and a volume whose PersistentVolume allows only the nodes
// with a disk: node-a alone.
func inPlannedCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		const rate = 100 * 1024
		c := &cluster{t, virtual.New(ctx, virtual.Options{Placed: true, DRBD: drbd.Options{SyncRate: rate}}), ctx}
		defer func() {
			cancel()
			c.Stop()
		}()
		for _, node := range []string{"node-a", "node-b", "node-t"} {
			c.must(c.AddNode(ctx, node))
		}
		c.must(c.AddVolume(ctx, virtual.Volume{Name: "db", Diskful: []string{"node-a"}, Pinned: true}))
		c.AddWorkload(virtual.Workload{Name: "db-0", Claims: []string{"data-db"}, Nodes: []string{"node-a", "node-b"}})
		c.pass(2 * time.Minute)
		if !c.runs("node-a") {
			t.Fatal("the workload does not run")
		}
		test(c)
	})
}

// pv is the PersistentVolume, and what it allows.
func (c *cluster) pv() (*corev1.PersistentVolume, string) {
	var pv corev1.PersistentVolume
	c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: "db"}, &pv))
	return &pv, strings.Join(pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values, " ")
}

func (c *cluster) ready(node string) corev1.ConditionStatus {
	var object corev1.Node
	c.must(c.Client().Get(c.ctx, client.ObjectKey{Name: node}, &object))
	for _, condition := range object.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// drained waits for a drain for so long.
func (c *cluster) drained(d *virtual.Drain, within time.Duration) {
	c.Helper()
	c.pass(within)
	if done, err := d.Done(); !done || err != nil {
		c.Errorf("the drain is over: %t, with %v", done, err)
	}
}

func TestANodeIsReadyUntilItsKubeletIsSilent(t *testing.T) {
	inPlannedCluster(t, func(c *cluster) {
		if got := c.ready("node-a"); got != corev1.ConditionTrue {
			t.Errorf("node-a, which runs, is Ready=%s", got)
		}
		c.Crash("node-a")
		c.pass(time.Minute)
		if got := c.ready("node-a"); got != corev1.ConditionUnknown {
			t.Errorf("dead for a minute, it is Ready=%s", got)
		}
		c.Return("node-a")
		c.pass(time.Minute)
		if got := c.ready("node-a"); got != corev1.ConditionTrue {
			t.Errorf("back for a minute, it is Ready=%s", got)
		}
	})
}

func TestADrainedPodIsPendingWhileItsVolumeAllowsNoOtherNode(t *testing.T) {
	inPlannedCluster(t, func(c *cluster) {
		first := c.pod()
		c.drained(c.Drain(c.ctx, "node-a"), 15*time.Second)
		c.pass(time.Hour)
		if pod := c.pod(); pod.UID == first.UID || pod.Spec.NodeName != "" {
			t.Errorf("the pod is %s on %q, want another one that waits", pod.UID, pod.Spec.NodeName)
		}
		c.must(c.Cordon(c.ctx, "node-a", false))
		c.pass(20 * time.Second)
		if !c.runs("node-a") {
			t.Errorf("pod: %+v", c.pod())
		}
	})
}

func TestADrain(t *testing.T) {
	t.Parallel()
	t.Run("tries again what a disruption budget refuses", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			first := c.pod()
			var allowed atomic.Bool
			c.API.Fail(func(r apimodel.Request) error {
				if r.Eviction && !allowed.Load() {
					return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
				}
				return nil
			})
			d := c.Drain(c.ctx, "node-a")
			c.pass(time.Minute)
			if done, _ := d.Done(); done || c.pod().UID != first.UID {
				t.Error("the pod was evicted against its budget")
			}
			allowed.Store(true)
			c.drained(d, 20*time.Second)
		})
	})
	t.Run("ends with any other failure", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.API.Fail(func(r apimodel.Request) error {
				if r.Eviction {
					return apierrors.NewInternalError(context.DeadlineExceeded) // as with two budgets
				}
				return nil
			})
			d := c.Drain(c.ctx, "node-a")
			c.pass(time.Second)
			if done, err := d.Done(); !done || !apierrors.IsInternalError(err) {
				t.Errorf("the drain is over: %t, with %v", done, err)
			}
		})
	})
	t.Run("leaves the pods of DaemonSets", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.AddWorkload(virtual.Workload{Name: "agent", Owner: "DaemonSet", Nodes: []string{"node-a"}, Tolerant: true})
			c.pass(20 * time.Second)
			var before, after corev1.Pod
			key := client.ObjectKey{Namespace: "default", Name: "agent"}
			c.must(c.Client().Get(c.ctx, key, &before))
			c.drained(c.Drain(c.ctx, "node-a"), 20*time.Second)
			c.must(c.Client().Get(c.ctx, key, &after))
			if before.UID != after.UID || after.Spec.NodeName != "node-a" {
				t.Errorf("the agent is %s on %q", after.UID, after.Spec.NodeName)
			}
		})
	})
}

func TestAnAffinityController(t *testing.T) {
	t.Parallel()
	t.Run("replaces a PersistentVolume that allows other nodes than those with a disk, even one that still syncs", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.SetAffinityController(c.ctx, true)
			before, allows := c.pv()
			c.pass(time.Minute)
			if same, _ := c.pv(); same.UID != before.UID || allows != "node-a" {
				t.Errorf("a volume that is right was replaced; it allows %s", allows)
			}
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-b"}))
			c.pass(16 * time.Second)
			after, allows := c.pv()
			if after.UID == before.UID || allows != "node-a node-b" || after.Spec.ClaimRef.UID != before.Spec.ClaimRef.UID {
				t.Errorf("the volume is %s for the claim %s, it allows %s", after.UID, after.Spec.ClaimRef.UID, allows)
			}
			if !c.runs("node-a") {
				t.Error("the pod that uses it does not run any more")
			}
		})
	})
	t.Run("leaves one alone that is younger than a minute", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-b"}))
			c.SetAffinityController(c.ctx, true)
			c.pass(16 * time.Second)
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-t"}))
			c.pass(55 * time.Second)
			if _, allows := c.pv(); allows != "node-a node-b" {
				t.Errorf("within its first minute it allows %s", allows)
			}
			c.pass(25 * time.Second)
			if _, allows := c.pv(); allows != "node-a node-b node-t" {
				t.Errorf("then it allows %s", allows)
			}
		})
	})
	t.Run("counts a disk that is to leave", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.Linstor.SetResourceFlags("pvc-db", "node-a", "EVACUATE")
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-b"}))
			c.SetAffinityController(c.ctx, true)
			c.pass(16 * time.Second)
			if _, allows := c.pv(); allows != "node-a node-b" {
				t.Errorf("it allows %s", allows)
			}
		})
	})
	t.Run("does nothing once it is stopped", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.SetAffinityController(c.ctx, true)
			c.SetAffinityController(c.ctx, false)
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-b"}))
			c.pass(time.Hour)
			if _, allows := c.pv(); allows != "node-a" {
				t.Errorf("it allows %s", allows)
			}
		})
	})
	t.Run("lets a drained pod go where its copy is", func(t *testing.T) {
		inPlannedCluster(t, func(c *cluster) {
			c.SetAffinityController(c.ctx, true)
			c.must(c.Linstor.AddReplica("pvc-db", drbd.ReplicaSpec{Node: "node-b"}))
			c.pass(16 * time.Second)
			c.drained(c.Drain(c.ctx, "node-a"), 20*time.Second)
			c.pass(15 * time.Second)
			if !c.runs("node-b") {
				t.Errorf("pod: %+v", c.pod())
			}
		})
	})
}

func TestNodesHaveNeitherLabelsNorConditionsUnlessAskedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var nodes corev1.NodeList
		c.must(c.Client().List(c.ctx, &nodes))
		if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Labels) > 0 || len(n.Status.Conditions) > 0 }) {
			t.Errorf("nodes: %+v", nodes.Items)
		}
	})
}
