package scenarios_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// shutdown is a node that is switched off, with workloads on it.
type shutdown struct {
	*bedtest.Scenario
	node string
	db   bed.Workload // selected
	// other is not selected.
	other bed.Workload
	more  []bed.Workload
	pods  map[string]types.UID // the first of each workload

	others func()    // returns when the other stories are as far, or have ended
	off    time.Time // the power
	since  time.Time // what tell counts from
	what   string    // that was
}

// newShutdown begins a story with two workloads that run. The power goes in all stories together: LINSTOR, which they share, has everything wait
// for a satellite that it has not missed yet.
func newShutdown(t *testing.T, b *bed.Bed, others *sync.WaitGroup) *shutdown {
	t.Helper()
	arrive := sync.OnceFunc(others.Done)
	t.Cleanup(arrive)
	s := bedtest.New(t, b, 3)
	d := &shutdown{Scenario: s, node: s.Nodes[0], pods: map[string]types.UID{}, others: func() { arrive(); others.Wait() }}
	d.db, d.other = d.workload("db"), d.workload("other")
	d.other.Unselected = true
	d.pods[d.db.Name], d.pods[d.other.Name] = s.Start(d.db).UID, s.Start(d.other).UID
	return d
}

// workload returns a workload whose containers take their time to stop.
func (d *shutdown) workload(name string) bed.Workload {
	w := d.Workload(name)
	w.Annotations = map[string]string{machine.AnnotationStopDelay: "2s"}
	return w
}

// start starts a further workload.
func (d *shutdown) start(w bed.Workload) {
	d.T.Helper()
	d.pods[w.Name] = d.Start(w).UID
	d.more = append(d.more, w)
}

// startLate starts a selected workload whose quorum is off until fixQuorum.
func (d *shutdown) startLate() bed.Workload {
	d.T.Helper()
	w := d.workload("late")
	w.Volumes[0].Quorum = "off"
	d.start(w)
	return w
}

// fixQuorum sets the quorum of a volume, too late for the node: nothing will ever show that it has heard of it.
func (d *shutdown) fixQuorum(w bed.Workload) {
	d.LINSTOR.SetDefinitionProperty(volumeOf(w), linstorsim.PropQuorum, "majority")
}

func (d *shutdown) all() []bed.Workload { return append([]bed.Workload{d.db, d.other}, d.more...) }

func (d *shutdown) kubectl(args ...string) {
	d.T.Helper()
	_, err := d.Kubectl(d.Ctx, args...)
	d.Must(err)
}

// from begins to count seconds.
func (d *shutdown) from(what string) { d.since, d.what = time.Now(), what }

// tell tells how many seconds have passed.
func (d *shutdown) tell(what string) {
	d.T.Helper()
	d.T.Logf("%5.1f s after %s: %s", time.Since(d.since).Seconds(), d.what, what)
}

// meet waits for the other stories, and gives what follows time of its own.
func (d *shutdown) meet() {
	d.T.Helper()
	d.others()
	d.Scenario = d.Within(d.T)
}

// powerOff takes the power.
func (d *shutdown) powerOff() {
	d.T.Helper()
	d.meet()
	d.from("the power went")
	d.off = d.since
	d.Crash(d.node)
}

// outOfService sets Kubernetes' taint, as its documentation says.
func (d *shutdown) outOfService() {
	d.T.Helper()
	d.kubectl("taint", "node", d.node, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
}

// inService takes it off.
func (d *shutdown) inService() {
	d.T.Helper()
	d.kubectl("taint", "node", d.node, corev1.TaintNodeOutOfService+"-")
}

// podOf is the name of the pod of a StatefulSet.
func podOf(w bed.Workload) string { return w.Name + "-0" }

// first returns the first pod of a workload, false if it is gone.
func (d *shutdown) first(w bed.Workload) (corev1.Pod, bool) {
	d.T.Helper()
	pods, err := d.Pods(d.Ctx, w)
	d.Must(err)
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.UID == d.pods[w.Name] })
	if i < 0 {
		return corev1.Pod{}, false
	}
	return pods[i], true
}

// wantFailed checks that the kubelet has ended the first pod of a workload, and that the pod is still there.
func (d *shutdown) wantFailed(w bed.Workload) {
	d.T.Helper()
	pod, ok := d.first(w)
	if !ok || pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != "Terminated" || pod.DeletionTimestamp != nil {
		d.T.Errorf("the pod of %s is %s %q (there: %t, deleted: %t), want Failed by the shutdown of its node", w.Name, pod.Status.Phase,
			pod.Status.Reason, ok, pod.DeletionTimestamp != nil)
	}
}

