package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

func registered(t *testing.T, m *Metrics) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(append(m.Collectors(), BuildInfo())...)
	return registry
}

// A rule about a series that does not exist yet says nothing, and a rate misses its first increment.
func TestEverySeriesExistsFromTheStart(t *testing.T) {
	t.Parallel()
	families, err := registered(t, New()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]int{}
	for _, family := range families {
		exist[strings.TrimPrefix(family.GetName(), namespace+"_")] = len(family.GetMetric())
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.ContainsAny(label.GetValue(), " \t\n") {
					t.Errorf("%s: label %s has the value %q, which is no word", family.GetName(), label.GetName(), label.GetValue())
				}
			}
		}
	}
	const withBuild, withoutNodes = 1, 1 // evacuation_volumes has a label for the node: it has a series while one is evacuated
	if got, want := len(exist), len(New().Collectors())+withBuild-withoutNodes; got != want {
		t.Errorf("%d of %d metrics exist: %v", got, want, exist)
	}
	for name, want := range map[string]int{
		"volumes": 5, "blocked_volumes": len(failover.Reasons()), "failovers_blocked_total": len(failover.Reasons()),
		"failovers_total": 5, "failovers_completed_total": 5, "pods": 6, "unprotected_pods": len(failover.Hindrances()), "tainted_nodes": 2,
		"failover_errors_total": len(steps) * len(usualCodes), "failover_duration_seconds": 5, "build_info": 1,
		"evacuation_copies_total": 3, "evacuation_requests_total": 8, "evacuation_duration_seconds": 2,
	} {
		if exist[name] != want {
			t.Errorf("%s has %d series, want %d", name, exist[name], want)
		}
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	faults, err := testutil.GatherAndLint(registered(t, New()))
	if err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
}

func TestCodesOfRequestsThatFailed(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"the API server forbids it":                                 {fmt.Errorf("deleting: %w", apierrors.NewForbidden(pods, "db-0", nil)), "403"},
		"the API server is too busy":                                {apierrors.NewTooManyRequests("later", 1), "429"},
		"the API server does not answer in time":                    {fmt.Errorf("marking: %w", context.DeadlineExceeded), "timeout"},
		"nobody is there":                                           {errors.New("connection refused"), "error"},
		"of several errors the one counts that the API server gave": {errors.Join(errors.New("no"), apierrors.NewConflict(pods, "db-0", nil)), "409"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := New()
			m.Failed(StepDelete, tc.err)
			if n := testutil.ToFloat64(m.errors.WithLabelValues("delete", tc.want)); n != 1 {
				t.Errorf("counted %g times under %s, want once", n, tc.want)
			}
		})
	}
}

// Only the leader's decisions are waited for.
func TestAReplicaThatDoesNotLeadTimesNoDecision(t *testing.T) {
	t.Parallel()
	m := New()
	m.EventDecided(time.Minute)
	m.Lead()
	m.EventDecided(time.Second)
	families, err := registered(t, m).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == namespace+"_event_to_decision_seconds" {
			if h := family.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 1 {
				t.Errorf("%d decisions were timed, in all %g s", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
}

// A node that is not evacuated any more has no series, or it would seem to be for ever.
func TestANodeThatReturnsHasNoSeries(t *testing.T) {
	t.Parallel()
	m := New()
	m.Evacuating("a", map[evacuation.Reason]int{evacuation.Copying: 2, evacuation.CopiedElsewhere: 1})
	m.Evacuating("b", map[evacuation.Reason]int{evacuation.CopiedElsewhere: 3})
	m.Evacuating("a", map[evacuation.Reason]int{evacuation.CopiedElsewhere: 3})
	if n := testutil.CollectAndCount(m.evacuations.volumes); n != 2 {
		t.Errorf("%d series for two nodes of which all volumes are safe", n)
	}
	m.Evacuating("a", nil)
	if n := testutil.CollectAndCount(m.evacuations.volumes); n != 1 {
		t.Errorf("%d series for one node", n)
	}
}
