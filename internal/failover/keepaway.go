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

// TaintCause is what is known of the cause of a taint that keeps replacements away from A.
type TaintCause string

const (
	// TaintCauseLasts : A's satellite is not ONLINE, its kubelet is silent, or a resource that caused the taint has not got its quorum back there.
	TaintCauseLasts TaintCause = "Lasts"
	// TaintCauseUnknown : it cannot be told. Where nobody will ever tell, the taint stays until it expires.
	TaintCauseUnknown TaintCause = "Unknown"
	// TaintCauseGone : A is well, and so are the resources that caused the taint, or they have nothing there any more.
	TaintCauseGone TaintCause = "Gone"
)

// TaintCauseOf is what is known of the cause of a taint on A by one of the resources that caused it, or by the node alone where there is none.
// A replica that is being deleted, is inactive, or is not listed any more, is no cause: it never has quorum again, and no pod needs the node for it.
func TaintCauseOf(now time.Time, node Node, settings Settings, online Fact[bool], resource *Resource) TaintCause {
	switch online = freshFact(online, now); {
	case node.LeaseSilent(settings.KubeletSilence), online.is(false):
		return TaintCauseLasts
	case !online.Known:
		return TaintCauseUnknown
	case resource == nil:
		return TaintCauseGone
	}
	fresh := resource.freshened(now)
	replica, ok := fresh.Replica(node.satellite())
	switch {
	case !fresh.Known:
		return TaintCauseUnknown
	case ok && !replica.Leaving && !replica.Gone && !(replica.Score.Known && replica.Score.Value > 0):
		return TaintCauseLasts
	}
	return TaintCauseGone
}

// StateOf is A's state of R by the newest values, however old they are.
func StateOf(in Input) State { return assess(in).cond.state }
