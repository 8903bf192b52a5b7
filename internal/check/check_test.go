package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// other is a second workload with what makes it differ from a protected one.
func other(volume virtual.Volume, change func(*virtual.Workload)) func(*bench) {
	return func(b *bench) {
		volume.Name = "other"
		b.volume(volume)
		w := virtual.Workload{Name: "other-0", Claims: []string{"data-other"}}
		if change != nil {
			change(&w)
		}
		b.workload(w)
		b.pass(time.Minute)
	}
}

func property(key, value string) func(*bench) {
	return func(b *bench) { b.Linstor.SetControllerProperty(key, value) }
}

// complaint is something that is wrong with a cluster, and what the check says of it.
type complaint struct {
	// config changes what the replica is started with.
	config  func(*bench)
	provoke func(*bench)
	args    []string
	status  Status
	says    []string // each on the screen, in this order
	silent  []string // nowhere on the screen
}

// crashTwoOfFive adds two nodes, which crash.
func (b *bench) crashTwoOfFive() {
	for _, node := range []string{"node-d", "node-e"} {
		b.must(b.AddNode(b.ctx, node))
	}
	b.pass(time.Minute)
	b.Crash("node-d")
	b.Crash("node-e")
}

func complaints() map[string]complaint {
	hostPath := []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}}}}
	all := map[string]complaint{
		"nothing is wrong": {
			provoke: func(*bench) {}, status: StatusProtected,
			says:   []string{"default/db-0", "pvc-db", "node-a", "2+1", "majority", "PrimaryHealthy", "Protected 5s", "Every selected pod would survive"},
			silent: []string{"ERROR", "WARNING", "INFO", "Remedy"},
		},
		"no pod is selected": {
			config: selectsNone, provoke: func(*bench) {}, status: StatusUnprotected,
			says: []string{"WARNING NothingSelected", "- default/db-0 on node-a", `No pod selected by "app=none"`, "nothing is moved"}, silent: []string{"REPLICAS", "kubectl label"},
		},
		"the namespace has none": {
			provoke: func(*bench) {}, args: []string{"-n", "empty"}, status: StatusProtected,
			says: []string{"in namespace empty", "nothing to protect"},
		},
		"the namespace has no pod at all": {
			provoke: func(*bench) {}, args: []string{"-n", "missing"}, status: StatusUnknown,
			says: []string{"No pod is in namespace missing, if there is such a namespace: the controller may not read namespaces."},
		},
		"quorum is off": {
			provoke: other(virtual.Volume{Quorum: "off"}, nil), status: StatusUnprotected,
			says: []string{
				"other-0", "off", "Unprotected", "NoQuorum", "ERROR NoQuorum", "pod default/other-0, resource pvc-other, if node-a were lost: ",
				"Remedy: for good, while all its nodes are ONLINE: linstor resource-definition set-property pvc-other DrbdOptions/Resource/quorum majority",
				"1 protected, 1 not",
			},
		},
		"a node may still run what LINSTOR no longer shows": {
			provoke: func(b *bench) {
				other(virtual.Volume{}, nil)(b)
				b.remember("pvc-other", nodeA)
				b.restart()
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{
				"other-0", "majority", "Unprotected", "QuorumUnconfirmed",
				"ERROR QuorumUnconfirmed",
				"- pvc-other: not moved, because it has not been known since 1999-12-31T03:04:05Z that node-a runs quorum majority: restart linstor-satellite on node-a",
				"Remedy: restart linstor-satellite on the node", "1 protected, 1 not",
			},
		},
		"a node that may run something else is away": {
			provoke: func(b *bench) {
				b.remember("pvc-db", nodeA)
				b.restart()
				b.pass(time.Minute)
				b.Crash(nodeA)
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{"ERROR QuorumUnconfirmed", "- pvc-db: not moved, because it has not been known since 1999-12-31T03:04:05Z that node-a runs quorum majority: bring node-a back"},
		},
		"quorum is set on the controller": {
			provoke: property(linstorsim.PropQuorum, "majority"), status: StatusProtected,
			says: []string{
				"WARNING QuorumOnController: DrbdOptions/Resource/quorum is majority on the LINSTOR controller", "satellites are not told",
				"Remedy: while all nodes are ONLINE: linstor resource-group set-property GROUP DrbdOptions/Resource/quorum majority", "restart linstor-satellite",
			},
		},
		"another node could write without a majority": {
			provoke: func(b *bench) {
				other(virtual.Volume{Diskful: []string{nodeA, nodeB}, Quorum: "off"}, nil)(b)
				b.Crash(nodeA)
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{"ERROR WithoutQuorum: these replicas reach no majority, and DRBD would promote them all the same", "- pvc-other on node-b", "Remedy: restart linstor-satellite"}, silent: []string{"pvc-db on node-b"},
		},
		"there is one replica": {
			provoke: other(virtual.Volume{Diskful: []string{nodeA}}, nil), status: StatusUnprotected,
			says: []string{
				"other-0", "1+0", "NoSurvivor", "ERROR NoSurvivor", "- pod default/other-0, resource pvc-other, if node-a were lost",
				"ERROR TooFewReplicas", "- pvc-other", "--place-count 2 pvc-other",
			},
		},
		"there is no tie-breaker": {
			provoke: other(virtual.Volume{Diskful: []string{nodeA, nodeB}, Quorum: "majority"}, nil), status: StatusUnprotected,
			says: []string{"other-0", "2+0", "NoSurvivor", "ERROR NoSurvivor", "ERROR NoTieBreaker", "- pvc-other", "set-property pvc-other DrbdOptions/auto-add-quorum-tiebreaker"},
		},
		"the other disk's node is away": {
			provoke: func(b *bench) { b.Crash(nodeB); b.pass(3 * time.Minute) }, status: StatusUnprotected,
			says: []string{
				"2+1 (1 offline)", "NoSurvivor", "ERROR NoSurvivor: works now, and would not be moved if its node were lost next",
				"if node-a were lost: no other node could take over: node-b is not ONLINE in LINSTOR", "linstor node list",
				"No selected pod is stuck now; 1 pod is well, and would not be moved after the next loss, that of node-a: 0 protected, 1 not",
			},
		},
		"a volume is not safe": {
			provoke: other(virtual.Volume{}, func(w *virtual.Workload) { w.Volumes = hostPath }), status: StatusUnprotected,
			says: []string{"UnsafeVolume", "ERROR UnsafeVolume", `"scratch"`, "--fail-over-unsafe-pods"},
		},
		"a volume is not safe and the controller may": {
			config:  func(b *bench) { b.config.Settings.RemoveUnsafePods = true },
			provoke: other(virtual.Volume{}, func(w *virtual.Workload) { w.Volumes = hostPath }), status: StatusProtected, says: []string{"2 protected, 0 not"},
		},
		"a pod has no owner": {
			provoke: other(virtual.Volume{}, func(w *virtual.Workload) { w.Owner = "None" }), status: StatusUnprotected,
			says: []string{"ERROR NoOwner", "pod default/other-0", "let a StatefulSet"},
		},
		"a pod is exempt": {
			provoke: other(virtual.Volume{}, func(w *virtual.Workload) {
				w.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
			}), status: StatusUnprotected, says: []string{"ERROR Exempt", cluster.AnnotationIgnore},
		},
		"a pod that is not selected shares the volume": {
			provoke: func(b *bench) {
				b.workload(virtual.Workload{Name: "guest-0", Claims: []string{"data-db"}, Labels: map[string]string{"app": "guest"}})
				b.pass(time.Minute)
			}, status: StatusUnprotected, says: []string{"ERROR SharedVolume", "guest-0", "select the other pod too"},
		},
		"a selected pod has no volume of ours": {
			provoke: func(b *bench) { b.workload(virtual.Workload{Name: "idle-0"}); b.pass(time.Minute) }, status: StatusProtected,
			says: []string{"INFO NoVolume", "- default/idle-0", "remove the label"},
		},
		"a pod has not been scheduled": {
			provoke: func(b *bench) {
				b.volume(virtual.Volume{Name: "other"})
				b.workload(virtual.Workload{Name: "other-0", Claims: []string{"data-other"}, Nodes: []string{"none"}})
				b.pass(time.Minute)
			}, status: StatusProtected, says: []string{"other-0", "Starting", "VolumeStarting", "1 starting"},
		},
		"no other node takes pods": {
			provoke: func(b *bench) { b.cordon(nodeB); b.taint(nodeT, "dedicated") }, status: StatusUnprotected,
			says: []string{
				"NoReadyNode", "ERROR NoReadyNode", "default/db-0", "1 because it is cordoned, 1 because the pod does not tolerate its taint dedicated",
				"Remedy: uncordon nodes", "0 protected, 1 not",
			},
		},
		"one other node takes pods": {
			provoke: func(b *bench) { b.cordon(nodeB) }, status: StatusProtected, says: []string{"Protected 5s"}, silent: []string{"NoReadyNode"},
		},
		"the volume's node affinity leaves no other node": {
			provoke: func(b *bench) {
				var pv corev1.PersistentVolume
				b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: "db"}, &pv))
				pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
				}}}}
				b.must(b.Client().Update(b.ctx, &pv))
			}, status: StatusUnprotected,
			says: []string{"ERROR NoReadyNode", "2 because the node affinity of volume db rules it out"},
		},
		"LINSTOR places nothing on the only node that takes pods": {
			provoke: func(b *bench) {
				b.must(b.AddNode(b.ctx, "node-d"))
				b.must(b.Linstor.SetNodeProperty("node-d", linstorsim.PropAutoplaceTarget, "False"))
				b.cordon(nodeB)
				b.cordon(nodeT)
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{"ERROR NoReadyNode", "2 because it is cordoned, 1 because LINSTOR has no replica of volume db there and places none"},
		},
		"a claim is not bound": {
			provoke: func(b *bench) {
				b.workload(virtual.Workload{Name: "other-0", Claims: []string{"data-none"}})
				b.pass(time.Minute)
			}, args: []string{"-o", "yaml"}, status: StatusProtected, says: []string{"claim: data-none", "the claim is not bound to a volume"},
		},
		"four disks need no tie-breaker": {
			provoke: func(b *bench) {
				b.must(b.AddNode(b.ctx, "node-d"))
				other(virtual.Volume{Diskful: []string{nodeA, nodeB, nodeT, "node-d"}}, nil)(b)
			}, status: StatusProtected, says: []string{"4+0", "2 protected, 0 not"}, silent: []string{"NoTieBreaker"},
		},
		"the controller was installed a moment ago": {
			provoke: func(b *bench) { b.restart(); b.pass(2 * time.Second) }, status: StatusUnprotected,
			says:   []string{"ERROR QuorumUnconfirmed: works now", "started 2s ago", "Remedy: wait, and check again"},
			silent: []string{"restart linstor-satellite"},
		},
		"a node was lost right after the controller was installed": {
			provoke: func(b *bench) { b.restart(); b.pass(5 * time.Second); b.Crash(nodeA); b.pass(2 * time.Minute) }, status: StatusUnprotected,
			says:   []string{"bring node-a back", "1 pod is stuck now"},
			silent: []string{"is being moved", "Remedy: wait"},
		},
		"a node was lost when the controller had run for a while": {
			provoke: func(b *bench) { b.restart(); b.pass(time.Minute); b.Crash(nodeA); b.pass(10 * time.Second) }, status: StatusUnprotected,
			says: []string{"being moved"}, silent: []string{"QuorumUnconfirmed"},
		},
		"a node is lost at this moment": {
			config: slow, provoke: func(b *bench) { b.Crash(nodeA); b.pass(time.Minute) }, status: StatusUnprotected,
			says: []string{
				"default/db-0", "Unreachable", "Failing", "NodeUnreachable",
				"ERROR NodeUnreachable: the storage is lost on the pod's node now, and the pod is being moved",
				"- pod default/db-0, resource pvc-db on node-a: ", "the pod is moved once that has lasted for ",
				"Remedy: nothing for the pod", "kubectl describe pod -n default db-0", "No selected pod is stuck now; 1 pod is being moved: 0 protected, 1 not",
			}, silent: []string{"next loss"},
		},
		"a node is lost, and nobody can take over": {
			provoke: func(b *bench) { b.Crash(nodeB); b.pass(time.Minute); b.Crash(nodeA); b.pass(time.Minute) }, status: StatusUnprotected,
			says: []string{
				"Unprotected, stuck", "ERROR NoSurvivor: stuck now: the storage is lost on the pod's node, and the pod is not moved",
				"- pod default/db-0, resource pvc-db on node-a: ", "1 pod is stuck now, because the storage is lost on node-a: 0 protected, 1 not",
			}, silent: []string{"next", "were lost"},
		},
		"only the satellite of the pod's node is silent": {
			provoke: func(b *bench) { b.Crash(nodeB); b.pass(time.Minute); b.Linstor.StopSatellite(nodeA) }, status: StatusUnprotected,
			says: []string{"No selected pod is stuck now; 1 pod is well, and would not be moved after the next loss"}, silent: []string{", stuck"},
		},
		"DRBD options leave a node stuck": {
			provoke: func(b *bench) {
				property(linstor.OptionOnSuspendedPrimaryOutdated, "")(b)
				property(linstor.OptionRRConflict, "disconnect")(b)
			}, status: StatusProtected,
			says: []string{
				"WARNING DRBDOption: DrbdOptions/Resource/on-suspended-primary-outdated is disconnect by default", "- pvc-db",
				"linstor controller set-property DrbdOptions/Resource/on-suspended-primary-outdated force-secondary",
				"WARNING DRBDOption: DrbdOptions/Net/rr-conflict is disconnect for the whole cluster",
				"linstor controller set-property DrbdOptions/Net/rr-conflict retry-connect",
			},
		},
		"DRBD options fail reads and writes": {
			provoke: func(b *bench) {
				property(linstor.OptionOnNoDataAccessible, "io-error")(b)
				b.Linstor.SetDefinitionProperty("pvc-db", linstor.OptionOnNoQuorum, "io-error")
				property(linstor.OptionOnSuspendedPrimaryOutdated, "")(b)
			}, status: StatusProtected,
			says: []string{
				"DrbdOptions/Resource/on-no-quorum is io-error on the resource definitions", "read-only",
				"linstor resource-definition set-property pvc-db DrbdOptions/Resource/on-no-quorum suspend-io",
				"DrbdOptions/Resource/on-no-data-accessible is io-error for the whole cluster",
			},
			silent: []string{"on-suspended-primary-outdated is"}, // nothing suspends
		},
		"DRBD acknowledges writes early": {
			provoke: func(b *bench) { b.Linstor.SetDefinitionProperty("pvc-db", linstor.OptionProtocol, "A") }, status: StatusProtected,
			says: []string{
				"WARNING DRBDOption: DrbdOptions/Net/protocol is A on the resource definitions", "a fail-over may lose it", "- pvc-db",
				"linstor resource-definition set-property pvc-db DrbdOptions/Net/protocol C", "property.linstor.csi.linbit.com/DrbdOptions/Net/protocol: C",
			},
		},
		"LINSTOR evicts nodes": {
			provoke: func(b *bench) { property(linstor.OptionEvict, "True")(b); property(linstor.OptionEvictAfter, "60")(b) }, status: StatusProtected,
			says: []string{"INFO AutoEvict: LINSTOR evicts a node that was OFFLINE for 60 minutes", "a replica fewer", "comes back empty", "linstor controller set-property"},
		},
		"LINSTOR evicts nodes after its default time": {
			provoke: property(linstor.OptionEvict, "true"), status: StatusProtected, says: []string{"INFO AutoEvict", "OFFLINE for its default time"},
		},
		"all replicas run on one node": {
			provoke: func(b *bench) { b.replicas(nodeB, nodeB, nodeB) }, status: StatusProtected,
			says: []string{"WARNING ReplicasOnOneNode: all 3 replicas of the controller run on one node", "- node-b"},
		},
		"the replicas are spread": {
			provoke: func(b *bench) { b.replicas(nodeB, nodeB, nodeT) }, status: StatusProtected, silent: []string{"ReplicasOnOneNode"},
		},
		"a zone has more nodes than may be lost at once": {
			provoke: func(b *bench) { b.zone("east", nodeA, nodeB); b.zone("west", nodeT) }, status: StatusProtected,
			says: []string{"WARNING LostTogether", "--max-lost-nodes=50%", "- east: node-a, node-b"}, silent: []string{"west"},
		},
		"all nodes are in one zone": {
			provoke: func(b *bench) { b.zone("east", nodeA, nodeB, nodeT) }, status: StatusProtected, silent: []string{"LostTogether"},
		},
		"a node had no quorum for a while, and writes have failed": {
			config: slow, provoke: interrupt, status: StatusProtected,
			says: []string{"WARNING StorageInterrupted", "- pod default/db-0, volume db", "Remedy: restart the pod", "kubectl -n default delete pod db-0"},
		},
		"a pod has been replaced since its node had no quorum": {
			config: slow, provoke: func(b *bench) {
				interrupt(b)
				b.must(b.Client().Delete(b.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0"}}))
				b.pass(time.Minute)
			}, status: StatusProtected, silent: []string{"StorageInterrupted"},
		},
		"a volume is in use where no pod uses it": {
			provoke: func(b *bench) {
				b.holdWithoutPod("db", nodeB)
				b.pass(3 * time.Minute)
			}, status: StatusProtected,
			says: []string{
				"ERROR InUseWithoutPod: these volumes are in use on a node where Kubernetes knows no pod", "- volume db on node node-b", "Remedy: look on the node for what holds the volume",
			},
		},
		"a detach waits for the attacher": {
			provoke: func(b *bench) {
				b.StopAttacher()
				b.deleteAttachment("db")
				b.pass(2 * time.Minute)
			}, status: StatusProtected,
			says: []string{"WARNING DetachWaits: Kubernetes has let go of these volumes", "- volume db from node node-a", "Remedy: see to the error"},
		},
		"the pod must stay apart from pods on every other node": {
			provoke: func(b *bench) {
				for _, node := range []string{nodeA, nodeB, nodeT} {
					b.changeNode(node, func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelHostname: node} })
				}
				apart := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}
				b.changePod("db-0", func(pod *corev1.Pod) {
					pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
						RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{apart},
					}}
				})
				for _, node := range []string{nodeB, nodeT} {
					b.pod("default", "x-"+node, node, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "x"} })
				}
			}, status: StatusUnprotected, says: []string{"ERROR NoReadyNode", "2 because the pod's required anti-affinity to other pods"},
		},
		"a permission is missing": {
			provoke: func(b *bench) { b.denied = []string{"patch nodes --subresource=status"} }, status: StatusUnprotected,
			says: []string{"ERROR MissingPermission", "- patch nodes --subresource=status", "deploy/all.yaml", "could not do its work"},
		},
		"nobody tells the permissions": {
			provoke: func(b *bench) { b.unreviewed = errors.New("reviews are forbidden") }, status: StatusProtected,
			says: []string{"INFO PermissionsUnknown: could not tell what the controller may do", "reviews are forbidden"},
		},
		"somebody else has set the taint of lost storage": {
			provoke: func(b *bench) {
				var node corev1.Node
				b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: nodeB}, &node))
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: corev1.TaintEffectNoSchedule})
				b.must(b.Client().Update(b.ctx, &node))
				b.pass(time.Second)
			}, status: StatusProtected,
			says: []string{
				"WARNING ForeignTaint", "- node-b", "Remedy: once the storage of the node is well: kubectl taint node node-b drbd.linbit.com/lost-quorum-",
			},
		},
		"the helper of a selected pod is not selected": {
			provoke: func(b *bench) {
				b.volume(virtual.Volume{Name: "hot"})
				b.workload(virtual.Workload{Name: "hp", HelperOf: "db-0", Claims: []string{"data-hot"}, Labels: map[string]string{"kubevirt.io": "hotplug-disk"}})
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{
				"db-0", "Protected 5s", "hp", "Unprotected", "ERROR HelperNotSelected", "- pod default/hp, resource pvc-hot, if node-a were lost: the pod is a helper of pod db-0",
				"Remedy: select the helper too: kubectl label -n default pod hp linstor.csi.linbit.com/on-storage-lost=remove", "1 protected, 1 not",
			},
		},
		"the helper of a selected pod is selected": {
			provoke: func(b *bench) {
				b.volume(virtual.Volume{Name: "hot"})
				b.workload(virtual.Workload{Name: "hp", HelperOf: "db-0", Claims: []string{"data-hot"}})
				b.pass(time.Minute)
			}, status: StatusProtected, says: []string{"2 protected"}, silent: []string{"HelperNotSelected"},
		},
		"a pod that is not selected has a helper": {
			provoke: func(b *bench) {
				b.volume(virtual.Volume{Name: "hot"})
				b.workload(virtual.Workload{Name: "idle-0", Labels: map[string]string{"app": "idle"}})
				b.workload(virtual.Workload{Name: "hp", HelperOf: "idle-0", Claims: []string{"data-hot"}, Labels: map[string]string{"app": "idle"}})
				b.pass(time.Minute)
			}, status: StatusProtected, says: []string{"1 protected"}, silent: []string{"HelperNotSelected", "hp "},
		},
		"the controller has set the taint of lost storage": {
			provoke: func(b *bench) {
				var node corev1.Node
				b.must(b.Client().Get(b.ctx, client.ObjectKey{Name: nodeB}, &node))
				node.Annotations = map[string]string{cluster.AnnotationKeepAway: "{}"}
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: corev1.TaintEffectNoSchedule})
				b.must(b.Client().Update(b.ctx, &node))
				b.pass(time.Second)
			}, status: StatusProtected, says: []string{"Protected 5s"}, silent: []string{"ForeignTaint"},
		},
		"LINSTOR is away": {
			provoke: func(b *bench) { b.Linstor.Stop(); b.pass(time.Minute) }, status: StatusUnprotected,
			says: []string{"default/db-0", "Unprotected", "LinstorStale", "ERROR LinstorUnreachable", "LS_CONTROLLERS", "ERROR LinstorStale"},
		},
		"LINSTOR has just gone": {
			provoke: func(b *bench) { b.Linstor.Stop() }, status: StatusUnprotected,
			says: []string{"ERROR LinstorUnreachable", "The controller could not do its work, see the findings: 1 protected"},
		},
		"LINSTOR does not know the resource": {
			provoke: func(b *bench) {
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "ghost"}}
				pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: virtual.Driver, VolumeHandle: "ghost"}
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data-ghost"}
				pv.Status.Phase = corev1.VolumeBound
				b.must(b.Client().Create(b.ctx, pv))
				b.workload(virtual.Workload{Name: "ghost-0", Claims: []string{"data-ghost"}})
				b.pass(time.Minute)
			}, status: StatusUnknown, says: []string{"ghost-0", "StateUnknown", "1 protected, 0 not, 1 unknown"},
		},
		"the Kubernetes API refuses": {
			provoke: func(b *bench) { b.api.err = errors.New("pods is forbidden") }, status: StatusUnknown,
			says: []string{"ERROR KubernetesUnreadable", "pods is forbidden", "Could not tell"},
		},
		"the node agents of 1.x run as well": {
			provoke: func(b *bench) { nodeAgent(corev1.ConditionTrue)(b); b.pass(6 * time.Minute) }, status: StatusUnprotected, says: []string{
				"default/db-0", "Unprotected NodeAgentRuns",
				"ERROR NodeAgent: node agents of 1.x run and move pods", "this controller only observes", "- piraeus-datastore/agents",
				"Remedy: delete the agents' DaemonSet",
				"ERROR NodeAgentRuns: works now, and would not be moved", "node agents of 1.x run (DaemonSet piraeus-datastore/agents)",
				"Remedy: delete the agents' DaemonSet",
			},
		},
		"node agents of 1.x are there that do not run": {
			provoke: nodeAgent(corev1.ConditionFalse), status: StatusProtected,
			says:   []string{"WARNING NodeAgent: there are node agents of 1.x; none runs now", "- piraeus-datastore/agents", "delete the agents' DaemonSet"},
			silent: []string{"NodeAgentRuns"},
		},
		"fail-over is paused": {
			provoke: func(b *bench) { b.pauses() },
			status:  StatusUnprotected, says: []string{
				"ERROR Paused",
				"pauses all fail-over",
				"Remedy: end the pause: kubectl -n ha-controller annotate deployment/piraeus-ha-controller drbd.linbit.com/pause-fail-over-",
			},
		},
		"the controller only rehearses": {
			config: func(b *bench) { b.config.DryRun = true }, provoke: func(*bench) {}, status: StatusUnprotected, says: []string{"ERROR DryRun", "would remove pod default/db-0", "remove --dry-run"},
		},
		"most satellites are away": {
			provoke: func(b *bench) {
				for i := range 7 {
					node := fmt.Sprintf("node-%d", i)
					b.Linstor.AddNode(node)
					b.Linstor.StopSatellite(node)
				}
				b.pass(time.Minute)
			}, status: StatusUnprotected, says: []string{"ERROR GuardTripped", "8 of 10 nodes", "--max-lost-nodes"},
		},
		"LINSTOR is blind": {
			provoke: func(b *bench) { b.Linstor.LoseConnector() }, status: StatusUnknown,
			says: []string{
				"default/db-0", "Unknown", "LinstorBlind", "ERROR LinstorBlind", "- node-a", "- node-b", "- node-t",
				"Remedy: restart the LINSTOR controller", "--recover-pod-selector", "Could not tell",
			},
		},
		"LINSTOR has just lost a satellite": {
			provoke: func(b *bench) { b.Linstor.StopSatellite(nodeT) }, status: StatusUnprotected, silent: []string{"LinstorBlind"},
		},
		"LINSTOR has yet to give a satellite up": {
			provoke: func(b *bench) { b.Linstor.CutSatellite(nodeT) }, status: StatusUnprotected, silent: []string{"LinstorBlind"},
		},
		"the loss of one more node would be one too many": {
			provoke: func(b *bench) { b.crashTwoOfFive(); b.pass(time.Minute) }, status: StatusUnprotected,
			says: []string{"default/db-0", "Unprotected", "ERROR GuardTripped", "3 of 5 nodes seem lost at once (node-a, node-d, node-e)"},
		},
		"as many nodes are away, but for long": {
			provoke: func(b *bench) { b.crashTwoOfFive(); b.pass(5 * time.Minute) }, status: StatusProtected,
			says: []string{"default/db-0", "Protected 5s"}, silent: []string{"GuardTripped"},
		},
	}
	maps.Copy(all, attachComplaints())
	maps.Copy(all, evacuationComplaints())
	maps.Copy(all, unselectedComplaints())
	return all
}

