package check

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// storagePod is a pod of Piraeus on node A.
func storagePod(tolerations ...corev1.Toleration) func(*bench) {
	return func(b *bench) {
		b.taint(nodeA, evacuation.TaintKey)
		b.pod("piraeus", "csi-node-1", nodeA, func(pod *corev1.Pod) {
			pod.Labels, pod.Spec.Tolerations = map[string]string{cluster.ComponentLabel: "linstor-csi-node"}, tolerations
		})
	}
}

// condition gives a node a condition.
func (b *bench) condition(name string, c corev1.NodeCondition) {
	b.Helper()
	var node corev1.Node
	b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: name}, &node))
	node.Status.Conditions = append(node.Status.Conditions, c)
	b.must(b.Client().Status().Update(b.ctx, &node))
}

// young has all PersistentVolumes made a moment ago.
func (b *bench) young() {
	b.Helper()
	var volumes corev1.PersistentVolumeList
	b.must(b.Client().List(b.ctx, &volumes))
	for i := range volumes.Items {
		volumes.Items[i].CreationTimestamp = metav1.Now()
		b.must(b.Client().Update(b.ctx, &volumes.Items[i]))
	}
}

// marked is that the volume has the mark of an evacuation for nodes.
func marked(nodes string) func(*bench) {
	return func(b *bench) {
		b.Helper()
		var system corev1.Namespace
		b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
		var entries []string
		for node := range strings.SplitSeq(nodes, ",") {
			entries = append(entries, evacuation.Entry(node, string(system.UID)))
		}
		b.Linstor.SetDefinitionProperty("pvc-db", evacuation.PropMark, strings.Join(entries, ","))
		b.Linstor.SetDefinitionProperty("pvc-db", evacuation.PropBalance, "false")
	}
}

// evacuationComplaints are what is said of nodes that are evacuated, or were.
func evacuationComplaints() map[string]complaint {
	return map[string]complaint{
		"a node is evacuated": {
			provoke: func(b *bench) {
				other(virtual.Volume{Diskful: []string{nodeA}}, nil)(b)
				b.condition(nodeA, corev1.NodeCondition{
					Type: evacuation.StorageSafe, Status: corev1.ConditionFalse, Reason: "Copying", Message: "0 of 2",
				})
				b.taint(nodeA, evacuation.TaintKey)
			}, status: StatusUnprotected,
			says: []string{
				"EVACUATED NODE TAINT UNSAFE VOLUMES", "node-a - 2", "node-a piraeus.io/StorageSafe: False Copying: 0 of 2",
				"pvc-other: Copying: a copy is to be made",
			},
			silent: []string{"TaintNotTolerated", "FlaggedWithoutTaint"},
		},
		"a volume that is attached to a node that is evacuated was made a moment ago": {
			provoke: func(b *bench) {
				b.young()
				b.taint(nodeA, evacuation.TaintKey)
			}, status: StatusProtected,
			says: []string{"EVACUATED NODE TAINT UNSAFE VOLUMES", "node-a -"},
		},
		"a pod of Piraeus does not tolerate the taint": {
			provoke: storagePod(), status: StatusProtected,
			says: []string{"WARNING TaintNotTolerated", "piraeus/csi-node-1 on node-a", "Remedy: let them tolerate it"},
		},
		"a pod of Piraeus tolerates the taint": {
			provoke: storagePod(corev1.Toleration{Operator: corev1.TolerationOpExists}), status: StatusProtected,
			says: []string{"EVACUATED NODE"}, silent: []string{"TaintNotTolerated"},
		},
		"a node has the flag without the taint": {
			provoke: func(b *bench) { b.Linstor.SetNodeFlags(nodeT, "EVACUATE"); b.pass(10 * time.Second) }, status: StatusProtected,
			says: []string{"WARNING FlaggedWithoutTaint", "node-t", "linstor node restore node-t"}, silent: []string{"EVACUATED NODE"},
		},
		"a resource definition has a mark for a node that is not evacuated": {
			provoke: marked(nodeA), status: StatusProtected,
			says: []string{
				"WARNING LeftoverMark", "- pvc-db: node-a", "linstor resource-definition set-property pvc-db Aux/piraeus.io/evacuation",
				"linstor resource-definition set-property pvc-db BalanceResourcesEnabled",
			},
		},
		"a resource definition has a mark for a node that is not evacuated, and for one that is": {
			provoke: func(b *bench) {
				b.taint(nodeA, evacuation.TaintKey)
				marked(nodeA + "," + nodeB)(b)
			}, status: StatusProtected,
			says: []string{"WARNING LeftoverMark", "- pvc-db: node-b"}, silent: []string{"pvc-db: node-a"},
		},
		"a resource definition has a mark for a node that is evacuated": {
			provoke: func(b *bench) {
				b.taint(nodeA, evacuation.TaintKey)
				marked(nodeA)(b)
			}, status: StatusProtected, silent: []string{"LeftoverMark"},
		},
		"a resource definition has a mark for a node that returns": {
			provoke: func(b *bench) {
				b.condition(nodeA, corev1.NodeCondition{Type: evacuation.StorageSafe, Status: corev1.ConditionUnknown, Reason: "SatelliteOffline"})
				marked(nodeA)(b)
			}, status: StatusProtected, silent: []string{"LeftoverMark"},
		},
		"LINSTOR may still move a volume": {
			provoke: func(b *bench) { b.must(b.Linstor.SetResourceProperty("pvc-db", nodeB, "MigrateFrom", nodeB)) }, status: StatusProtected,
			says: []string{"WARNING UnfinishedMove", "pvc-db: node-b", "restart the LINSTOR controller"},
		},
	}
}
