package scenarios_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const (
	// syncRate, in KiB per second, fills the disk of a volume of 1 GiB within syncTime.
	syncRate = 100 << 10
	syncTime = drbd.DefaultSizeKiB / syncRate * time.Second
)

// linstorCall is something that the controller has told LINSTOR.
type linstorCall struct {
	at   time.Time
	call evacuation.Call
	of   string // a node or a resource definition
	body string
}

// linstorCalls are those of all scenarios on a bed.
type linstorCalls struct {
	mu  sync.Mutex
	all []linstorCall
}

// noteCalls notes what the controller tells LINSTOR from now on.
func noteCalls(b *bed.Bed) *linstorCalls {
	c := new(linstorCalls)
	b.LINSTOR.Intercept(c.note)
	return c
}

// note notes a request that tells LINSTOR something, and lets it through.
func (c *linstorCalls) note(_ http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.UserAgent(), bed.ControllerName) {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // v1, nodes, name, evacuate
	call := evacuation.Properties
	if len(path) > 3 {
		call = evacuation.Call(path[3])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, linstorCall{time.Now(), call, path[2], string(body)})
	return false
}

// departure is a scenario of nodes that leave, and return.
type departure struct {
	*bedtest.Scenario

	calls *linstorCalls
	// stopAffinity stops the affinity controller; nil where none runs.
	stopAffinity func()
	// fenced keeps the scenario's volumes on its nodes, beside other scenarios.
	fenced bool
}

// on is the departure as a part of a test of its own.
func (d *departure) on(t *testing.T) *departure {
	t.Helper()
	part := &departure{Scenario: d.Within(t), calls: d.calls, fenced: d.fenced}
	part.Began = time.Now()
	return part
}

// told returns what the controller has told LINSTOR in this scenario: that call about those nodes or definitions or, without, about any.
func (d *departure) told(call evacuation.Call, about ...string) []linstorCall {
	d.calls.mu.Lock()
	defer d.calls.mu.Unlock()
	var own []linstorCall
	for _, c := range d.calls.all {
		if c.call == call && c.at.After(d.Began) && strings.HasPrefix(c.of, d.Name+"-") && (len(about) == 0 || slices.Contains(about, c.of)) {
			own = append(own, c)
		}
	}
	return own
}

// wantTold checks how often the controller has told LINSTOR something.
func (d *departure) wantTold(call evacuation.Call, times int, about ...string) {
	d.T.Helper()
	if got := d.told(call, about...); len(got) != times {
		d.T.Errorf("LINSTOR was told %s of %v: %+v, want %d times", call, about, got, times)
	}
}

// kubectl runs kubectl as an administrator.
func (d *departure) kubectl(args ...string) {
	d.T.Helper()
	_, err := d.Kubectl(d.Ctx, args...)
	d.Must(err)
}

// taint has a node evacuated; the value is empty for everything.
func (d *departure) taint(node string, mode evacuation.Mode) {
	d.T.Helper()
	taint := evacuation.TaintKey
	if mode != evacuation.Everything {
		taint += "=" + string(mode)
	}
	d.kubectl("taint", "node", node, taint+":NoSchedule")
}

func (d *departure) untaint(node string) {
	d.T.Helper()
	d.kubectl("taint", "node", node, evacuation.TaintKey+"-")
}

// drain drains a node as an administrator does.
func (d *departure) drain(node string) {
	d.T.Helper()
	d.kubectl("drain", node, "--ignore-daemonsets", "--timeout=2m")
}

// condition is a condition of a node; the zero value where it has none.
func (d *departure) condition(node, kind string) evacuation.Condition {
	d.T.Helper()
	conditions := cluster.EvacuationConditions(nodeOf(d.Scenario, node))
	c := conditions.Safe
	if kind == evacuation.StorageEvacuated {
		c = conditions.Evacuated
	}
	if c == nil {
		return evacuation.Condition{}
	}
	return *c
}

// waitSays waits until a condition of a node has a status, a reason and some words in its message, and returns how long that took.
func (d *departure) waitSays(node, kind string, status evacuation.Status, reason evacuation.Reason, words ...string) time.Duration {
	d.T.Helper()
	began := time.Now()
	d.Must(d.WaitFor(d.Ctx, fmt.Sprintf("%s of %s to be %s %s %q", kind, node, status, reason, words), func() (bool, error) {
		c := d.condition(node, kind)
		lacks := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) })
		if c.Status != status || c.Reason != reason || lacks {
			return false, fmt.Errorf("it is %+v", c)
		}
		return true, nil
	}))
	return time.Since(began)
}

