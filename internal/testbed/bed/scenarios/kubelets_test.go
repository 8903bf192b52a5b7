package scenarios_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/machine"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// returnsAfter is a node that crashes and boots again before its fail-over, amid it or after it.
func returnsAfter(d time.Duration) func(*bedtest.Scenario) {
	return func(s *bedtest.Scenario) {
		w := s.Workload("db")
		s.Start(w)
		crashed := time.Now()
		s.Crash(s.Nodes[0])
		if d > usual {
			s.WaitMoved(w, s.Nodes[0], crashed)
		}
		pass(s, time.Until(crashed.Add(d)))
		s.Return(s.Nodes[0])
		settled(s, w)
	}
}

// kubeletKilled is a living node that loses DRBD's network. Its kubelet ends amid the fail-over, and starts again later.
func kubeletKilled(d time.Duration) func(*bedtest.Scenario) {
	return func(s *bedtest.Scenario) {
		w := failing(s)
		s.Start(w)
		cut := time.Now()
		s.IsolateDRBD(s.Nodes[0])
		waitUntil(s, "the fail-over to begin", func() bool { return keptAway(s, s.Nodes[0]) })
		s.Node(s.Nodes[0]).KillKubelet()
		pass(s, d)
		s.Must(s.Node(s.Nodes[0]).StartKubelet())
		s.WaitMoved(w, s.Nodes[0], cut)
		s.RejoinDRBD(s.Nodes[0])
		settled(s, w)
	}
}

// frozenFor is how long the process of a kubelet is stopped.
const frozenFor = time.Minute

// kubeletFrozen is a node whose kubelet is stopped for a while, and nothing else.
func kubeletFrozen(s *bedtest.Scenario) {
	w := s.Workload("db")
	pod := s.Start(w)
	s.Must(s.Node(s.Nodes[0]).FreezeKubelet())
	leftAlone(s, frozenFor, pod)
	s.Must(s.Node(s.Nodes[0]).ThawKubelet())
	settled(s, w)
	now, err := s.WaitRunning(s.Ctx, w, s.Nodes[0])
	s.Must(err)
	if now.UID != pod.UID {
		s.T.Error("the pod was replaced")
	}
}

// kubeletFrozenAmid is a living node that loses DRBD's network while its kubelet is stopped, which goes on after the fail-over.
func kubeletFrozenAmid(s *bedtest.Scenario) {
	w := failing(s)
	s.Start(w)
	frozen := time.Now()
	s.Must(s.Node(s.Nodes[0]).FreezeKubelet())
	s.IsolateDRBD(s.Nodes[0])
	s.WaitMoved(w, s.Nodes[0], frozen)
	pass(s, time.Until(frozen.Add(frozenFor)))
	s.Must(s.Node(s.Nodes[0]).ThawKubelet())
	s.RejoinDRBD(s.Nodes[0])
	settled(s, w)
}

// cutWhileTerminating is a pod that takes its time to stop on a living node that loses DRBD's network meanwhile.
func cutWhileTerminating(s *bedtest.Scenario) {
	w := failing(s)
	w.Annotations = map[string]string{machine.AnnotationStopDelay: "10m"}
	w.Mutate = func(template *corev1.PodTemplateSpec) { template.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	pod := s.Start(w)
	s.Must(s.Client.Delete(s.Ctx, &pod))
	pass(s, 2*time.Second)
	cut := time.Now()
	s.IsolateDRBD(s.Nodes[0])
	s.WaitMoved(w, s.Nodes[0], cut)
	movedSafely(s, w, s.Nodes[0])
}

// failing is a workload whose reads and writes fail without quorum.
func failing(s *bedtest.Scenario) bed.Workload {
	w := s.Workload("db")
	w.Volumes[0].Options = map[string]string{drbd.OptionOnNoQuorum: drbd.OnNoQuorumIOError}
	return w
}

// settled waits until one pod of a workload runs, and its volume is attached, in use and writable there and only there, and checks that
// this stays so.
func settled(s *bedtest.Scenario, w bed.Workload) {
	s.T.Helper()
	volume := volumeOf(w)
	s.Must(s.WaitFor(s.Ctx, "all to be in order", func() (bool, error) {
		pods, err := s.Pods(s.Ctx, w)
		if err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning || pods[0].DeletionTimestamp != nil {
			return false, fmt.Errorf("%d pods, not one that runs: %w", len(pods), err)
		}
		for _, node := range s.Nodes {
			here := node == pods[0].Spec.NodeName
			attached, used, writes := attachmentOf(s, volume, node) != "", inUse(s, node, volume), s.DRBD.CanWrite(volume, node)
			if attached != here || used != here || writes != here || keptAway(s, node) {
				return false, fmt.Errorf("node %s: the pod is there: %t, attached: %t, in use: %t, can write: %t, tainted: %t",
					node, here, attached, used, writes, keptAway(s, node))
			}
		}
		return true, nil
	}))
	if s.DRBD.Diverged(volume) {
		s.T.Errorf("the replicas of %s differ", volume)
	}
	pod, err := s.WaitRunning(s.Ctx, w)
	s.Must(err)
	s.T.Logf("the pod runs on %s", pod.Spec.NodeName)
	s.Unchanged(pod, 15*time.Second)
}

// ownersOfAllKinds is the crash of a node with pods of a Deployment, a Job and a DaemonSet, and a static pod.
func ownersOfAllKinds(s *bedtest.Scenario) {
	lost := s.Nodes[0]
	web, job, daemon := s.Workload("web"), s.Workload("job"), s.Workload("daemon")
	web.Deployment = true
	s.Start(web)
	daemon.Nodes = s.Nodes[:1]
	for _, w := range []bed.Workload{job, daemon} {
		s.Must(s.CreateVolume(s.Ctx, s.Name, w.Volumes[0]))
	}
	once, always := job.Template(), daemon.Template()
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.Must(s.Client.Create(s.Ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "job"}, Spec: batchv1.JobSpec{Template: once}}))
	s.Must(s.Client.Create(s.Ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "daemon"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: daemon.Selector()}, Template: always,
	}}))
	s.Must(s.Node(lost).RunStatic(fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"namespace": %q, "name": "static", "labels": {%q: %q}},
		"spec": {"containers": [{"name": "app", "image": "example.com/app"}]}}`, s.Name, bed.SelectedLabel, bed.SelectedValue)))
	_, err := s.WaitRunning(s.Ctx, job, lost)
	s.Must(err)
	bound, err := s.WaitRunning(s.Ctx, daemon, lost)
	s.Must(err)
	mirror := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "static-" + lost}}
	runs := func() bool {
		err := s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&mirror), &mirror)
		return err == nil && mirror.Status.Phase == corev1.PodRunning
	}
	waitUntil(s, "the static pod to run", runs)
	uid := mirror.UID

	crashed := time.Now()
	s.Crash(lost)
	s.WaitMoved(web, lost, crashed)
	s.WaitMoved(job, lost, crashed)
	waitEvent(s, "NodeBound", "Pod", s.Name, bound.Name)
	s.Unchanged(bound, 10*time.Second)
	s.Return(lost)
	for _, w := range []bed.Workload{web, job} {
		settled(s, w)
	}
	again, err := s.WaitRunning(s.Ctx, daemon, lost)
	s.Must(err)
	waitUntil(s, "the static pod to run again", runs)
	if again.UID != bound.UID || mirror.UID != uid {
		s.T.Error("the pod of the DaemonSet or the static pod was replaced")
	}
}
