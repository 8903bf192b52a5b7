package bedtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// Timeout ends a scenario that hangs. One that waits beside many others on few cores takes minutes.
const Timeout = 10 * time.Minute

// Scenario is a test's part of a bed: its own nodes, and a namespace and volumes with its own name.
//
// Two things are checked of every scenario: the controller never removes a pod from a node that could
// still write the pod's volumes, and never one that is not selected.
type Scenario struct {
	*bed.Bed
	// T is the test.
	T *testing.T
	// Ctx ends with the test or after Timeout.
	Ctx context.Context //nolint:containedctx // a scenario is as short-lived as a call
	// Name is the namespace, and the beginning of the names of nodes and volumes.
	Name string
	// Nodes are three or more nodes for the scenario alone.
	Nodes []string
	// Began is when the scenario began.
	Began time.Time
}

// scenarios counts, for unique names.
var scenarios atomic.Int32

// New begins a scenario on a bed with n nodes. When the test ends, nodes that are down are booted:
// lost nodes count for everybody, and the controller stops when too many are.
func New(t *testing.T, b *bed.Bed, n int) *Scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	s := &Scenario{Bed: b, T: t, Ctx: ctx, Name: fmt.Sprintf("s%d", scenarios.Add(1)), Began: time.Now()}
	t.Logf("scenario %s of %s, logs in %s", s.Name, t.Name(), b.LogDir)
	var err error
	s.Nodes, err = b.AddNodes(ctx, s.Name+"-node", n)
	s.Must(err)
	s.guard()
	t.Cleanup(func() {
		b.Rejoin(s.Nodes...)
		if b != shared.bed {
			b.Return(s.Nodes...)
			return
		}
		// The others need the processor time, and the kernel has few inotify instances.
		for _, node := range s.Nodes {
			b.LINSTOR.Return(node)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Timeout)
		defer cancel()
		if err := b.Retire(ctx, s.Nodes...); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Within returns the scenario for a part of its test, which has its own time.
func (s *Scenario) Within(t *testing.T) *Scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	part := *s
	part.T, part.Ctx = t, ctx
	return &part
}

// Must ends the test on an error.
func (s *Scenario) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Workload returns a StatefulSet of the given name that is selected for fail-over, starts on the first
// node, and uses a volume with replicas on the first three nodes, the third of which is a tie-breaker.
func (s *Scenario) Workload(name string) bed.Workload {
	return bed.Workload{
		Namespace: s.Name, Name: name, Nodes: s.Nodes, PreferNode: s.Nodes[0],
		Volumes: []bed.Volume{{Name: s.Name + "-" + name, Nodes: s.Nodes[:3]}},
	}
}

// Start deploys a workload and returns its pod, Ready on the node it prefers.
func (s *Scenario) Start(w bed.Workload) corev1.Pod {
	s.T.Helper()
	s.Must(s.Deploy(s.Ctx, w))
	pod, err := s.WaitRunning(s.Ctx, w, w.PreferNode)
	s.Must(err)
	return pod
}

// WaitMoved waits until a pod of the workload is Ready on another node than the given one, and returns
// how long after since that was.
func (s *Scenario) WaitMoved(w bed.Workload, from string, since time.Time) time.Duration {
	s.T.Helper()
	others := slices.DeleteFunc(slices.Clone(w.Nodes), func(node string) bool { return node == from })
	_, err := s.WaitRunning(s.Ctx, w, others...)
	took := time.Since(since)
	if err != nil {
		s.logRequests()
		s.T.Fatal(err)
	}
	s.T.Logf("pod of %s runs elsewhere %.1f s after its node's fault", w.Name, took.Seconds())
	return took
}

// Unchanged checks for a while that the pod is neither replaced nor asked to stop, and that its volume
// stays attached.
func (s *Scenario) Unchanged(pod corev1.Pod, duration time.Duration) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, duration)
	defer cancel()
	err := s.WaitFor(ctx, "something to happen to pod "+pod.Name, func() (bool, error) {
		return s.changed(pod) != "", nil
	})
	if err == nil {
		s.logRequests()
		s.T.Fatalf("pod %s: %s", pod.Name, s.changed(pod))
	}
	s.Must(s.Err())
}

// changed says what happened to a pod or its attachments, empty if nothing did.
func (s *Scenario) changed(pod corev1.Pod) string {
	var pods corev1.PodList
	if err := s.Client.List(s.Ctx, &pods); err != nil {
		return "" // not known to have changed
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.UID == pod.UID })
	switch {
	case i < 0:
		return "it is gone"
	case pods.Items[i].DeletionTimestamp != nil:
		return "it is being deleted"
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		attached, err := s.Attached(s.Ctx, volume.PersistentVolumeClaim.ClaimName, pod.Spec.NodeName)
		if err == nil && !attached {
			return "its volume was detached"
		}
	}
	return ""
}

// ControllerRequests returns what the controller did to this scenario's pods, attachments and nodes.
func (s *Scenario) ControllerRequests() []bed.Request {
	s.T.Helper()
	all, err := s.Bed.ControllerRequests(s.Began)
	s.Must(err)
	var own []bed.Request
	for _, r := range all {
		if s.owns(r) {
			own = append(own, r)
		}
	}
	return own
}

// owns tells whether a request concerns this scenario.
func (s *Scenario) owns(r bed.Request) bool {
	if r.Namespace == s.Name || slices.Contains(s.Nodes, r.Name) {
		return true
	}
	for _, resource := range s.DRBD.Resources() {
		for _, node := range s.Nodes {
			if strings.HasPrefix(resource, s.Name+"-") && r.Name == csidriver.AttachmentName(resource, node) {
				return true
			}
		}
	}
	return false
}

// logRequests logs what the controller did, for the reader of a failure.
func (s *Scenario) logRequests() {
	s.T.Helper()
	for _, r := range s.ControllerRequests() {
		s.T.Logf("%6.1f s  controller: %s %s %s/%s -> %d", r.At.Sub(s.Began).Seconds(), r.Verb, r.Resource, r.Namespace, r.Name, r.Code)
	}
}