func (d *departure) waitSafe(node string) time.Duration {
	d.T.Helper()
	return d.waitSays(node, evacuation.StorageSafe, evacuation.True, evacuation.CopiedElsewhere)
}

func (d *departure) waitEvacuated(node string) time.Duration {
	d.T.Helper()
	return d.waitSays(node, evacuation.StorageEvacuated, evacuation.True, evacuation.NothingLeft)
}

// waitTold waits until LINSTOR was told something.
func (d *departure) waitTold(call evacuation.Call, about string) {
	d.T.Helper()
	waitUntil(d.Scenario, fmt.Sprintf("LINSTOR to be told %s of %s", call, about), func() bool { return len(d.told(call, about)) > 0 })
}

// volume is a volume with disks on some nodes. Of three nodes the third is a tie-breaker, unless it is diskful.
func (d *departure) volume(name string, diskful bool, nodes ...string) bed.Volume {
	disks := len(nodes)
	if disks > 2 && !diskful {
		disks = 2
	}
	placement := linstorsim.Placement{PlaceCount: disks}
	if d.fenced {
		placement.NodeNames = d.Nodes
	}
	group := fmt.Sprintf("%s-%d", d.Name, disks)
	d.LINSTOR.SetPlacement(group, placement)
	return bed.Volume{Name: d.Name + "-" + name, Nodes: nodes, Diskful: diskful, Group: group}
}

// shared is a workload on the first node whose volume has another disk on the second, and a tie-breaker on the third.
func (d *departure) shared(name string) bed.Workload {
	w := d.Workload(name)
	w.Volumes = []bed.Volume{d.volume(name, false, d.Nodes[:3]...)}
	return w
}

// local is a workload on the first node whose volume exists nowhere else, and may be used nowhere else.
func (d *departure) local(name string) bed.Workload {
	w := d.Workload(name)
	w.Volumes = []bed.Volume{d.volume(name, true, d.Nodes[0])}
	w.Volumes[0].Pinned = true
	return w
}

// startAll starts workloads beside each other and waits until they run on the first node.
func (d *departure) startAll(workloads ...bed.Workload) {
	d.T.Helper()
	for _, w := range workloads {
		d.Must(d.Deploy(d.Ctx, w))
	}
	for _, w := range workloads {
		_, err := d.WaitRunning(d.Ctx, w, d.Nodes[0])
		d.Must(err)
	}
}

// keepAffinity runs an affinity controller for the volumes of some workloads until they are cleared.
func (d *departure) keepAffinity(workloads ...bed.Workload) {
	var volumes []string
	for _, w := range workloads {
		volumes = append(volumes, volumeOf(w))
	}
	d.stopAffinity = d.KeepAffinity(d.Ctx, volumes...)
}

// waitDrained waits until a workload that was evicted runs on another node, and tells for how long its pod was down.
func (d *departure) waitDrained(w bed.Workload) {
	d.T.Helper()
	pod, err := d.WaitRunning(d.Ctx, w, d.Nodes[1:]...)
	d.Must(err)
	all, err := d.Requests(d.Began)
	d.Must(err)
	evicted := slices.IndexFunc(all, func(r bed.Request) bool {
		return r.Resource == "pods/eviction" && r.Namespace == pod.Namespace && r.Name == pod.Name && r.Code < http.StatusMultipleChoices
	})
	if evicted < 0 {
		d.T.Fatalf("pod %s was not evicted", pod.Name)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		down := c.LastTransitionTime.Add(time.Second).Sub(all[evicted].Received) // the API cuts times to the second
		d.T.Logf("pod %s was down for at most %.1f s", pod.Name, down.Seconds())
	}
	if volume := volumeOf(w); !d.DRBD.CanWrite(volume, pod.Spec.NodeName) {
		d.T.Errorf("pod %s cannot write %s on %s", pod.Name, volume, pod.Spec.NodeName)
	}
}

