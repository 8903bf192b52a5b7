package scenarios_test

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
)

// crash is the story of the promise: one node goes, its selected pod moves, its other pod stays, and
// nothing is left over once the node is back.
func crash(s *bedtest.Scenario) {
	lost := s.Nodes[0]
	selected, other := s.Workload("selected"), s.Workload("other")
	other.Unselected = true
	pod, bystander := s.Start(selected), s.Start(other)
	attachment := attachmentOf(s, volumeOf(other), lost)

	crashed := time.Now()
	s.Crash(lost)
	s.WaitMoved(selected, lost, crashed)
	if !keptAway(s, lost) {
		s.T.Errorf("node %s has no taint %s", lost, taintLostQuorum)
	}
	movedCleanly(s, selected, lost)
	s.T.Logf("attached elsewhere %s after the pod was removed", attachDelay(s, volumeOf(selected)))
	waitEvent(s, eventForceDeleted, "Pod", s.Name, pod.Name)
	waitEvent(s, eventForceDetached, "VolumeAttachment", "", csidriver.AttachmentName(volumeOf(selected), lost))
	waitEvent(s, eventNodeLost, "Node", "", lost)

	s.Unchanged(bystander, 10*time.Second)
	s.Return(lost)
	waitUntil(s, "the taint to go from node "+lost, func() bool { return !keptAway(s, lost) })
	waitEvent(s, eventNodeRegained, "Node", "", lost)
	back, err := s.WaitRunning(s.Ctx, other, lost)
	s.Must(err)
	if back.UID != bystander.UID || attachmentOf(s, volumeOf(other), lost) != attachment {
		s.T.Error("the pod that was not selected, or its attachment, is not the same as before")
	}
	movedCleanly(s, selected, lost)
	if n := podsCreated(s); n != 3 {
		s.T.Errorf("%d pods were created, want two and one replacement", n)
	}
}

// crashWhileTerminating is a crash in the middle of a long goodbye.
func crashWhileTerminating(s *bedtest.Scenario) {
	w := s.Workload("db")
	w.Annotations = map[string]string{machine.AnnotationStopDelay: "10m"}
	w.Mutate = func(template *corev1.PodTemplateSpec) { template.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	pod := s.Start(w)
	s.Must(s.Client.Delete(s.Ctx, &pod))
	pass(s, 2*time.Second)
	crashed := time.Now()
	s.Crash(s.Nodes[0])
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
}

// sharing returns a second workload beside w that uses w's volume too.
func sharing(w bed.Workload) bed.Workload {
	second := w
	second.Name, second.Volumes = "second", nil
	second.Mutate = func(template *corev1.PodTemplateSpec) {
		name := volumeOf(w)
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
		container := &template.Spec.Containers[0]
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/data"})
	}
	return second
}

// twoOnOneClaim is a crash under two selected pods that share a claim.
func twoOnOneClaim(s *bedtest.Scenario) {
	first := s.Workload("first")
	first.Nodes = s.Nodes[:2] // together again: the volume is ReadWriteOnce
	second := sharing(first)
	pods := []corev1.Pod{s.Start(first), s.Start(second)}
	crashed := time.Now()
	s.Crash(s.Nodes[0])
	s.WaitMoved(first, s.Nodes[0], crashed)
	s.WaitMoved(second, s.Nodes[0], crashed)
	movedCleanly(s, first, s.Nodes[0])

	// Once the volume is released, Kubernetes may be quicker to delete the attachment than the controller.
	detaches := append(requests(s, s.ControllerRequests(), "patch", "nodes/status"),
		requests(s, s.ControllerRequests(), "delete", attachmentsOfStorage)...)
	if len(detaches) == 0 {
		s.T.Fatal("the controller did not take the volume off the node")
	}
	for _, pod := range pods {
		waitEvent(s, eventForceDeleted, "Pod", s.Name, pod.Name)
		// Compared by when the requests came: an answer may be noted after what followed from it.
		if deleted := deletedAt(s, pod.Name); deleted.IsZero() || deleted.After(detaches[0].Received) {
			s.T.Errorf("the volume was taken off at %s and pod %s at %s, want it first", detaches[0].Received, pod.Name, deleted)
		}
	}
	if n := podsCreated(s); n != 4 {
		s.T.Errorf("%d pods were created, want two and two replacements", n)
	}
}

// sharedWithUnselected is a crash under two pods that share a claim, one of which is not selected.
func sharedWithUnselected(s *bedtest.Scenario) {
	first := s.Workload("first")
	second := sharing(first)
	second.Unselected = true
	pod, bystander := s.Start(first), s.Start(second)
	s.Crash(s.Nodes[0])
	leftAlone(s, patience, pod, bystander)
	waitEvent(s, eventSharedVolume, "Pod", s.Name, pod.Name)
}

// recreatedByHand is somebody who is as quick as the controller: the pod is deleted by force in the
// moment in which the controller begins. The replacement must be spared.
func recreatedByHand(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(s.Nodes[0])
	waitUntil(s, "the taint to come to node "+s.Nodes[0], func() bool { return keptAway(s, s.Nodes[0]) })
	err := s.Client.Delete(s.Ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	s.T.Logf("deleting the pod by hand: %v", err)
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
	gracesGiven(s)
	if n := podsCreated(s); n != 2 {
		s.T.Errorf("%d pods were created, want one and one replacement", n)
	}
}

// removedByHand is somebody who knows what to do about a dead node, except for its attachments. The
// replacement waits elsewhere for the volume, and no pod is left for the controller to remove.
func removedByHand(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(s.Nodes[0])
	node := nodeOf(s, s.Nodes[0])
	cordoned := node.DeepCopy()
	cordoned.Spec.Unschedulable = true
	s.Must(s.Client.Patch(s.Ctx, cordoned, client.MergeFrom(node)))
	s.Must(s.Client.Delete(s.Ctx, &pod, client.GracePeriodSeconds(0)))
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
	if graces := gracesGiven(s); len(graces) > 0 || podsCreated(s) != 2 {
		s.T.Errorf("the controller removed %d pods, and %d were created; want none, and one and one replacement", len(graces), podsCreated(s))
	}
}

// putBack is somebody who is quicker than the controller, and so gets the replacement placed on the dead
// node, which Kubernetes takes for a good one for most of a minute.
func putBack(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	crashed := time.Now()
	s.Crash(s.Nodes[0])
	s.Must(s.Client.Delete(s.Ctx, &pod, client.GracePeriodSeconds(0)))
	waitUntil(s, "the replacement to be placed on the dead node", func() bool {
		pods, err := s.Pods(s.Ctx, w)
		s.Must(err)
		return slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID != pod.UID && p.Spec.NodeName == s.Nodes[0] })
	})
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
	if n := podsCreated(s); n != 3 {
		s.T.Errorf("%d pods were created, want one, the misplaced one and its replacement", n)
	}
}
