package scenarios_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// Names that users of the controller rely on.
const (
	taintLostQuorum      = "drbd.linbit.com/lost-quorum"
	annotationKeepAway   = "drbd.linbit.com/keep-away"
	eventForceDeleted    = "ForceDeleted"
	eventForceDetached   = "ForceDetached"
	eventNodeLost        = "NodeStorageQuorumLost"
	eventNodeRegained    = "NodeStorageQuorumRegained"
	eventGuardTripped    = "GuardTripped"
	eventGuardOpened     = "GuardOpened"
	eventSharedVolume    = "SharedVolume"
	attachmentsOfStorage = "volumeattachments"
)

// volumeOf returns the volume of a workload that has one, or the first.
func volumeOf(w bed.Workload) string { return w.Volumes[0].Name }

// volumesOf returns the claims a pod uses, which are named like their volumes.
func volumesOf(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// nodeOf reads a node.
func nodeOf(s *bedtest.Scenario, name string) *corev1.Node {
	s.T.Helper()
	var node corev1.Node
	s.Must(s.Client.Get(s.Ctx, client.ObjectKey{Name: name}, &node))
	return &node
}

// keptAway tells whether the controller's taint is on a node.
func keptAway(s *bedtest.Scenario, name string) bool {
	s.T.Helper()
	return slices.ContainsFunc(nodeOf(s, name).Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintLostQuorum })
}

// inUse tells whether a node's volumesInUse lists a volume.
func inUse(s *bedtest.Scenario, node, volume string) bool {
	s.T.Helper()
	return slices.Contains(nodeOf(s, node).Status.VolumesInUse, csidriver.UniqueVolumeName(volume))
}

// attachmentOf returns the UID of the attachment of a volume to a node, empty if there is none.
func attachmentOf(s *bedtest.Scenario, volume, node string) types.UID {
	s.T.Helper()
	var va storagev1.VolumeAttachment
	s.Must(client.IgnoreNotFound(s.Client.Get(s.Ctx, client.ObjectKey{Name: csidriver.AttachmentName(volume, node)}, &va)))
	return va.UID
}

// waitUntil waits for a condition, and ends the test if it does not come true in time.
func waitUntil(s *bedtest.Scenario, what string, condition func() bool) {
	s.T.Helper()
	s.Must(s.WaitFor(s.Ctx, what, func() (bool, error) { return condition(), nil }))
}

// waitUnannotated waits until the controller has left no annotation on the scenario's nodes and their attachments, apart from what it remembers
// of the settings that nodes may run: it does so for a minute after a node is back, and longer where nothing shows what that runs.
func waitUnannotated(s *bedtest.Scenario) {
	s.T.Helper()
	s.Must(s.WaitFor(s.Ctx, "the controller's annotations to be gone", func() (bool, error) {
		if left := annotationsLeft(s); len(left) > 0 {
			return false, fmt.Errorf("left are %q", left)
		}
		return true, nil
	}))
}

// annotationsLeft returns the controller's annotations of the scenario's nodes and their attachments.
func annotationsLeft(s *bedtest.Scenario) (left []string) {
	s.T.Helper()
	var attachments storagev1.VolumeAttachmentList
	s.Must(s.Client.List(s.Ctx, &attachments))
	var objects []client.Object
	for _, node := range s.Nodes {
		objects = append(objects, nodeOf(s, node))
	}
	for i := range attachments.Items {
		if va := &attachments.Items[i]; slices.Contains(s.Nodes, va.Spec.NodeName) {
			objects = append(objects, va)
		}
	}
	for _, o := range objects {
		for key := range o.GetAnnotations() {
			if strings.HasPrefix(key, "drbd.linbit.com/") && key != cluster.AnnotationUnconfirmed {
				left = append(left, o.GetName()+": "+key)
			}
		}
	}
	return left
}

// pass lets time pass.
func pass(s *bedtest.Scenario, d time.Duration) {
	s.T.Helper()
	select {
	case <-time.After(d):
	case <-s.Ctx.Done():
		s.T.Fatal(s.Ctx.Err())
	}
	s.Must(s.Err())
}

// leftAlone lets time pass and checks that the controller has changed nothing of this scenario by then,
// and that the pods and their attachments are the same.
func leftAlone(s *bedtest.Scenario, d time.Duration, pods ...corev1.Pod) {
	s.T.Helper()
	before := worldOf(s, pods)
	began := time.Now()
	pass(s, d)
	if after := worldOf(s, pods); after != before {
		s.T.Errorf("pods and attachments were\n%s and are\n%s", before, after)
	}
	for _, r := range s.ControllerRequests() {
		if r.Received.After(began) { // one from before may come into the log only now
			s.T.Errorf("controller: %s %s %s/%s, want nothing", r.Verb, r.Resource, r.Namespace, r.Name)
		}
	}
}

// worldOf describes pods and their attachments to their nodes.
func worldOf(s *bedtest.Scenario, pods []corev1.Pod) string {
	s.T.Helper()
	var b strings.Builder
	for _, pod := range pods {
		var now corev1.Pod
		s.Must(client.IgnoreNotFound(s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&pod), &now)))
		fmt.Fprintf(&b, "\tpod %s %q on %s, deleted: %t\n", pod.Name, now.UID, now.Spec.NodeName, now.DeletionTimestamp != nil)
		for _, volume := range volumesOf(&pod) {
			fmt.Fprintf(&b, "\tattachment of %s to %s: %q, in use: %t\n", volume, pod.Spec.NodeName,
				attachmentOf(s, volume, pod.Spec.NodeName), inUse(s, pod.Spec.NodeName, volume))
		}
	}
	return b.String()
}