// selectsNone starts the replica with a selector that no pod has.
func selectsNone(b *bench) { b.config.Selector = selects("app=none") }

// pauses has fail-over paused.
func (b *bench) pauses() {
	b.Helper()
	var deployment appsv1.Deployment
	b.must(b.Client().Get(b.ctx, client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}, &deployment))
	deployment.Annotations = map[string]string{cluster.AnnotationPause: "true"}
	b.must(b.Client().Update(b.ctx, &deployment))
	b.pass(time.Second)
}

// interrupt takes quorum from the node of the volume "db" for a moment, in which writes fail.
func interrupt(b *bench) {
	b.must(b.DRBD.SetOption("pvc-db", "on-no-quorum", "io-error"))
	b.Linstor.SetDefinitionProperty("pvc-db", linstor.OptionOnNoQuorum, "io-error")
	b.pass(2 * time.Minute)
	b.DRBD.Isolate(nodeA)
	b.pass(30 * time.Second)
	b.DRBD.Rejoin(nodeA)
	b.pass(5 * time.Minute)
}

// deleteAttachment deletes the attachment of a volume to node A, as Kubernetes does.
func (b *bench) deleteAttachment(volume string) {
	b.Helper()
	b.must(b.Client().Delete(b.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume + "-" + nodeA}}))
}

