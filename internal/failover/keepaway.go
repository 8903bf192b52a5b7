package failover

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// KeepAwayEffect is the effect of the taint that keeps replacements away from A: hard while A is out of reach
// as a whole or every volume in use there is lost, soft while others there are well. The states are those of the
// other volumes in use on A.
func KeepAwayEffect(lost State, others []State) corev1.TaintEffect {
	if lost == Unreachable {
		return corev1.TaintEffectNoSchedule
	}
	if slices.Contains(others, PrimaryUp) {
		return corev1.TaintEffectPreferNoSchedule
	}
	return corev1.TaintEffectNoSchedule
}

// KeepAwayHolds tells whether the cause of a taint on A persists: its satellite is not known to be ONLINE, its kubelet is
// silent, or a resource that caused the taint has not got its quorum back there. What is unknown keeps the
// taint, which then ends with its expiry.
func KeepAwayHolds(now time.Time, node Node, settings Settings, online Fact[bool], causes []Resource) bool {
	if !freshFact(online, now).is(true) || node.LeaseSilent(settings.KubeletSilence) {
		return true
	}
	for _, r := range causes {
		fresh := r.freshened(now)
		replica, ok := fresh.Replica(node.satellite())
		if !fresh.Known || ok && !(replica.Score.Known && replica.Score.Value > 0) {
			return true
		}
	}
	return false
}

// StateOf is A's state of R by the newest values, however old they are.
func StateOf(in Input) State { return assess(in).cond.state }
