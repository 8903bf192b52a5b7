package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSoonest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		added []time.Duration
		want  time.Duration
	}{
		"of nothing is none":                   {nil, 0},
		"of a zero is none":                    {[]time.Duration{0}, 0},
		"is the only one":                      {[]time.Duration{3}, 3},
		"is the smallest, wherever it comes":   {[]time.Duration{3, 2, 4}, 2},
		"is not the zero of one that is never": {[]time.Duration{3, 0, 4}, 3},
		"is not what is over already":          {[]time.Duration{3, -1}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s soonest
			for _, d := range tc.added {
				s.add(d)
			}
			if time.Duration(s) != tc.want {
				t.Errorf("%s, want %s", time.Duration(s), tc.want)
			}
		})
	}
}

func TestAVolumeOfAnotherDriverIsNobodysBusiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		g := &s.decide.gather
		g.watch.linstor, g.inputs.Linstor, g.memory = noLinstor{}, noLinstor{}, newSettingsMemory(noLinstor{})
		s.decide.reporter.linstor, s.decide.reporter.inputs.Linstor = noLinstor{}, noLinstor{}
		again := func() reconcile.Result {
			t.Helper()
			result, err := s.decide.Reconcile(s.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.pv)})
			s.must(err)
			return result
		}
		s.decide.reconcileInterval = time.Minute
		if got := again(); got.RequeueAfter != time.Minute {
			t.Errorf("a volume of ours is looked at again in %s, want %s", got.RequeueAfter, time.Minute)
		}
		s.pv.Spec.CSI.Driver = "other.example.com"
		s.must(s.api.Update(s.ctx, s.pv))
		if got := again(); got != (reconcile.Result{}) {
			t.Errorf("a volume of another driver is looked at again: %+v", got)
		}
	})
}