// holdWithoutPod has a volume opened on a node by what is no pod, when its pod is gone and not created again.
func (b *bench) holdWithoutPod(volume, node string) {
	b.Helper()
	b.Change(client.ObjectKey{Namespace: "default", Name: volume + "-0"}, func(w *virtual.Workload) { w.Gone = true })
	b.must(b.Client().Delete(b.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: volume + "-0"}}))
	b.pass(2 * time.Minute)
	b.must(b.DRBD.Open("pvc-"+volume, node, false))
}

// replicas adds the pods of the controller, the first of which is the one that answers.
func (b *bench) replicas(nodes ...string) {
	b.Helper()
	for i, node := range nodes {
		b.pod("ha-controller", fmt.Sprintf("ha-%d", i), node, func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "ha", UID: "set", Controller: new(true)}}
		})
		b.podStatus("ha-controller", fmt.Sprintf("ha-%d", i), func(status *corev1.PodStatus) {
			status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
	}
}

// changePod changes a pod.
func (b *bench) changePod(name string, change func(*corev1.Pod)) {
	b.Helper()
	var pod corev1.Pod
	b.must(b.Client().Get(b.ctx, client.ObjectKey{Namespace: "default", Name: name}, &pod))
	change(&pod)
	b.must(b.Client().Update(b.ctx, &pod))
}

