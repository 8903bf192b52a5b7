package check

import (
	"fmt"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// unselectedWeb adds pods that nobody has selected, each with a volume.
func unselectedWeb(count int, change func(*virtual.Workload)) func(*bench) {
	return func(b *bench) {
		for i := range count {
			name := fmt.Sprintf("web-%d", i)
			b.volume(virtual.Volume{Name: name})
			w := virtual.Workload{Name: name, Claims: []string{"data-" + name}, Labels: map[string]string{"app": "web"}}
			if change != nil {
				change(&w)
			}
			b.workload(w)
		}
		b.pass(time.Minute)
	}
}

// unselectedComplaints are those about pods that nobody has selected.
func unselectedComplaints() map[string]complaint {
	const label = "linstor.csi.linbit.com/on-storage-lost=remove"
	stays := func(change func(*virtual.Workload)) complaint {
		return complaint{provoke: unselectedWeb(1, change), status: StatusProtected, silent: []string{"NotSelectedPods"}}
	}
	return map[string]complaint{
		"a pod with a volume is not selected": {
			provoke: unselectedWeb(1, nil), status: StatusProtected,
			says: []string{
				"INFO NotSelectedPods: 1 pod is not selected, with a volume of linstor.csi.linbit.com", "- default/web-0 on node-a",
				"set linstor.csi.linbit.com/on-storage-lost: remove in the labels of the pod template", "kubectl label -n default pod web-0 " + label,
				cluster.AnnotationIgnore, "Every selected pod would survive the loss of its node: 1 protected, 0 not, 0 unknown, 0 starting; " +
					"1 pod is not selected and would stay, see the findings.",
			}, silent: []string{"Every pod", "every pod"},
		},
		"many pods with a volume are not selected": {
			provoke: unselectedWeb(5, nil), status: StatusProtected,
			says: []string{
				"INFO NotSelectedPods: 5 pods are not selected", "- default/web-0 on node-a", "- default/web-1 on", "- default/web-2 on",
				"- default/web-3 on", "- default/web-4 on", "kubectl label -n NAMESPACE pod NAME " + label, "5 pods are not selected and would stay",
			},
		},
		"more pods are not selected than the table has lines for": {
			provoke: unselectedWeb(12, nil), status: StatusProtected,
			says: []string{"INFO NotSelectedPods: 12 pods are not selected", "- and 2 more, see -o yaml"},
		},
		"all formats but the table name all pods that are not selected": {
			provoke: unselectedWeb(12, nil), args: []string{"-o", "yaml"}, status: StatusProtected,
			says: []string{"- default/web-0 on node-a", "- default/web-11 on", "- default/web-9 on"},
		},
		"no pod is selected, and some have a volume": {
			provoke: unselectedWeb(2, nil), config: selectsNone, status: StatusUnprotected,
			says: []string{
				"WARNING NothingSelected: no pod with a volume of linstor.csi.linbit.com matches --pod-label-selector=app=none", "- default/db-0 on node-a", "- default/web-0 on",
				"Remedy: correct --pod-label-selector in the controller's Deployment", "No pod selected by", "3 others do: nothing is moved",
			}, silent: []string{"NotSelectedPods", "kubectl label"},
		},
		"a pod that is not selected is on a lost node": {
			provoke: func(b *bench) {
				unselectedWeb(4, func(w *virtual.Workload) { w.Nodes = []string{nodeA} })(b)
				b.Crash(nodeA)
				b.pass(time.Minute)
			}, status: StatusUnprotected,
			says: []string{
				"WARNING NotSelectedPods: 4 pods are not selected", "nothing is moved from there",
				"- default/web-0 on node-a", "- default/web-1 on node-a", "- default/web-2 on node-a", "- default/web-3 on node-a", "helps after a loss as well: kubectl label",
				"4 pods are on a lost node and not selected, so that nothing moves from there",
			},
			silent: []string{"INFO NotSelectedPods"},
		},
		"a pod that is not selected is exempt": stays(func(w *virtual.Workload) {
			w.Annotations = map[string]string{cluster.AnnotationIgnore: ""}
		}),
		"a pod of a DaemonSet is not selected":   stays(func(w *virtual.Workload) { w.Owner = "DaemonSet" }),
		"a pod without an owner is not selected": stays(func(w *virtual.Workload) { w.Owner = "None" }),
		"a pod that is not selected is in another namespace": {
			provoke: unselectedWeb(1, nil), args: []string{"-n", "empty"}, status: StatusProtected, silent: []string{"NotSelectedPods"},
		},
	}
}
