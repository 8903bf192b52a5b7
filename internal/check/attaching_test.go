package check

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// csiController is a pod of the CSI controller.
func csiController(image string, driver, attacher []string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "piraeus", Name: "csi-1", Labels: map[string]string{cluster.ComponentLabel: cluster.AttacherComponent},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "linstor-csi", Image: image, Args: driver},
			{Name: "csi-attacher", Image: "registry.example.com/sig-storage/csi-attacher:v4.10.0", Args: attacher},
		}},
	}
}

// attachable lets the check see the volumes as they are in the API, and a fourth node.
func attachable(b *bench, affinity *corev1.VolumeNodeAffinity) {
	b.must(b.AddNode(b.ctx, "node-d"))
	b.pass(10 * time.Second)
	var pvs corev1.PersistentVolumeList
	b.must(b.Client().List(b.ctx, &pvs))
	for i := range pvs.Items {
		pvs.Items[i].Spec.NodeAffinity = affinity
		b.must(b.Client().Update(b.ctx, &pvs.Items[i]))
	}
}

// attachComplaints are those about how volumes are attached.
func attachComplaints() map[string]complaint {
	const good = "quay.io/piraeusdatastore/piraeus-csi:v1.12.0"
	short, quick, slow := []string{"--node-cache-timeout=5s"}, []string{"--timeout", "15s"}, []string{"--timeout=1m"}
	here := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
	for _, node := range []string{nodeA, nodeB, nodeT} {
		here.Required.NodeSelectorTerms = append(here.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		})
	}
	codes := []string{"TieBreakerGone", "AttachWaits", "OldDriver", "NoAutoplaceTarget", "NodeCacheTimeout", "RemoteAccess"}
	driver := func(image string, driver, attacher []string) func(*bench) {
		return func(b *bench) { b.must(b.Client().Create(b.ctx, csiController(image, driver, attacher))) }
	}
	quiet := func(provoke func(*bench)) complaint {
		return complaint{provoke: provoke, status: StatusProtected, silent: codes}
	}
	says := func(provoke func(*bench), code string, words ...string) complaint {
		_, own, _ := strings.Cut(code, " ")
		return complaint{
			provoke: provoke, status: StatusProtected, says: append([]string{code}, words...),
			silent: slices.DeleteFunc(slices.Clone(codes), func(other string) bool { return other == own }),
		}
	}
	gone := says(func(b *bench) {
		b.must(b.AddNode(b.ctx, "node-d"))
		b.volume(virtual.Volume{Name: "remote", Diskful: []string{nodeB, nodeT}, TieBreaker: "node-d"})
		b.workload(virtual.Workload{Name: "remote-0", Claims: []string{"data-remote"}, Nodes: []string{nodeB}})
		b.pass(time.Minute)
		b.Crash("node-d")
		b.pass(time.Minute)
	}, "ERROR TieBreakerGone", "- pvc-remote: node-d", "linstor resource create --drbd-diskless NODE pvc-remote")
	gone.says = append([]string{"ERROR NoSurvivor", "no other node could take over"}, gone.says...)
	gone.status, gone.silent = StatusUnprotected, nil
	return map[string]complaint{
		"a driver of now":        quiet(driver(good, short, quick)),
		"a driver that is newer": quiet(driver("piraeus-csi:v2.0.0-rc.1@sha256:0", short, quick)),
		"a driver without a tag": quiet(driver("linstor-csi", short, quick)),
		"a driver that is built": quiet(driver("piraeus-csi:latest", short, quick)),
		"an old driver":          says(driver("example.com:5000/piraeus-csi:v1.10.6", short, quick), "WARNING OldDriver", "- piraeus/csi-1: v1.10.6"),
		"a driver that keeps nodes for a minute": says(driver(good, nil, quick),
			"INFO NodeCacheTimeout", "- piraeus/csi-1: 1m0s", "--node-cache-timeout=5s"),
		"pods may land anywhere": says(func(b *bench) { attachable(b, nil); driver(good, short, slow)(b) },
			"INFO RemoteAccess", "- pvc-db: node-d", "--timeout=15s"),
		"pods may land on many nodes": says(func(b *bench) {
			attachable(b, nil)
			for _, node := range []string{"node-e", "node-f", "node-g", "node-h"} {
				b.must(b.AddNode(b.ctx, node))
			}
			b.pass(10 * time.Second)
		}, "INFO RemoteAccess", "- pvc-db: node-d, node-e, node-f and 2 more"),
		"pods may land anywhere, and nobody knows the attacher": says(func(b *bench) { attachable(b, nil) }, "INFO RemoteAccess"),
		"pods may land anywhere, and the attacher is quick":     quiet(func(b *bench) { attachable(b, nil); driver(good, short, quick)(b) }),
		"pods land where replicas are":                          quiet(func(b *bench) { attachable(b, here) }),
		"pods may land where nothing is placed": says(func(b *bench) {
			attachable(b, nil)
			b.must(b.Linstor.SetNodeProperty("node-d", linstorsim.PropAutoplaceTarget, "False"))
			b.pass(10 * time.Second)
			driver(good, short, quick)(b)
		}, "WARNING NoAutoplaceTarget", "AutoplaceTarget", "- pvc-db: node-d"),
		"a satellite hangs": says(func(b *bench) { b.Linstor.HangPools(nodeB, true) },
			"ERROR AttachWaits", "attaching waits", "- node-b", "linstor node reconnect node-b"),
		"the only tie-breaker is gone": gone,
	}
}