// podStatus changes the status of a pod.
func (b *bench) podStatus(namespace, name string, change func(*corev1.PodStatus)) {
	b.Helper()
	var pod corev1.Pod
	b.must(b.Client().Get(b.ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod))
	change(&pod.Status)
	b.must(b.Client().Status().Update(b.ctx, &pod))
}

// zone puts nodes into a zone.
func (b *bench) zone(name string, nodes ...string) {
	b.Helper()
	for _, node := range nodes {
		b.changeNode(node, func(node *corev1.Node) { node.Labels = map[string]string{corev1.LabelTopologyZone: name} })
	}
}

// nodeAgent adds a node agent of 1.x that is ready or not.
func nodeAgent(ready corev1.ConditionStatus) func(*bench) {
	return func(b *bench) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "piraeus-datastore", Name: "ha-controller-x7k2p", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1", Controller: new(true)}},
		}}
		pod.Spec.NodeName = nodeT
		pod.Spec.Containers = []corev1.Container{{Name: "agent", Image: "registry.example.com/piraeusdatastore/piraeus-ha-controller:v1.3.2"}}
		b.must(b.Client().Create(b.ctx, pod))
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		b.must(b.Client().Status().Update(b.ctx, pod))
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range complaints() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBench(t, c.config, func(b *bench) {
				c.provoke(b)
				out, status := b.check(c.args...)
				if status != c.status {
					t.Errorf("exit status %d, want %d:\n%s", status, c.status, out)
				}
				// Lines are wrapped anywhere between words.
				rest := strings.Join(strings.Fields(out), " ")
				for _, words := range c.says {
					i := strings.Index(rest, words)
					if i < 0 {
						t.Fatalf("%q is not said where it is expected:\n%s", words, out)
					}
					rest = rest[i+len(words):]
				}
				for _, words := range c.silent {
					if strings.Contains(out, words) {
						t.Errorf("%q is said:\n%s", words, out)
					}
				}
				for line := range strings.Lines(out) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
						t.Errorf("a line is %d characters wide: %s", n, line)
					}
				}
			})
		})
	}
}