// wantClean waits until nothing of an evacuation of a node is left anywhere.
func (d *departure) wantClean(node string, workloads ...bed.Workload) {
	d.T.Helper()
	began := time.Now()
	d.Must(d.WaitFor(d.Ctx, "nothing of the evacuation of "+node+" to be left", func() (bool, error) {
		left := d.left(node, workloads)
		if len(left) > 0 {
			return false, fmt.Errorf("there is %v", left)
		}
		return true, nil
	}))
	d.T.Logf("nothing of the evacuation of %s is left %.1f s after the taint", node, time.Since(began).Seconds())
}

// left is what is left of an evacuation.
func (d *departure) left(node string, workloads []bed.Workload) (left []string) {
	n := nodeOf(d.Scenario, node)
	if _, noted := n.Annotations[cluster.AnnotationEvacuation]; noted {
		left = append(left, "the annotation")
	}
	if c := cluster.EvacuationConditions(n); c.Safe != nil || c.Evacuated != nil {
		left = append(left, "a condition")
	}
	if flags := d.flags(node); slices.Contains(flags, linstorsim.FlagEvacuate) {
		left = append(left, "the flag")
	}
	for _, w := range workloads {
		if props := d.props(volumeOf(w)); props[evacuation.PropMark] != "" || props[evacuation.PropBalance] != "" {
			left = append(left, "the properties of "+volumeOf(w))
		}
	}
	return left
}

// props are the properties of a resource definition.
func (d *departure) props(resource string) map[string]string {
	d.T.Helper()
	var definition struct {
		Props map[string]string `json:"props"`
	}
	d.ask("/v1/resource-definitions/"+resource, &definition)
	return definition.Props
}

// flags are the flags of a node in LINSTOR.
func (d *departure) flags(node string) []string {
	d.T.Helper()
	var n struct {
		Flags []string `json:"flags"`
	}
	d.ask("/v1/nodes/"+node, &n)
	return n.Flags
}

func (d *departure) ask(path string, answer any) {
	d.T.Helper()
	recorder := httptest.NewRecorder()
	d.LINSTOR.ServeHTTP(recorder, httptest.NewRequestWithContext(d.Ctx, http.MethodGet, path, nil))
	d.Must(json.Unmarshal(recorder.Body.Bytes(), answer))
}

// wantDisks checks on which nodes a volume has its disks, and that they are UpToDate.
func (d *departure) wantDisks(w bed.Workload, n int, without ...string) {
	d.T.Helper()
	volume := volumeOf(w)
	disks := d.LINSTOR.DiskNodes(volume)
	if len(disks) != n || slices.ContainsFunc(disks, func(node string) bool { return slices.Contains(without, node) }) {
		d.T.Errorf("the disks of %s are on %v, want %d without %v", volume, disks, n, without)
	}
	for _, node := range disks {
		if state, _ := d.DRBD.Replica(volume, node); state.DiskState != drbd.UpToDate {
			d.T.Errorf("the disk of %s on %s is %s", volume, node, state.DiskState)
		}
	}
}

// clear removes workloads with their volumes, and lets all nodes take pods again, for what is played next on the same nodes.
func (d *departure) clear(workloads ...bed.Workload) {
	d.T.Helper()
	if d.stopAffinity != nil {
		d.stopAffinity() // or it makes a PersistentVolume again that is just deleted
	}
	for _, w := range workloads {
		owner := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
		d.Must(client.IgnoreNotFound(d.Client.Delete(d.Ctx, owner, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
	waitUntil(d.Scenario, "the volumes to be detached", func() bool {
		var attachments storagev1.VolumeAttachmentList
		d.Must(d.Client.List(d.Ctx, &attachments))
		return !slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool {
			return strings.HasPrefix(*va.Spec.Source.PersistentVolumeName, d.Name+"-")
		})
	})
	for _, w := range workloads {
		for _, v := range w.Volumes {
			d.remove(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: v.Name}})
			d.remove(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}})
			d.Must(d.LINSTOR.DeleteResource(v.Name))
		}
	}
	for _, node := range d.Nodes {
		if nodeOf(d.Scenario, node).Spec.Unschedulable {
			d.kubectl("uncordon", node)
		}
	}
}

// remove deletes an object and waits until it is gone.
func (d *departure) remove(object client.Object) {
	d.T.Helper()
	d.Must(client.IgnoreNotFound(d.Client.Delete(d.Ctx, object)))
	d.Must(d.WaitFor(d.Ctx, object.GetName()+" to be gone", func() (bool, error) {
		err := d.Client.Get(d.Ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
}
