package scenarios_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// TestEvacuationsBesideEachOther plays what may go wrong before anything leaves a node: many evacuations on nodes of their own, which LINSTOR's
// resource groups name. What has LINSTOR move disks off a node is played in TestEvacuations: it would choose among the nodes of all.
//
//nolint:tparallel // the scenarios are parallel; what looks back on them is not
func TestEvacuationsBesideEachOther(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-evacuations-beside", bed.Options{
		SyncRate: syncRate, ControllerArgs: []string{"--max-concurrent-evacuations=100", "--max-concurrent-copies=100"},
		LINSTOR: linstorsim.Options{ReconnectInterval: 2 * time.Second},
		Driver:  csidriver.Options{NodeCache: time.Second},
	})
	calls := noteCalls(b)
	t.Run("scenarios", func(t *testing.T) {
		for name, play := range map[string]func(*departure){
			"a node crashes while it is copied from":                      crashWhileCopying,
			"the node of a copy crashes before the copy is done":          targetCrashes,
			"nothing is copied whose only good copy may be out of reach":  nothingToCopy,
			"a volume is pinned until its PersistentVolume allows others": pinnedVolume,
			"a pod that comes back holds up the node":                     toleratingPod,
			"an export by NFS holds up the node":                          exportedVolume,
			"a taint that means nothing is refused":                       refusedTaints,
			"a node that LINSTOR does not know is refused, and forgotten": strangeNode,
			"a node out of LINSTOR's reach is waited for":                 unreachedNode,
			"the taint goes while a copy is made":                         takenBackWhileCopying,
			"the taint goes while the node waits for its drain":           takenBackBeforeDrain,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := &departure{Scenario: bedtest.New(t, b, 4), calls: calls, fenced: true}
				play(d)
			})
		}
	})
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	nothingForbidden(t, b)
}

// quiet is longer than it takes until a node is looked at again.
const quiet = 2*evacuation.Interval + 5*time.Second

// copying waits until LINSTOR makes the copy of a volume, and returns its node.
func (d *departure) copying(w bed.Workload) (target string) {
	d.T.Helper()
	waitUntil(d.Scenario, "a copy of "+volumeOf(w)+" to be made", func() bool {
		for _, node := range d.LINSTOR.DiskNodes(volumeOf(w)) {
			if state, _ := d.DRBD.Replica(volumeOf(w), node); state.DiskState == drbd.Inconsistent {
				target = node
			}
		}
		return target != ""
	})
	return target
}

// waitSynced waits until all disks of a volume have its data.
func (d *departure) waitSynced(w bed.Workload) {
	d.T.Helper()
	waitUntil(d.Scenario, "all disks of "+volumeOf(w)+" to be UpToDate", func() bool {
		return !slices.ContainsFunc(d.LINSTOR.DiskNodes(volumeOf(w)), func(node string) bool {
			state, _ := d.DRBD.Replica(volumeOf(w), node)
			return state.DiskState != drbd.UpToDate
		})
	})
}

// nothingTold checks for a while that LINSTOR is told nothing.
func (d *departure) nothingTold() {
	d.T.Helper()
	all := func() (n int) {
		for _, call := range evacuation.Calls() {
			n += len(d.told(call))
		}
		return n
	}
	before := all()
	pass(d.Scenario, quiet)
	if after := all(); after != before {
		d.T.Errorf("LINSTOR was told %d things, want nothing", after-before)
	}
}

// crashWhileCopying takes the power from a node while it is copied from.
func crashWhileCopying(d *departure) {
	leaving, one, two := d.Nodes[0], d.local("one"), d.shared("two")
	d.startAll(one, two)
	d.keepAffinity(one)
	d.taint(leaving, evacuation.LastCopies)
	d.copying(one)
	crashed := time.Now()
	d.Crash(leaving)
	d.WaitMoved(two, leaving, crashed)
	movedCleanly(d.Scenario, two, leaving)
	waitUntil(d.Scenario, "the node to be out of reach", func() bool { return d.condition(leaving, evacuation.StorageSafe).Status == evacuation.StatusUnknown })
	d.nothingTold()
	d.Return(leaving)
	d.waitSafe(leaving)
	d.wantTold(evacuation.Autoplace, 1)
	d.untaint(leaving)
	d.wantClean(leaving, one, two)
}

