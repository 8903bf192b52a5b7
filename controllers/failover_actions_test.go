package controllers

import (
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

func TestAnActIsLookedAtAgainWhenAPodHasHadItsTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		left []time.Duration // until the end of the time that a pod was given to stop
		want time.Duration
	}{
		"there is no pod":                      {nil, retryAct},
		"a pod has more time than that":        {[]time.Duration{10 * time.Second}, retryAct},
		"the time of one of two is nearly up":  {[]time.Duration{300 * time.Millisecond, 10 * time.Second}, 300 * time.Millisecond},
		"the time of both is nearly up":        {[]time.Duration{300 * time.Millisecond, 200 * time.Millisecond}, 200 * time.Millisecond},
		"a pod's time is up at this moment":    {[]time.Duration{0}, retryAct},
		"a pod's time has been up for a while": {[]time.Duration{-time.Minute}, retryAct},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := failover.Input{Now: now}
			for _, left := range tc.left {
				in.Pods = append(in.Pods, failover.Pod{DeleteBy: now.Add(left)})
			}
			if got := untilDue(in); got != tc.want {
				t.Errorf("looked at again in %s, want %s", got, tc.want)
			}
		})
	}
}
