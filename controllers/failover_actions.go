package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

const (
	// retryAct is how soon an act that is under way is looked at again when nothing else calls for it.
	retryAct = time.Second
	// maxTurns bounds how often one call goes round; what is not done by then is done by the next.
	maxTurns = 4
)

// act moves the workload of the volume off the node, in one order: confirm, see that the grace has passed, keep new pods away, mark
// the attachment, remove the pods, see that they are gone, release and delete the attachment. Each step is idempotent, and each
// deletion follows a confirmation of its own; whoever leads next begins at the top.
//
// The decision returned is the newest one, on the input that goes with it; its After says when to come back.
func (r *FailoverReconciler) act(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input,
) (failover.Input, failover.Decision, error) {
	detaches, rest := r.rest(pv.Name, in)
	if rest > 0 {
		d := failover.Decide(in)
		d.After = rest
		return in, d, nil
	}
	if in.Halt = r.halt.now(ctx); in.Halt.Guard != "" || in.Halt.Paused != "" {
		// Nothing will follow, so nobody need be asked.
		d := failover.Decide(in)
		r.report(ctx, pv, in, d)
		return in, d, nil
	}
	if detaches {
		return r.takeTurns(ctx, pv, in, &progress{})
	}
	removal := r.crowd.remove(in)
	defer removal.end()
	r.crowd.gather(ctx, in)
	return r.takeTurns(ctx, pv, in, removal)
}

// rest tells whether no pod is left to remove, and for how long there is nothing to do then: after the end of the last pod, until the
// cache shows it, and after the deletion of an attachment, when what follows is Kubernetes', each of whose steps calls for a look. A
// detach can wait for the removals of a crowd.
func (r *FailoverReconciler) rest(volume string, in failover.Input) (detaches bool, rest time.Duration) {
	ends, rest := r.reports.ends(volume, in)
	if len(in.Pods) > 0 && !ends {
		return false, 0
	}
	rest = max(rest, r.reports.restAfterDetach(volume, in))
	return true, max(rest, r.crowd.afterRemovals(in.Now, r.reports.removedAt(volume, in.Node.Name)))
}

// takeTurns confirms and takes one step, until nothing is left to do at the moment. It tells the crowd how far the removal is.
func (r *FailoverReconciler) takeTurns(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, removal *progress,
) (failover.Input, failover.Decision, error) {
	var d failover.Decision
	var emptied, readLease bool
	for range maxTurns {
		confirmed, err := r.confirmOnce(ctx, pv, in, emptied, removal.ended)
		if err != nil {
			return in, d, err
		}
		in = confirmed
		left := min(crowdAhead, failover.Decide(in).GraceLeft)
		removal.goOn(ctx, tainting, in, min(left+crowdGatherMax, crowdWait-r.age(in)))
		in.Halt = r.halt.now(ctx)
		in, d = r.waitForGrace(ctx, in, failover.Decide(in))
		if d.ReadLease && !readLease {
			readLease = true // it has become silent for long enough since it was read
			continue
		}
		d = r.keepPodsAway(ctx, in, d)
		if len(in.Pods) == 0 && in.Attachment == nil {
			return in, d, nil // Kubernetes has finished it meanwhile
		}
		r.report(ctx, pv, in, d)
		if d.Verdict != failover.Lost {
			return in, d, nil
		}
		d.After = untilDue(in)
		var over bool
		if len(in.Pods) == 0 {
			emptied = false
			removal.end()
			over, err = r.detach(ctx, pv, in, d)
			if rest := r.reports.restAfterDetach(pv.Name, in); rest > 0 {
				d.After = rest
			}
		} else {
			removal.goOn(ctx, beforeMark, in, min(crowdGatherMax, crowdWait-r.age(in)))
			emptied, over, err = r.removeOne(ctx, pv, &in, d, removal)
		}
		if err != nil || over {
			return in, d, err
		}
	}
	return in, d, nil
}

// removeOne removes a pod, and marks the attachment before where that is wanted. It tells whether it was the last one, and
// whether nothing can follow at the moment. Where neither is true another confirmation is wanted.
func (r *FailoverReconciler) removeOne(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, d failover.Decision, removal *progress,
) (emptied, over bool, err error) {
	if r.crowd.many() && endAtOnce(*in) {
		return r.removeInCrowd(ctx, pv, in, removal)
	}
	removal.to(removing) // or will be at once: it waits for nobody
	if r.isOld(*in) {
		return false, false, nil // the taint has taken so long that the reading is old
	}
	if in.Attachment, err = r.mark(ctx, *in, d); err != nil {
		return false, true, err
	}
	if r.isOld(*in) || in.Attachment != nil && !in.Attachment.Noted {
		return false, false, nil // the mark has, or the attachment is gone
	}
	removed, err := r.removeAll(ctx, pv, *in, d)
	return len(in.Pods) == 1, !removed, err
}

// confirmOnce confirms before anything is removed; where the last pod was just removed by in, that is what counts if it can. It is
// known to be gone where it is the one of the UID ended.
func (r *FailoverReconciler) confirmOnce(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, emptied bool, ended types.UID,
) (failover.Input, error) {
	if emptied {
		if again, ok, err := r.confirmEmptied(ctx, pv, in, ended); ok || err != nil {
			return again, err
		}
	}
	return r.confirm(ctx, pv, in.Node.Name)
}

// untilDue is how soon an act is looked at again when nothing else calls for it: soon, and when the time is up that a pod
// was given to stop.
func untilDue(in failover.Input) time.Duration {
	after := retryAct
	for _, pod := range in.Pods {
		if left := pod.DeleteBy.Sub(in.Now); left > 0 {
			after = min(after, left)
		}
	}
	return after
}

// keepPodsAway keeps new pods away from the node before the first of its pods is removed. Where that fails, the
// replacement might be placed there again, and the decision is to wait.
func (r *FailoverReconciler) keepPodsAway(ctx context.Context, in failover.Input, d failover.Decision) failover.Decision {
	if d.Verdict != failover.Lost || len(in.Pods) == 0 {
		return d
	}
	if err := r.keepAway.Ensure(ctx, in, d); err != nil {
		d.Verdict, d.Reason, d.Message, d.After = failover.Blocked, failover.KeepAwayFailed, err.Error(), retryAct
	}
	return d
}

// isOld tells whether so much time has passed since a confirmation that nothing may be deleted by it any more.
func (r *FailoverReconciler) isOld(in failover.Input) bool { return r.age(in) > failover.MaxAge }

// whileFresh returns a context in which a write is sent, by client-go also repeatedly, only until what was read is old.
func (r *FailoverReconciler) whileFresh(ctx context.Context, in failover.Input) context.Context {
	return sendby.With(ctx, r.freshUntil(in))
}

// freshUntil is when what was read becomes old, by the machine's clock.
func (r *FailoverReconciler) freshUntil(in failover.Input) time.Time {
	return time.Now().Add(failover.MaxAge - r.age(in))
}

// age is how much time has passed since LINSTOR was asked for a confirmation, at the beginning of which that is, or since the pods of the
// node were listed, where that is longer ago and a pod is to be removed: another one may have come since.
func (r *FailoverReconciler) age(in failover.Input) time.Duration {
	oldest := in.Asked
	if len(in.Pods) > 0 && !in.Listed.IsZero() && in.Listed.Before(oldest) {
		oldest = in.Listed
	}
	return r.clock.Now().Sub(oldest)
}