// targetCrashes takes the power from the node of a copy before the copy is done: the node is safe once there is another.
func targetCrashes(d *departure) {
	leaving, one := d.Nodes[0], d.local("one")
	d.startAll(one)
	d.keepAffinity(one)
	d.taint(leaving, evacuation.LastCopies)
	target := d.copying(one)
	pass(d.Scenario, syncTime/2)
	d.Crash(target)
	waitUntil(d.Scenario, "another copy", func() bool { return len(d.told(evacuation.Autoplace)) == 2 })
	if c := d.condition(leaving, evacuation.StorageSafe); c.Status == evacuation.True {
		d.T.Errorf("the node is %+v without a good copy elsewhere", c)
	}
	// Of three disks one is away: without the node that leaves there would be no majority.
	d.waitSays(leaving, evacuation.StorageSafe, evacuation.False, evacuation.QuorumWouldBeLost, target)
	d.Return(target)
	d.waitSafe(leaving)
	d.waitSynced(one)
	d.wantDisks(one, 3)
	d.untaint(leaving)
	d.wantClean(leaving, one)
}

// nothingToCopy is a disk that is not UpToDate, and whose only peer is away.
func nothingToCopy(d *departure) {
	leaving, peer := d.Nodes[0], d.Nodes[1]
	v := d.volume("db", true, leaving, peer)
	d.Must(d.LINSTOR.CreateResource(specOf(v)))
	d.Crash(peer)
	d.Must(d.DRBD.SetDisk(v.Name, leaving, 0, drbd.Inconsistent))
	d.taint(leaving, evacuation.Everything)
	d.waitSays(leaving, evacuation.StorageSafe, evacuation.False, evacuation.PeerOffline, v.Name, peer)
	d.nothingTold()
	d.untaint(leaving)
	d.wantClean(leaving)
	for _, call := range evacuation.Calls() {
		d.wantTold(call, 0)
	}
}

// specOf is a volume in LINSTOR only, without a claim.
func specOf(v bed.Volume) linstorsim.ResourceSpec {
	spec := linstorsim.ResourceSpec{Group: v.Group, Spec: drbd.Spec{Name: v.Name}}
	for _, node := range v.Nodes {
		spec.Replicas = append(spec.Replicas, drbd.ReplicaSpec{Node: node})
	}
	return spec
}

// pinnedVolume is a volume whose copy is of no use to its pod before its PersistentVolume allows the copy's node.
func pinnedVolume(d *departure) {
	leaving, one := d.Nodes[0], d.local("one")
	d.startAll(one)
	d.taint(leaving, evacuation.LastCopies)
	d.waitSays(leaving, evacuation.StorageSafe, evacuation.False, evacuation.AffinityPinned, "PersistentVolume "+volumeOf(one))
	d.wantDisks(one, 2)
	d.keepAffinity(one)
	d.waitSafe(leaving)
	d.untaint(leaving)
	d.wantClean(leaving, one)
}

// toleratingPod is a pod that tolerates everything, and is on the node again as soon as it is drained.
func toleratingPod(d *departure) {
	leaving, w := d.Nodes[0], d.shared("db")
	w.Mutate = func(template *corev1.PodTemplateSpec) {
		template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	w.Nodes = d.Nodes[:1]
	d.startAll(w)
	d.taint(leaving, evacuation.Everything)
	d.waitSafe(leaving)
	d.drain(leaving)
	pod, err := d.WaitRunning(d.Ctx, w, leaving)
	d.Must(err)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.False, evacuation.WaitingForDrain, d.Name+"/"+pod.Name+" holds "+volumeOf(w))
	d.nothingTold()
	d.wantTold(evacuation.Evacuate, 0)
	d.kubectl("uncordon", leaving)
	d.untaint(leaving)
	d.wantClean(leaving, w)
}