// Every code is provoked by the table above, but for two: no replica finds that none answers, and the kubelets of the table end every pod.
func TestEveryCodeIsProvoked(t *testing.T) {
	t.Parallel()
	var said []string
	for _, c := range complaints() {
		said = append(said, c.says...)
	}
	for _, code := range forecast.Codes() {
		if code != forecast.ControllerNotRunning && code != forecast.RuntimeStuck && !strings.Contains(strings.Join(said, "\n"), " "+string(code)) {
			t.Errorf("no case of TestCheck provokes %s", code)
		}
	}
}

func TestTheFormatsSayTheSame(t *testing.T) {
	t.Parallel()
	onBench(t, nil, func(b *bench) {
		other(virtual.Volume{Quorum: "off"}, nil)(b)
		b.Linstor.SetControllerProperty(linstorsim.PropRRConflict, "disconnect")
		var fromJSON, fromYAML forecast.Report
		text, status := b.check("-o", "json")
		b.must(json.Unmarshal([]byte(text), &fromJSON))
		if status != StatusUnprotected || len(fromJSON.Volumes) != 2 || len(fromJSON.Findings) != 2 {
			t.Errorf("status %d, report:\n%s", status, text)
		}
		text, _ = b.check("-o", "yaml")
		b.must(yaml.UnmarshalStrict([]byte(text), &fromYAML))
		if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
			t.Errorf("JSON and YAML differ (-JSON +YAML):\n%s", diff)
		}
		again, _ := b.check("-o", "yaml")
		if diff := cmp.Diff(text, again); diff != "" {
			t.Errorf("a second report of the same state differs:\n%s", diff)
		}
	})
}

func TestNothingSelectedIsAnEmptyList(t *testing.T) {
	t.Parallel()
	onBench(t, nil, func(b *bench) {
		out, _ := b.check("-o", "json", "-n", "empty")
		if !strings.Contains(out, `"volumes": []`) || !strings.Contains(out, `"findings": []`) {
			t.Errorf("lists are not empty lists:\n%s", out)
		}
	})
}
