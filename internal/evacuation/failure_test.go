package evacuation

import (
	"testing"
	"time"
)

// TestFailure has for how long LINSTOR is not told again what it has refused.
func TestFailure(t *testing.T) {
	t.Parallel()
	var f Failure
	if f.Holds(now) {
		t.Error("a call that has not failed holds")
	}
	for times, want := range []time.Duration{
		Interval, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 10 * time.Minute,
	} {
		f = f.Again(now, "no")
		if !f.Holds(now.Add(want-1)) || f.Holds(now.Add(want)) {
			t.Errorf("failed %d times it does not hold for %s", times+1, want)
		}
	}
	if f.Words != "no" || f.Times != 6 || !f.At.Equal(now) {
		t.Errorf("got %+v", f)
	}
}
