package bedtest

import (
	"context"
	"slices"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// askingTime bounds how long the leader is asked before a crash: without a leader there is no forecast.
const askingTime = 5 * time.Second

// Crash lets nodes crash. Where it is one, what the leader foretells of its pods right before is compared with what the controller has done by
// the end of the test, and what differs is logged: more than that crash may have happened since.
func (s *Scenario) Crash(nodes ...string) {
	s.T.Helper()
	if len(nodes) != 1 {
		s.Bed.Crash(nodes...)
		return
	}
	rows, crashed := s.forecast(), time.Now()
	s.Bed.Crash(nodes...)
	foretold := map[string]failover.Outlook{}
	for _, row := range rows {
		if row.Node == nodes[0] && foretold[row.Pod] != failover.Unprotected { // which outweighs the others, as in the report's summary
			foretold[row.Pod] = row.Verdict
		}
	}
	s.T.Cleanup(func() {
		for pod, verdict := range foretold {
			removed := slices.ContainsFunc(s.ControllerRequests(), func(r bed.Request) bool {
				return r.Verb == "delete" && r.Resource == "pods" && r.Name == pod && r.At.After(crashed)
			})
			as := "as"
			if known := verdict == failover.Protected || verdict == failover.Unprotected; known && removed != (verdict == failover.Protected) {
				as = "OTHERWISE THAN"
			}
			s.T.Logf("pod %s was foretold %s, and removed: %t (%s foretold)", pod, verdict, removed, as)
		}
	})
}

// forecast is what the leader foretells of the scenario's pods, nothing if none answers.
func (s *Scenario) forecast() []forecast.Row {
	ctx, cancel := context.WithTimeout(s.Ctx, askingTime)
	defer cancel()
	for _, p := range s.ControllerProcesses() {
		if report, err := forecast.Ask(ctx, p.ForecastPort, forecast.Question{Namespace: s.Name}); err == nil && report.Process.Leads {
			return report.Volumes
		}
	}
	return nil
}
