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

// TestScenario shows what a scenario looks like. Most of them are in the package scenarios.
func TestScenario(t *testing.T) {
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

	for name, harmless := range map[string]func(s *bedtest.Scenario){
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