// movedCleanly checks, of a workload whose pod runs elsewhere by now, that its volume is attached there
// and only there, that the node it came from does not call it in use, and that its data is whole.
func movedCleanly(s *bedtest.Scenario, w bed.Workload, from string) {
	s.T.Helper()
	movedSafely(s, w, from)
	if inUse(s, from, volumeOf(w)) {
		s.T.Errorf("volume %s is still in use on node %s", volumeOf(w), from)
	}
}

// movedSafely is movedCleanly without a word on what the node calls in use: a kubelet that lives lists a volume again
// as long as a process hangs there that has it open.
func movedSafely(s *bedtest.Scenario, w bed.Workload, from string) {
	s.T.Helper()
	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	to, volume := pod.Spec.NodeName, volumeOf(w)
	if to == from {
		s.T.Fatalf("pod %s is back on node %s", pod.Name, from)
	}
	waitUntil(s, "volume "+volume+" to be detached from "+from, func() bool { return attachmentOf(s, volume, from) == "" })
	attached, err := s.Attached(s.Ctx, volume, to)
	s.Must(err)
	if !attached || !inUse(s, to, volume) {
		s.T.Errorf("volume %s on node %s: attached %t, in use %t, want both", volume, to, attached, inUse(s, to, volume))
	}
	if !s.DRBD.CanWrite(volume, to) || s.DRBD.CanWrite(volume, from) || s.DRBD.Diverged(volume) {
		s.T.Errorf("resource %s: writable on %s: %t, on %s: %t, diverged: %t; want it writable on the former only", volume,
			to, s.DRBD.CanWrite(volume, to), from, s.DRBD.CanWrite(volume, from), s.DRBD.Diverged(volume))
	}
}

// waitEvent waits for an Event about an object, cluster-wide ones have an empty namespace.
func waitEvent(s *bedtest.Scenario, reason, kind, namespace, name string) {
	s.T.Helper()
	waitUntil(s, fmt.Sprintf("Event %s of %s %s", reason, kind, name), func() bool {
		var events corev1.EventList
		s.Must(s.Client.List(s.Ctx, &events, client.InNamespace(cmp.Or(namespace, metav1.NamespaceDefault)), client.MatchingFields{
			"involvedObject.kind": kind, "involvedObject.name": name, "reason": reason,
		}))
		return len(events.Items) > 0
	})
}

// requests returns the requests about this scenario that succeeded, in order, by a verb and resource.
func requests(s *bedtest.Scenario, all []bed.Request, verb, resource string) []bed.Request {
	s.T.Helper()
	return slices.DeleteFunc(slices.Clone(all), func(r bed.Request) bool {
		return r.Verb != verb || r.Resource != resource || r.Code >= http.StatusMultipleChoices || r.Namespace != "" && r.Namespace != s.Name
	})
}

// podsCreated is how many pods the scenario's namespace has ever had.
func podsCreated(s *bedtest.Scenario) int {
	s.T.Helper()
	all, err := s.Requests(s.Began)
	s.Must(err)
	return len(slices.DeleteFunc(requests(s, all, "create", "pods"), func(r bed.Request) bool { return r.Namespace != s.Name }))
}

// gracesGiven returns the grace period, in seconds, of each deletion of a pod by the controller, in order,
// and checks that each, also one that came too late, was of a certain pod and not of a name.
func gracesGiven(s *bedtest.Scenario) []int64 {
	s.T.Helper()
	var graces []int64
	for _, r := range s.ControllerRequests() {
		if r.Verb != "delete" || r.Resource != "pods" {
			continue
		}
		var options metav1.DeleteOptions
		s.Must(json.Unmarshal(r.Body, &options))
		if options.Preconditions == nil || options.Preconditions.UID == nil || options.GracePeriodSeconds == nil {
			s.T.Errorf("pod %s was deleted without its UID or without a grace period: %s", r.Name, r.Body)
			continue
		}
		if r.Code < http.StatusMultipleChoices {
			graces = append(graces, *options.GracePeriodSeconds)
		}
	}
	return graces
}

// deletedAt is when the API server was asked to delete the first pod of a name, be it by its owner, which does so at once
// when the controller has set its phase to Failed. Zero if it never was.
func deletedAt(s *bedtest.Scenario, name string) time.Time {
	s.T.Helper()
	all, err := s.Requests(s.Began)
	s.Must(err)
	for _, r := range requests(s, all, "delete", "pods") {
		if r.Name == name && r.Namespace == s.Name {
			return r.Received
		}
	}
	return time.Time{}
}

// attachDelay is the time from the controller's first removal of a pod until the last of the volumes was
// attached to another node than the first.
func attachDelay(s *bedtest.Scenario, volumes ...string) time.Duration {
	s.T.Helper()
	// The first that happens to a pod whose object outlives its deletion is its condition.
	removals := append(requests(s, s.ControllerRequests(), "patch", "pods/status"), requests(s, s.ControllerRequests(), "delete", "pods")...)
	if len(removals) == 0 {
		s.T.Fatal("the controller removed no pod")
	}
	first := slices.MinFunc(removals, func(a, b bed.Request) int { return a.At.Compare(b.At) }).At
	var names []string
	for _, volume := range volumes {
		for _, node := range s.Nodes[1:] {
			names = append(names, csidriver.AttachmentName(volume, node))
		}
	}
	all, err := s.Requests(s.Began)
	s.Must(err)
	last := first
	for _, r := range requests(s, all, "patch", attachmentsOfStorage+"/status") {
		if r.User == "csi-attacher" && slices.Contains(names, r.Name) && r.At.After(last) {
			last = r.At
		}
	}
	return last.Sub(first)
}
