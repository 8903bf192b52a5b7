package controllers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// The nodes of the stories: A and B have a disk of every volume, T is the tie-breaker.
const (
	nodeA = "node-a"
	nodeB = "node-b"
	nodeT = "node-t"
)

const controllerActor = "controller/"

// selected are the labels of a pod that asks for fail-over.
var selected = map[string]string{"linstor.csi.linbit.com/on-storage-lost": "remove"}

// world is a cluster in a bubble, with replicas of the controller. It fails the test as soon as the controller breaks one
// of the rules that hold in every story.
type world struct {
	*testing.T
	*virtual.Cluster
	ctx       context.Context //nolint:containedctx // of the bubble
	started   time.Time
	lag       time.Duration
	processes []*process
	state     *apimodel.View

	mu      sync.Mutex
	changes []apimodel.Change
	lines   []string
}

// inWorld runs a story in a bubble with three nodes and nothing else.
func inWorld(t *testing.T, options virtual.Options, story func(*world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{T: t, Cluster: virtual.New(ctx, options), ctx: ctx, started: time.Now()}
		w.state = w.API.View(0, nil)
		w.API.OnChange(w.audit)
		defer func() {
			cancel()
			for _, p := range w.processes {
				p.stops()
			}
			w.Stop()
			for _, p := range w.processes {
				if anonymous := p.events.anonymous(); len(anonymous) > 0 {
					t.Errorf("kubectl describe does not show these Events of %s: %v", p.name, anonymous)
				}
			}
			if t.Failed() {
				t.Log("what happened:\n" + strings.Join(w.lines, "\n"))
			}
		}()
		for _, node := range []string{nodeA, nodeB, nodeT} {
			w.must(w.AddNode(ctx, node+options.Domain))
		}
		story(w)
	})
}

// scene is inWorld with a controller that leads by default settings, one volume "db" with its workload "db-0" that
// is selected and prefers A, and the same again named "other" that is not selected. Both have been running for a while.
func scene(t *testing.T, tell func(w *world, p *process)) {
	t.Helper()
	sceneWith(t, virtual.Options{}, defaults(), tell)
}

func sceneWith(t *testing.T, options virtual.Options, cfg Config, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, options, func(w *world) {
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.volume("other")
		w.workload("other", nil)
		w.pass(time.Minute)
		w.wantRunning("db-0", nodeA)
		w.wantRunning("other-0", nodeA)
		tell(w, p)
	})
}

// sceneBehind is a scene whose controller has a cache that is behind, and only the volume "db".
func sceneBehind(t *testing.T, lag time.Duration, cfg Config, tell func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		w.lag = lag
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected)
		w.pass(time.Minute)
		tell(w, p)
	})
}

// nodePatches returns how often the controller has written a node other than its status.
func (w *world) nodePatches() int {
	count := 0
	for _, c := range w.did(apimodel.VerbPatch, "Node") {
		if !c.Status {
			count++
		}
	}
	return count
}

// volume adds a volume with its claim "data-<name>".
func (w *world) volume(name string, change ...func(*virtual.Volume)) {
	w.Helper()
	v := virtual.Volume{Name: name, Diskful: []string{nodeA, nodeB}, TieBreaker: nodeT}
	for _, f := range change {
		f(&v)
	}
	w.must(w.AddVolume(w.ctx, v))
}

