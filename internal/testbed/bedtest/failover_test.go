package bedtest_test

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { bedtest.Main(m) }

// promised is the time from a crash to the replacement Running that a test accepts: 10 s until DRBD
// notices, 5 s of grace, the rest for a machine that has other things to do. Without the removal from
// volumesInUse it would be up to a minute more.
const promised = 40 * time.Second

func TestFailover(t *testing.T) {
	t.Parallel()
	bed := bedtest.Shared(t)

	t.Run("a selected pod moves when its node crashes, one that is not selected stays", func(t *testing.T) {
		t.Parallel()
		s := bedtest.New(t, bed, 3)
		selected, other := s.Workload("selected"), s.Workload("other")
		other.Unselected = true
		s.Start(selected)
		otherPod := s.Start(other)
		crashed := time.Now()
		s.Crash(s.Nodes[0])
		if took := s.WaitMoved(selected, s.Nodes[0], crashed); took > promised {
			t.Errorf("that took %s, want at most %s", took, promised)
		}
		s.Unchanged(otherPod, 10*time.Second)
	})

	t.Run("all pods of a node move when it crashes", func(t *testing.T) {
		t.Parallel()
		s := bedtest.New(t, bed, 3)
		w := s.Workload("first")
		s.Start(w)
		deployment := s.Workload("second")
		deployment.Deployment = true
		s.Start(deployment)
		crashed := time.Now()
		s.Crash(s.Nodes[0])
		s.WaitMoved(w, s.Nodes[0], crashed)
		if took := s.WaitMoved(deployment, s.Nodes[0], crashed); took > promised {
			t.Errorf("that took %s, want at most %s", took, promised)
		}
	})

	t.Run("a pod moves when its living node loses the DRBD network", func(t *testing.T) {
		t.Parallel()
		s := bedtest.New(t, bed, 3)
		w := s.Workload("db")
		s.Start(w)
		isolated := time.Now()
		s.IsolateDRBD(s.Nodes[0])
		if took := s.WaitMoved(w, s.Nodes[0], isolated); took > promised+20*time.Second {
			t.Errorf("that took %s, want a grace for the pod to stop in addition at most", took)
		}
	})

	t.Run("a pod moves a second time", func(t *testing.T) {
		t.Parallel()
		s := bedtest.New(t, bed, 3)
		w := s.Workload("db")
		w.Volumes[0].Diskful = true
		s.Start(w)
		s.Crash(s.Nodes[0])
		pod, err := s.WaitRunning(s.Ctx, w, s.Nodes[1:]...)
		s.Must(err)
		s.Return(s.Nodes[0])
		s.Must(s.WaitFor(s.Ctx, "node "+s.Nodes[0]+" to have its data again", func() (bool, error) {
			state, _ := s.DRBD.Replica(w.Volumes[0].Name, s.Nodes[0])
			return state.DiskState == "UpToDate" && s.LINSTOR.ConnectionStatus(s.Nodes[0]) == "ONLINE", nil
		}))
		crashed := time.Now()
		s.Crash(pod.Spec.NodeName)
		if took := s.WaitMoved(w, pod.Spec.NodeName, crashed); took > promised {
			t.Errorf("that took %s, want at most %s", took, promised)
		}
	})

	for name, harmless := range map[string]func(s *bedtest.Scenario){
		"a pod stays when only its kubelet loses the API":       func(s *bedtest.Scenario) { s.PartitionAPI(s.Nodes[0]) },
		"a pod stays when only its satellite is out of reach":   func(s *bedtest.Scenario) { s.CutLINSTOR(s.Nodes[0]) },
		"a pod stays when one DRBD link of its node is cut":     func(s *bedtest.Scenario) { s.DRBD.CutLink(s.Nodes[0], s.Nodes[1]) },
		"a pod stays when another node of its volume crashes":   func(s *bedtest.Scenario) { s.Crash(s.Nodes[1]) },
		"a pod stays when both other nodes lose DRBD's network": func(s *bedtest.Scenario) { s.IsolateDRBD(s.Nodes[1:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bedtest.New(t, bed, 3)
			pod := s.Start(s.Workload("db"))
			harmless(s)
			s.Unchanged(pod, 30*time.Second)
			s.DRBD.HealLink(s.Nodes[0], s.Nodes[1])
		})
	}
}
