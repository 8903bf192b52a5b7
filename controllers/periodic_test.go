package controllers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func TestAPeriodicGoesOnAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		times := 0
		p := periodic{name: "test", every: time.Second, do: func(context.Context) error {
			if times++; times == 3 {
				cancel()
			}
			panic("a bug")
		}}
		if err := p.Start(ctx); err != nil || times != 3 {
			t.Errorf("it ended after %d times with %v, want after three without an error", times, err)
		}
	})
}

// A replica that does not lead keeps in mind what the next leader needs to act at once, and changes nothing.
func TestWhatAReplicaDoesThatDoesNotLead(t *testing.T) {
	t.Parallel()
	want := map[string]bool{
		"guard": true, "gone-replicas": true, "node-agents": true, "linstor-sight": true,
		"recovery": false, "protection": false, "gauges": false,
	}
	p := parts{
		gone: &goneReplicas{}, agents: &nodeAgents{}, sight: &linstorSight{}, recovery: &Recovery{},
	}
	got := make(map[string]bool)
	for _, runnable := range p.periodics() {
		got[runnable.(periodic).name] = !runnable.(manager.LeaderElectionRunnable).NeedLeaderElection()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what each replica does (-want +got):\n%s", diff)
	}
}
