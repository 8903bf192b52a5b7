package forecast

import (
	"slices"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// A runtime that does not end a pod keeps its volume; a pod that has time left, has ended, or whose kubelet is dead is another matter.
func TestAPodThatItsRuntimeDoesNotEndIsFound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(*failover.Input)
		found  bool
	}{
		"it runs long after its grace":  {func(*failover.Input) {}, true},
		"it is not deleted":             {func(in *failover.Input) { in.Pods[0].Terminating = false }, false},
		"its grace has just ended":      {func(in *failover.Input) { in.Pods[0].Deleting = now.Add(-70 * time.Second) }, false},
		"its containers have ended":     {func(in *failover.Input) { in.Pods[0].Runs = false }, false},
		"its kubelet is silent":         {func(in *failover.Input) { in.Node.LeaseSilence = time.Minute }, false},
		"nothing is known of a kubelet": {func(in *failover.Input) { in.Node.LeaseKnown = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := failover.Input{
				Now: now, Settings: failover.Settings{KubeletSilence: 20 * time.Second}, Node: failover.Node{Name: "node-a", LeaseKnown: true, LeaseSilence: time.Second},
				Pods: []failover.Pod{{
					Namespace: "default", Name: "db-0", Terminating: true, Runs: true, Grace: 30 * time.Second, Deleting: now.Add(-5 * time.Minute),
				}},
			}
			c.change(&in)
			e := Evaluate(Facts{})
			e.Add("default", "db-0", []cluster.Use{{Namespace: "default", Pod: "db-0", Volume: "db", Input: in}})
			i := slices.IndexFunc(e.Report().Findings, func(f Finding) bool { return f.Code == RuntimeStuck })
			if found := i >= 0; found != c.found {
				t.Errorf("found: %t, want %t", found, c.found)
			}
			if i >= 0 && !slices.Equal(e.Report().Findings[i].Objects, []string{"default/db-0 on node-a"}) {
				t.Errorf("found of %q", e.Report().Findings[i].Objects)
			}
		})
	}
}
