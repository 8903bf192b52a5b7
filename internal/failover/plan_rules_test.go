package failover

import "testing"

// A moment at which a pod's time is up is no reason to look again in no time at all: the removal follows by the same look.
func TestAPodWhoseTimeIsUpAtThisMomentIsLookedAtAgainSoon(t *testing.T) {
	t.Parallel()
	in := isolated()
	terminates(0)(&in.Pods[0])
	if plan := PlanFor([]Input{in}); plan.Volumes[0].Step != StepRemove || plan.Volumes[0].After != lookAgain {
		t.Errorf("step %q, and a look in %s, want %q and %s", plan.Volumes[0].Step, plan.Volumes[0].After, StepRemove, lookAgain)
	}
}