// waitReplaced waits until a workload has another pod, on another node.
func (d *shutdown) waitReplaced(w bed.Workload) {
	d.T.Helper()
	waitUntil(d.Scenario, "a replacement of "+w.Name+" on another node", func() bool {
		pods, err := d.Pods(d.Ctx, w)
		d.Must(err)
		return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.UID != d.pods[w.Name] && p.Spec.NodeName != "" && p.Spec.NodeName != d.node
		})
	})
	d.tell(w.Name + " has a replacement that waits for the volume elsewhere")
}

// waitReady waits until Kubernetes says so of the node: False is the word of its kubelet, Unknown says that there is none.
func (d *shutdown) waitReady(want corev1.ConditionStatus) {
	d.T.Helper()
	waitUntil(d.Scenario, fmt.Sprintf("Ready=%s of %s", want, d.node), func() bool { return readyOf(nodeOf(d.Scenario, d.node)) == want })
	d.tell(fmt.Sprintf("Kubernetes calls the node Ready=%s", want))
}

// readyOf is the status of a node's condition Ready.
func readyOf(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// evict deletes the first pods of workloads, as Kubernetes does five minutes after it has missed their node.
func (d *shutdown) evict(workloads ...bed.Workload) {
	d.T.Helper()
	for _, w := range workloads {
		pod, ok := d.first(w)
		if !ok {
			d.T.Fatalf("the pod of %s is gone", w.Name)
		}
		d.Must(d.Client.Delete(d.Ctx, &pod))
	}
}

// waitTerminating waits until Kubernetes has deleted the first pod of a workload.
func (d *shutdown) waitTerminating(w bed.Workload) {
	d.T.Helper()
	waitUntil(d.Scenario, "the pod of "+w.Name+" to be Terminating", func() bool {
		pod, ok := d.first(w)
		return ok && pod.DeletionTimestamp != nil
	})
	d.tell("Kubernetes has deleted the pods that are still there: Terminating")
}

// stays checks that the first pods of workloads are Terminating, with their volumes attached to the node.
func (d *shutdown) stays(workloads ...bed.Workload) {
	d.T.Helper()
	for _, w := range workloads {
		pod, ok := d.first(w)
		if !ok || pod.DeletionTimestamp == nil || attachmentOf(d.Scenario, volumeOf(w), d.node) == "" {
			d.T.Errorf("the pod of %s should be Terminating on the node (there: %t), and its volume attached", w.Name, ok)
		}
	}
}

// waitMoved waits until a workload runs elsewhere.
func (d *shutdown) waitMoved(w bed.Workload) {
	d.T.Helper()
	d.WaitMoved(w, d.node, d.off)
	d.tell(w.Name + " runs elsewhere")
}

// comeBack switches the node on.
func (d *shutdown) comeBack() {
	d.T.Helper()
	d.from("the node was switched on")
	d.Return(d.node)
	d.waitReady(corev1.ConditionTrue)
}

// waitRuns waits until the replacement of a workload runs.
func (d *shutdown) waitRuns(w bed.Workload) {
	d.T.Helper()
	waitUntil(d.Scenario, "the replacement of "+w.Name+" to run", func() bool {
		pod, err := d.WaitRunning(d.Ctx, w)
		d.Must(err)
		return pod.UID != d.pods[w.Name]
	})
	d.tell(w.Name + " runs again")
}

// wantClean checks that workloads run elsewhere with their data, and that nothing of the story is left on the node, which is back.
func (d *shutdown) wantClean(moved ...bed.Workload) {
	d.T.Helper()
	for _, w := range moved {
		movedCleanly(d.Scenario, w, d.node)
	}
	waitUntil(d.Scenario, d.node+" to be as it was", func() bool {
		for _, w := range d.all() {
			if state, _ := d.DRBD.Replica(volumeOf(w), d.node); state.DiskState != drbd.UpToDate {
				return false
			}
		}
		return d.LINSTOR.ConnectionStatus(d.node) == "ONLINE" && len(nodeOf(d.Scenario, d.node).Spec.Taints) == 0
	})
	waitUnannotated(d.Scenario)
}

// wantCreated checks how many pods the story has had: more would have been deleted twice.
func (d *shutdown) wantCreated(want int) {
	d.T.Helper()
	if n := podsCreated(d.Scenario); n != want {
		d.T.Errorf("%d pods were created, want %d", n, want)
	}
}
