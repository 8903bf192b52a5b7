package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// question is one about the loss of a node, and the whole answer.
type question struct {
	config  func(*bench)
	provoke func(*bench)
	args    []string
	status  Status
	answer  string
}

func questions() map[string]question {
	return map[string]question{
		"all pods of the node move": {
			provoke: func(*bench) {}, args: []string{"--node", nodeA}, status: StatusProtected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  moves  17s     pvc-db     -
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

If node-a were lost now, 1 pod would move within 17s, and no pod would stay.
`,
		},
		"one moves, one stays, one is not selected": {
			provoke: func(b *bench) {
				other(virtual.Volume{Quorum: "off"}, nil)(b)
				unselectedWeb(1, func(w *virtual.Workload) { w.Owner = "None" })(b)
			}, args: []string{"--node", nodeA}, status: StatusUnprotected, answer: `
POD              FATE   WITHIN  RESOURCES  REASON
default/db-0     moves  17s     pvc-db     -
default/other-0  stays  -       pvc-other  NoQuorum
default/web-0    stays  -       pvc-web-0  NotSelected
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

- pod default/web-0 stays: the pod is not selected for fail-over, and has no controller that would re-create
  it

ERROR NoQuorum: works now, and would not be moved if its node were lost next
  - pod default/other-0, resource pvc-other, if node-a were lost: resource pvc-other has quorum off, so that a
    node that is cut off goes on writing: it ends when node node-a is back; or switch that node off, make sure
    that it is, and run kubectl taint node node-a node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, by
    which Kubernetes removes all of its pods; setting quorum ends nothing while the node is away; set
    DrbdOptions/Resource/quorum to majority when it is back
  Remedy: for good, while all its nodes are ONLINE: linstor resource-definition set-property pvc-other
    DrbdOptions/Resource/quorum majority, with three replicas or a tie-breaker; then restart linstor-satellite
    on each of them, which interrupts no I/O; not by linstor controller set-property

If node-a were lost now, 1 pod would move within 17s, and 2 pods would stay.
`,
		},
		"a pod of two volumes stays for the sake of one": {
			provoke: func(b *bench) {
				b.volume(virtual.Volume{Name: "one"})
				b.volume(virtual.Volume{Name: "two", Diskful: []string{nodeA}})
				b.workload(virtual.Workload{Name: "pair-0", Claims: []string{"data-one", "data-two"}})
				b.pass(time.Minute)
			}, args: []string{"--node", nodeA}, status: StatusUnprotected, answer: `
POD             FATE   WITHIN  RESOURCES        REASON
default/db-0    moves  17s     pvc-db           -
default/pair-0  stays  -       pvc-one,pvc-two  OtherVolumeUnavailable
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

ERROR NoSurvivor: works now, and would not be moved if its node were lost next
  - pod default/pair-0, resource pvc-two, if node-a were lost: no other node could take over: there is no
    other replica
  Remedy: look at linstor node list and linstor resource list: bring nodes back, let synchronizations end, or
    place another replica

ERROR OtherVolumeUnavailable: works now, and would not be moved if its node were lost next
  - pod default/pair-0, resource pvc-one, if node-a were lost: the pod's volume two could not be used on
    another node
  Remedy: see to the other volume first: it needs a replica elsewhere, quorum, and its nodes ONLINE; linstor
    resource list shows them

ERROR TooFewReplicas: only one node has a disk of these resources, so that no other can take over
  - pvc-two
  Remedy: place another replica: linstor resource-definition auto-place --place-count 2 pvc-two, and raise the
    place count of the resource group or StorageClass

INFO RemoteAccess: pods may land where no replica of their volume is: attaching it there takes 45 to 61
  seconds while another node of the volume hangs
  - pvc-two: node-b, node-t
  Remedy: keep pods where replicas are, by allowRemoteVolumeAccess: "false" in the StorageClass or by their
    affinity; or give the CSI attacher --timeout=15s

If node-a were lost now, 1 pod would move within 17s, and 1 pod would stay.
`,
		},
		"DRBD asks its peers more rarely": {
			provoke: property(linstor.OptionPingInt, "30"), args: []string{"--node", nodeA}, status: StatusProtected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  moves  37s     pvc-db     -
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

If node-a were lost now, 1 pod would move within 37s, and no pod would stay.
`,
		},
		"the leader and LINSTOR itself are on the node": {
			provoke: func(b *bench) {
				b.pod("ha-controller", "ha-0", nodeA)
				b.pod("piraeus-datastore", "ls-0", nodeA, func(pod *corev1.Pod) {
					pod.Labels = map[string]string{"app.kubernetes.io/component": "linstor-controller"}
				})
				b.pass(time.Minute)
			}, args: []string{"--node", nodeA}, status: StatusProtected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  moves  29s     pvc-db     -
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

- pod ha-controller/ha-0 leads the controller and would be lost too: another one takes over within 12s, which
  is counted in above
- pod piraeus-datastore/ls-0 is the LINSTOR controller and would be lost too: nothing moves before another one
  runs, which is not counted above

If node-a were lost now, 1 pod would move within 29s, and no pod would stay.
`,
		},
		"the node is lost already": {
			config: slow, provoke: func(b *bench) {
				b.Crash(nodeA)
				b.pass(30 * time.Second)
			}, args: []string{"--node", nodeA}, status: StatusProtected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  moves  3600s   pvc-db     -
WITHIN: from the loss to the removal of the pod at the latest, with the time that DRBD needs to notice.
  Kubernetes starts it elsewhere about a second later, and its own start comes on top.

ERROR NodeUnreachable: the storage is lost on the pod's node now, and the pod is being moved
  - pod default/db-0, resource pvc-db on node-a: neither LINSTOR nor any peer reaches the node; the pod is
    moved once that has lasted for 1h0m0s
  Remedy: nothing for the pod; see to its node. Where the pod is still there a minute later, kubectl describe
    pod -n default db-0 says what holds it back

Storage is lost on node-a already: 1 pod moves within 3600s, and no pod stays.
`,
		},
		"fail-over is paused": {
			provoke: func(b *bench) { b.pauses() },
			args:    []string{"--node", nodeA}, status: StatusUnprotected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  stays  -       pvc-db     Paused

ERROR Paused: works now, and would not be moved if its node were lost next
  - pod default/db-0, resource pvc-db, if node-a were lost: annotation drbd.linbit.com/pause-fail-over of
    Deployment ha-controller/piraeus-ha-controller pauses all fail-over
  Remedy: end the pause: kubectl -n ha-controller annotate deployment/piraeus-ha-controller
    drbd.linbit.com/pause-fail-over-; if the Deployment cannot be read, apply the roles of deploy/all.yaml
    again

If node-a were lost now, no pod would move, and 1 pod would stay.
`,
		},
		"the node has no pod with a volume": {
			provoke: func(*bench) {}, args: []string{"--node", nodeB}, status: StatusProtected, answer: `
No pod on node node-b uses a volume of linstor.csi.linbit.com: its loss would move nothing.
`,
		},
		"another namespace is asked about": {
			provoke: func(*bench) {}, args: []string{"--node", nodeA, "-n", "empty"}, status: StatusProtected, answer: `
No pod of namespace empty on node node-a uses a volume of linstor.csi.linbit.com: its loss would move nothing.
`,
		},
		"there is no such node": {
			provoke: func(*bench) {}, args: []string{"--node", "node-x"}, status: StatusUnknown, answer: `
There is no node node-x in Kubernetes: its nodes are node-a, node-b, node-t.
`,
		},
		"LINSTOR calls a node so": {
			provoke: func(b *bench) {
				b.must(b.Client().Create(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-d.example.com"}}))
				b.must(b.Client().Create(b.ctx, &storagev1.CSINode{
					ObjectMeta: metav1.ObjectMeta{Name: "node-d.example.com"},
					Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: virtual.Driver, NodeID: "node-d"}}},
				}))
				b.pass(time.Second)
			}, args: []string{"--node", "node-d"}, status: StatusUnknown, answer: `
There is no node node-d in Kubernetes: LINSTOR calls node node-d.example.com so.
`,
		},
		"the node is no satellite": {
			provoke: func(b *bench) {
				b.must(b.Client().Create(b.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-d"}}))
				b.pass(time.Second)
			}, args: []string{"--node", "node-d"}, status: StatusProtected, answer: `
Node node-d is no satellite of LINSTOR, and no pod on node node-d uses a volume of linstor.csi.linbit.com: its
loss would move nothing.
`,
		},
		"LINSTOR does not answer": {
			provoke: func(b *bench) { b.Linstor.Stop(); b.pass(time.Minute) },
			args:    []string{"--node", nodeA}, status: StatusUnprotected, answer: `
POD           FATE   WITHIN  RESOURCES  REASON
default/db-0  stays  -       pvc-db     LinstorStale

ERROR LinstorUnreachable: ask LINSTOR for its nodes: LINSTOR controller linstor:3370: read nodes: EOF
  Remedy: let LS_CONTROLLERS of the controller's Deployment name the LINSTOR controllers, and check
    LS_ROOT_CA_FILE and the other LS_* variables; without LINSTOR nothing is ever moved

ERROR LinstorStale: works now, and would not be moved if its node were lost next
  - pod default/db-0, resource pvc-db, if node-a were lost: LINSTOR has not confirmed anything for more than
    10s
  Remedy: look at the LINSTOR controller, and whether LS_CONTROLLERS leads to it; if it refuses the
    controller, at LINSTOR's token or user

The controller could not do its work, see the findings; else, if node-a were lost now, no pod would move, and
1 pod would stay.
`,
		},
	}
}

func TestTheLossOfANode(t *testing.T) {
	t.Parallel()
	for name, q := range questions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBench(t, q.config, func(b *bench) {
				q.provoke(b)
				out, status := b.check(q.args...)
				if diff := cmp.Diff(strings.TrimPrefix(q.answer, "\n"), out); diff != "" || status != q.status {
					t.Errorf("status %d, want %d; answer (-want +got):\n%s\n%s", status, q.status, diff, out)
				}
			})
		})
	}
}

func TestTheLossOfANodeAsYAML(t *testing.T) {
	t.Parallel()
	onBench(t, nil, func(b *bench) {
		unselectedWeb(1, nil)(b)
		out, _ := b.check("--node", nodeA, "-o", "yaml")
		var report forecast.Report
		b.must(yaml.UnmarshalStrict([]byte(out), &report))
		want := &forecast.NodeLoss{Name: nodeA, Satellite: nodeA, Pods: []forecast.PodLoss{
			{Namespace: "default", Pod: "db-0", Resources: []string{"pvc-db"}, Fate: forecast.Moves, Within: "17s", Selected: true},
			{
				Namespace: "default", Pod: "web-0", Resources: []string{"pvc-web-0"}, Fate: forecast.Stays, Reason: "NotSelected",
				Message: "the pod is not selected for fail-over",
			},
		}}
		if diff := cmp.Diff(want, report.Node); diff != "" {
			t.Errorf("node (-want +got):\n%s", diff)
		}
		if len(report.Volumes) != 1 {
			t.Errorf("%d rows of selected pods, want 1:\n%s", len(report.Volumes), out)
		}
	})
}