// exportedVolume is a volume that LINSTOR's driver exports by NFS from the node: nothing is attached, but it is in use.
func exportedVolume(d *departure) {
	leaving := d.Nodes[0]
	v := d.volume("export", true, leaving, d.Nodes[1])
	v.Kubernetes = csidriver.Volume{NFSExport: true, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}
	d.Must(client.IgnoreAlreadyExists(d.Client.Create(d.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.Name}})))
	d.Must(d.CreateVolume(d.Ctx, d.Name, v))
	d.Must(d.DRBD.Open(v.Name, leaving, false))
	d.taint(leaving, evacuation.Everything)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.False, evacuation.NFSExport, v.Name)
	d.nothingTold()
	d.wantTold(evacuation.Evacuate, 0)
	d.untaint(leaving)
	d.DRBD.Close(v.Name, leaving)
	d.wantClean(leaving)
}

// refusedTaints are taints with another effect or another value.
func refusedTaints(d *departure) {
	node, w := d.Nodes[1], d.shared("db")
	d.startAll(w)
	for _, row := range []struct {
		taint string
		want  evacuation.Reason
	}{
		{"=last-copies:PreferNoSchedule", evacuation.WrongEffect},
		{":NoExecute", evacuation.WrongEffect},
		{"=all:NoSchedule", evacuation.UnknownMode},
	} {
		d.kubectl("taint", "node", node, evacuation.TaintKey+row.taint)
		d.waitSays(node, evacuation.StorageSafe, evacuation.False, row.want)
		d.waitSays(node, evacuation.StorageEvacuated, evacuation.False, row.want)
		waitEvent(d.Scenario, string(row.want), "Node", "", node)
		d.untaint(node)
		d.wantClean(node, w)
	}
	for _, call := range evacuation.Calls() {
		d.wantTold(call, 0)
	}
}

// strangeNode is a node without a satellite, which is deleted then.
func strangeNode(d *departure) {
	stranger := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-stranger"}}
	d.Must(d.Client.Create(d.Ctx, stranger))
	d.taint(stranger.Name, evacuation.Everything)
	d.waitSays(stranger.Name, evacuation.StorageSafe, evacuation.False, evacuation.NotASatellite)
	d.Must(d.Client.Delete(d.Ctx, stranger))
	deleted := time.Now()
	d.nothingTold()
	late, err := d.Bed.ControllerRequests(deleted.Add(time.Second))
	d.Must(err)
	if slices.ContainsFunc(late, func(r bed.Request) bool { return r.Name == stranger.Name }) {
		d.T.Error("the controller writes to a node that there is no more")
	}
	for _, call := range evacuation.Calls() {
		d.wantTold(call, 0)
	}
}

// unreachedNode is a node that LINSTOR does not reach when it is tainted.
func unreachedNode(d *departure) {
	node, one := d.Nodes[0], d.local("one")
	d.startAll(one)
	d.keepAffinity(one)
	d.CutLINSTOR(node)
	waitUntil(d.Scenario, "LINSTOR to notice", func() bool { return d.LINSTOR.ConnectionStatus(node) != linstorsim.Online })
	d.taint(node, evacuation.LastCopies)
	d.waitSays(node, evacuation.StorageSafe, evacuation.StatusUnknown, evacuation.SatelliteOffline)
	d.nothingTold()
	d.HealLINSTOR(node)
	d.waitSafe(node)
	d.untaint(node)
	d.wantClean(node, one)
}

// takenBackWhileCopying takes the taint off while a copy is made, which is made all the same.
func takenBackWhileCopying(d *departure) {
	leaving, one := d.Nodes[0], d.local("one")
	d.startAll(one)
	d.taint(leaving, evacuation.LastCopies)
	d.copying(one)
	d.untaint(leaving)
	d.wantClean(leaving, one)
	d.wantTold(evacuation.Autoplace, 1)
	d.waitSynced(one)
	d.wantDisks(one, 2)
}

// takenBackBeforeDrain takes the taint off before anything has left.
func takenBackBeforeDrain(d *departure) {
	leaving, two := d.Nodes[0], d.shared("two")
	d.startAll(two)
	d.taint(leaving, evacuation.Everything)
	d.waitSays(leaving, evacuation.StorageEvacuated, evacuation.False, evacuation.WaitingForDrain)
	d.untaint(leaving)
	d.wantClean(leaving, two)
	for _, call := range evacuation.Calls() {
		d.wantTold(call, 0)
	}
	d.wantDisks(two, 2)
}
