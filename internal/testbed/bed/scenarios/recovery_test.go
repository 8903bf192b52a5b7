package scenarios_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// TestLinstorRunsOnTheLostNode crashes the node of a workload that also runs LINSTOR, and leaves a LINSTOR alone that
// does not answer on a node that lives. By all defaults of the shipped manifest.
//
//nolint:tparallel // the second begins where the first ends
func TestLinstorRunsOnTheLostNode(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-recovery", bed.Options{})
	s := bedtest.New(t, b, 3)
	linstor := piraeus(s, bed.LINSTORComponent)
	s.LINSTOR.ResetRequests()
	first := s.Start(linstor)
	// Who has never heard of the workload's quorum gives it more time: that is not what is measured here. From then on all
	// replicas of the controller hear of each change at once.
	waitUntil(s, "all replicas of the controller to have read everything", func() bool {
		// One may have read twice; that all follow the events tells that the others are there, too.
		return s.LINSTOR.Requests()[linstorsim.KindView] >= 3 && s.LINSTOR.Streams() >= 3
	})
	read := s.LINSTOR.Requests()[linstorsim.KindNodes]
	waitUntil(s, "all of them to read on: a volume that is made before is not seen to be new", func() bool {
		return s.LINSTOR.Requests()[linstorsim.KindNodes] >= read+6
	})
	w := s.Workload("db")
	s.Start(w)

	crashed := time.Now()
	s.Crash(s.Nodes[0])
	waitUntil(s, "LINSTOR's pod to be deleted", func() bool {
		var pod corev1.Pod
		s.Must(client.IgnoreNotFound(s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&first), &pod)))
		return pod.UID == "" || pod.DeletionTimestamp != nil
	})
	t.Logf("LINSTOR's pod was deleted %.1f s after the crash", time.Since(crashed).Seconds())
	second, err := s.WaitRunning(s.Ctx, linstor, s.Nodes[1:]...)
	s.Must(err)
	t.Logf("LINSTOR answers %.1f s after the crash, on %s", time.Since(crashed).Seconds(), second.Spec.NodeName)
	movedWithoutLINSTOR(s, w, &first, crashed)

	s.Return(s.Nodes[0])
	waitUntil(s, "the node to take pods again", func() bool { return len(nodeOf(s, s.Nodes[0]).Spec.Taints) == 0 })

	t.Run("a LINSTOR that is stuck on a node that lives is left alone", func(*testing.T) {
		pod, err := s.WaitRunning(s.Ctx, w)
		s.Must(err)
		s.LINSTOR.Stop()
		leftAlone(s, 30*time.Second, pod, second)
		s.LINSTOR.Start()
	})
	nothingForbidden(t, b)
}

// TestTheCSIControllerRunsOnTheLostNode crashes the node of a workload that also runs the CSI attacher: LINSTOR answers
// and the pod is moved, but nothing attaches its volume until there is another attacher. By all defaults of the shipped
// manifest.
func TestTheCSIControllerRunsOnTheLostNode(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-attacher", bed.Options{})
	s := bedtest.New(t, b, 3)
	attacher := piraeus(s, bed.CSIComponent)
	first := s.Start(attacher)
	w := s.Workload("db")
	s.Start(w)

	crashed := time.Now()
	s.Crash(s.Nodes[0])
	second, err := s.WaitRunning(s.Ctx, attacher, s.Nodes[1:]...)
	s.Must(err)
	t.Logf("an attacher runs %.1f s after the crash, on %s", time.Since(crashed).Seconds(), second.Spec.NodeName)
	movedWithoutLINSTOR(s, w, &first, crashed)
	nothingForbidden(t, b)
}

// movedWithoutLINSTOR waits until a workload has moved whose node also ran a pod that LINSTOR needs.
func movedWithoutLINSTOR(s *bedtest.Scenario, w bed.Workload, needed *corev1.Pod, crashed time.Time) {
	s.T.Helper()
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
	waitEvent(s, "LinstorGone", "Pod", needed.Namespace, needed.Name)
	if n := podsCreated(s); n != 4 {
		s.T.Errorf("%d pods were created, want two and a replacement of each", n)
	}
}

// piraeus returns a Deployment of LINSTOR itself, which starts on the first node.
func piraeus(s *bedtest.Scenario, component string) bed.Workload {
	return bed.Workload{
		Namespace: s.Name, Name: component, Deployment: true, Unselected: true, Nodes: s.Nodes, PreferNode: s.Nodes[0],
		Labels: map[string]string{bed.ComponentLabel: component},
		// As the Piraeus Operator has it: tolerations that would let it return to a node without storage.
		Mutate: func(template *corev1.PodTemplateSpec) {
			template.Spec.Tolerations = []corev1.Toleration{
				{Key: taintLostQuorum, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			}
			if component == bed.LINSTORComponent {
				template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(bed.LINSTORPort)},
				}}
			}
		},
	}
}
