package scenarios_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

// TestLinstorIsBlind crashes the node of a workload after LINSTOR has lost its connector, and so calls that node ONLINE for ever. By all
// defaults of the shipped manifest.
func TestLinstorIsBlind(t *testing.T) {
	t.Parallel()
	b := bedtest.Own(t, "scenarios-blind", bed.Options{})
	s := bedtest.New(t, b, 3)
	linstor := piraeus(s, bed.LINSTORComponent)
	linstor.PreferNode = s.Nodes[2]
	s.LINSTOR.ResetRequests()
	first := s.Start(linstor)
	waitUntil(s, "all replicas of the controller to have read everything", func() bool {
		return s.LINSTOR.Requests()[linstorsim.KindView] >= 3 && s.LINSTOR.Streams() >= 3
	})
	w := s.Workload("db")
	pod := s.Start(w)
	s.LINSTOR.LoseConnector()
	waitUntil(s, "the check to say that LINSTOR is blind", func() bool { // LINSTOR's answers must come in time for that
		report, _ := runCheck(s)
		return slices.ContainsFunc(report.Findings, func(f forecast.Finding) bool {
			return f.Code == forecast.Code(failover.LinstorBlind) && slices.Contains(f.Objects, s.Nodes[0])
		})
	})
	leftAlone(s, 10*time.Second, pod, first)

	crashed := time.Now()
	s.Crash(s.Nodes[0])
	waitUntil(s, "LINSTOR's pod to be deleted", func() bool {
		var pod corev1.Pod
		s.Must(client.IgnoreNotFound(s.Client.Get(s.Ctx, client.ObjectKeyFromObject(&first), &pod)))
		return pod.UID != first.UID || pod.DeletionTimestamp != nil
	})
	after := time.Since(crashed)
	t.Logf("LINSTOR's pod was deleted %.1f s after the crash", after.Seconds())
	if after < 20*time.Second {
		t.Errorf("LINSTOR's pod was deleted %s after the crash: the kubelet must be silent for 20 s, and then for 10 s between two answers", after)
	}
	s.WaitMoved(w, s.Nodes[0], crashed)
	movedCleanly(s, w, s.Nodes[0])
	waitEvent(s, string(failover.LinstorBlind), "Pod", first.Namespace, first.Name)
	if n := podsCreated(s); n != 4 {
		t.Errorf("%d pods were created, want two and a replacement of each", n)
	}
	nothingForbidden(t, b)
}
