package controllers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// polled is a LINSTOR that knows nothing, and counts how often it is to be asked.
type polled struct {
	noLinstor
	times *int
}

func (p polled) Poll(string) { *p.times++ }

// Why nothing is done about a loss is told once: to the pod, the log and the metrics. What the decision itself has told, or rests on a
// step that is under way, is not counted twice. LINSTOR is asked by who explains where nobody else comes back for it.
func TestWhoIsToldWhyNothingIsDone(t *testing.T) {
	t.Parallel()
	refused := errors.New("the API refused")
	for name, tc := range map[string]struct {
		d       failover.Decision
		failed  error
		logged  bool
		counted failover.Reason
		polls   bool
	}{
		"nobody can take over": {
			d:      failover.Decision{Verdict: failover.NotLost, Reason: failover.NoSurvivor},
			logged: true, counted: failover.NoSurvivor, polls: true,
		},
		"nobody can take over, and the decision is made anew soon": {
			d:      failover.Decision{Verdict: failover.NotLost, Reason: failover.NoSurvivor, After: time.Second},
			logged: true, counted: failover.NoSurvivor,
		},
		"too little is known": {
			d:      failover.Decision{Verdict: failover.Undecided, Reason: failover.StateUnknown},
			logged: true, counted: failover.StateUnknown, polls: true,
		},
		"a gate forbids it": {d: failover.Decision{Verdict: failover.Blocked, Reason: failover.Paused}, polls: true},
		"a gate forbids it, and a step has failed": {
			d: failover.Decision{Verdict: failover.Blocked, Reason: failover.Paused}, failed: refused,
			logged: true, counted: failover.StepFailed, polls: true,
		},
		"its grace is long":   {d: failover.Decision{Verdict: failover.Pending, Reason: failover.NodeUnreachable}, logged: true, polls: true},
		"it is about to move": {d: failover.Decision{Verdict: failover.Lost, Reason: failover.NodeUnreachable}, logged: true, polls: true},
		"a step has failed": {
			d: failover.Decision{Verdict: failover.Lost, Reason: failover.NodeUnreachable}, failed: refused,
			logged: true, counted: failover.StepFailed, polls: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, polls, lines, events := start.Time, 0, []string(nil), &eventLog{}
			m := metrics.New()
			r := &reporter{
				linstor: polled{times: &polls}, recorder: events, waits: newWaits(), verdicts: newVerdicts(),
				reports: newReports(m, func() time.Time { return now }),
			}
			ctx := ctrl.LoggerInto(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
			in := failover.Input{
				Now:  now,
				Node: failover.Node{Name: nodeA, LeaseKnown: true, LeaseSilence: time.Minute},
				Pods: []failover.Pod{{Namespace: "default", Name: "db-0", UID: "1", Selected: true}},
			}
			for range 3 {
				in.LinstorConfirmed = in.Now
				r.explain(ctx, pv, in, tc.d, tc.failed)
				in.Now = in.Now.Add(failover.WaitLimit)
			}
			reason := tc.d.Reason
			if tc.failed != nil {
				reason = failover.StepFailed
			}
			if n := events.count(string(reason), "db-0"); n != 1 {
				t.Errorf("the pod was told %s %d times, want once", reason, n)
			}
			said := slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "Nothing is done about a loss") })
			if said != tc.logged {
				t.Errorf("the log says it: %t, want %t: %v", said, tc.logged, lines)
			}
			want := map[string]float64{}
			if tc.counted != "" {
				want["piraeus_ha_controller_failovers_blocked_total reason="+string(tc.counted)] = 1
			}
			counted, err := valuesOf(m.Collectors())
			if diff := cmp.Diff(want, counted); err != nil || diff != "" {
				t.Errorf("counted, %v (-want +got):\n%s", err, diff)
			}
			if (polls > 0) != tc.polls {
				t.Errorf("LINSTOR was to be asked %d times, want it to: %t", polls, tc.polls)
			}
		})
	}
}