// workload adds the workload "<name>-0" on the volume of that name.
func (w *world) workload(name string, labels map[string]string, change ...func(*virtual.Workload)) {
	workload := virtual.Workload{
		Name: name + "-0", Claims: []string{"data-" + name}, Labels: maps.Clone(labels), Nodes: []string{nodeA, nodeB},
	}
	for _, f := range change {
		f(&workload)
	}
	w.AddWorkload(workload)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// until lets time pass until something is so, and returns how long that took.
func (w *world) until(limit time.Duration, what string, so func() bool) time.Duration {
	w.Helper()
	const step = 200 * time.Millisecond
	for passed := time.Duration(0); ; passed += step {
		synctest.Wait()
		if so() {
			return passed
		}
		if passed >= limit {
			w.Fatalf("not within %s: %s", limit, what)
		}
		w.pass(step)
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pod returns the pod, nil when it is gone.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	return read[corev1.Pod](w, "default", name)
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	return read[corev1.Node](w, "", name)
}

// attachment returns the attachment of a volume to a node, nil when there is none.
func (w *world) attachment(volume, node string) *storagev1.VolumeAttachment {
	w.Helper()
	return read[storagev1.VolumeAttachment](w, "", "csi-"+volume+"-"+node)
}

func read[T any, P interface {
	*T
	client.Object
}](w *world, namespace, name string) P {
	w.Helper()
	o := P(new(T))
	err := w.state.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return o
}

// runs tells whether the pod runs on the node.
func (w *world) runs(name, node string) bool {
	w.Helper()
	pod := w.pod(name)
	return pod != nil && pod.Spec.NodeName == node && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

func (w *world) wantRunning(name, node string) {
	w.Helper()
	if !w.runs(name, node) {
		w.Fatalf("pod %s does not run on %s: %+v", name, node, w.pod(name))
	}
}

// inUse tells whether the node's status names the volume among those in use.
func (w *world) inUse(volume, node string) bool {
	w.Helper()
	return slices.Contains(w.node(node).Status.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+virtual.Driver+"^pvc-"+volume))
}

// tainted returns the effect of the keep-away taint, empty when there is none.
func (w *world) tainted(node string) corev1.TaintEffect {
	w.Helper()
	for _, taint := range w.node(node).Spec.Taints {
		if taint.Key == cluster.TaintLostQuorum {
			return taint.Effect
		}
	}
	return ""
}

// did returns what the controller has done so far to objects of a kind.
func (w *world) did(verb apimodel.Verb, kind string) []apimodel.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	var changes []apimodel.Change
	for _, c := range w.changes {
		if c.Verb == verb && c.Kind == kind {
			changes = append(changes, c)
		}
	}
	return changes
}

// wantUntouched fails the story if the controller has changed anything at all, other than who leads.
func (w *world) wantUntouched() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.changes {
		if c.Kind == "Lease" || keepsSettings(c) {
			continue // of the election, or a note of what nodes may run, which moves nothing
		}
		w.Errorf("after %s: %s %s %s", c.Time.Sub(w.started), c.Verb, c.Kind, c.Name)
	}
}

// keepsSettings tells whether a change writes nothing but what nodes may run.
func keepsSettings(c apimodel.Change) bool {
	if c.Kind != "VolumeAttachment" || c.Verb != apimodel.VerbPatch || c.Status || c.Old == nil || c.New == nil {
		return false
	}
	before, after := maps.Clone(c.Old.GetAnnotations()), maps.Clone(c.New.GetAnnotations())
	delete(before, cluster.AnnotationUnconfirmed)
	delete(after, cluster.AnnotationUnconfirmed)
	return maps.Equal(before, after)
}

// wantStill fails the story unless the pod of that name is the same as before and untouched.
func (w *world) wantStill(before *corev1.Pod) {
	w.Helper()
	after := w.pod(before.Name)
	if after == nil || after.UID != before.UID || after.DeletionTimestamp != nil {
		w.Errorf("pod %s was replaced or deleted: %+v", before.Name, after)
	}
}

// removed returns the UIDs of the pods of that name that the controller deleted, each as often as it did.
func (w *world) removed(name string) []types.UID {
	var uids []types.UID
	for _, c := range w.did(apimodel.VerbDelete, "Pod") {
		if c.Name == name {
			uids = append(uids, c.Old.GetUID())
		}
	}
	return uids
}

// forceDelete is what an impatient user does.
func (w *world) forceDelete(name string) {
	w.Helper()
	w.must(w.Client().Delete(w.ctx, w.pod(name), client.GracePeriodSeconds(0)))
}

func (w *world) cordon(name string) error {
	node := w.node(name)
	node.Spec.Unschedulable = true
	return w.Client().Update(w.ctx, node)
}

// said returns what the process told last about a volume on a node; nothing when all is well.
func (p *process) said(volume, node string) (failover.Verdict, failover.Reason) {
	if volumes, ok := p.parts.node.reports.nodes.Load(node); ok {
		report := volumes.(map[string]volumeReport)[volume]
		return report.reported, report.reason
	}
	return "", ""
}

// bystanders adds nodes without any storage in the story, so that two lost ones are no majority.
func (w *world) bystanders() {
	w.Helper()
	for _, node := range []string{"node-x", "node-y"} {
		w.must(w.AddNode(w.ctx, node))
	}
	w.pass(time.Minute)
}
