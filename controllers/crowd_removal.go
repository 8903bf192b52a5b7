package controllers

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// waitForGrace waits until the grace has passed of an act that has begun before, and those of others that are many and pass soon, so that
// all write at the same time. It decides again by what it has read and what was heard since: the storage may be back.
func (r *FailoverReconciler) waitForGrace(ctx context.Context, in failover.Input, d failover.Decision) (failover.Input, failover.Decision) {
	if d.Verdict != failover.Pending || d.GraceLeft > crowdAhead || len(in.Pods) == 0 || !r.crowd.many() {
		return in, d
	}
	pause(ctx, d.GraceLeft-r.clock.Now().Sub(in.Now))
	pause(ctx, r.crowd.untilGracesPass(min(crowdGatherMax, crowdWait-r.age(in))))
	in = r.newest(in)
	in.Halt = r.halt.now(ctx)
	return in, failover.Decide(in)
}

// removeInCrowd marks the attachment and deletes the pods, each when its turn has come. The pods' condition and phase are left
// as they are: their objects are gone with the deletion, and setting them costs the API server several times what that does. in becomes
// the confirmation that they were removed by, and the removals of others are waited for while that can serve
// the detach. It tells whether the detach is next, and whether nothing can follow at the moment; the end of the pod calls for the detach, too.
func (r *FailoverReconciler) removeInCrowd(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, removal *progress,
) (emptied, over bool, err error) {
	if done, inTime, err := r.markInCrowd(ctx, pv, in, removal); err != nil || !done {
		return false, !inTime, err
	}
	removal.to(beforeRemoval)
	r.crowd.wait(ctx)
	if *in, err = r.reread(ctx, pv, *in, removal, removing); err != nil {
		return false, true, err
	}
	last, ended := false, false
	remove := func(by failover.Input, d failover.Decision) (bool, error) {
		if by.Attachment != nil && !by.Attachment.Noted {
			return false, nil // not the one that was marked, or somebody took the mark off
		}
		if err := r.keepAway.Ensure(ctx, by, d); err != nil {
			return false, nil //nolint:nilerr // it is tried and told again before the next confirmation
		}
		gone := false
		for _, pod := range by.Pods {
			var done bool
			if done, gone, err = r.deletePod(ctx, pv, by, d, pod, deletion{removal: failover.RemoveForce, asRead: true}); !done || err != nil {
				return done, err
			}
		}
		last = true
		*in, ended = by, gone && len(by.Pods) == 1 && r.keepAway.forbids(by)
		return true, nil
	}
	_, inTime, err := r.inTurn(ctx, pv, *in, r.crowd.removals, remove)
	if err != nil || !last {
		return false, !inTime, err
	}
	removal.end()
	r.reports.podEnds(pv.Name, *in)
	if ended {
		removal.ended = in.Pods[0].UID
	}
	few := r.crowd.waitForRemovals(ctx, recent-r.age(*in))
	return few, !few, nil
}

// markInCrowd marks the attachment when its turn has come, and puts it into in. It tells whether it is marked, or gone, and, where it is not,
// whether the turn came in time.
func (r *FailoverReconciler) markInCrowd(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, removal *progress,
) (done, inTime bool, err error) {
	if in.Attachment == nil || in.Attachment.Noted {
		return true, true, nil
	}
	if *in, err = r.reread(ctx, pv, *in, removal, marking); err != nil {
		return false, false, err
	}
	return r.inTurn(ctx, pv, *in, r.crowd.marks, func(by failover.Input, d failover.Decision) (done bool, err error) {
		in.Attachment, err = r.mark(ctx, by, d)
		return in.Attachment == nil || in.Attachment.Noted, err
	})
}

// reread confirms again before what comes next, unless that was done a moment ago: until then the API server has little else to do, and lists
// serve many. If that does not succeed before others are there, in is as old as it was, and is confirmed again in its turn.
func (r *FailoverReconciler) reread(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, removal *progress, next stage,
) (failover.Input, error) {
	if r.age(in) > crowdReread {
		readCtx, cancel := r.crowd.whileOthers(ctx, next)
		defer cancel()
		again, err := r.confirm(readCtx, pv, in.Node.Name)
		switch {
		case err == nil:
			in = again
			// The taint is looked for now, when the API server answers at once, so that it need not be in the turn.
			in.Halt = r.halt.now(ctx)
			r.keepPodsAway(readCtx, in, failover.Decide(in))
		case readCtx.Err() == nil || ctx.Err() != nil:
			return in, err
		}
	}
	patience := crowdWait - r.age(in)
	if next == marking {
		patience = min(patience, crowdGatherMax) // there are many more writes to come before this is read again
	}
	removal.goOn(ctx, next, in, patience)
	return in, nil
}

// inTurn takes a step of a removal by force in its turn, by another confirmation unless that of in is fresh, and by what was heard
// since. Where that is old before the step is done, it takes another turn: elsewhere it would have to list the pods of the node.
// It tells whether the step is done: not where the turn does not come in time, nor where the confirmation says something else or is
// old each time, and all has to be looked at anew.
func (r *FailoverReconciler) inTurn(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, underWay *semaphore.Weighted,
	step func(failover.Input, failover.Decision) (done bool, err error),
) (done, inTime bool, err error) {
	for range crowdTries {
		var again bool
		if done, inTime, again, err = r.tryInTurn(ctx, pv, &in, underWay, step); !again {
			return done, inTime, err
		}
	}
	return false, true, nil
}

// tryInTurn is inTurn once, and tells whether it is to be tried again: only where what was read is old. in is what the step rests on.
func (r *FailoverReconciler) tryInTurn(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, underWay *semaphore.Weighted,
	step func(failover.Input, failover.Decision) (done bool, err error),
) (done, inTime, again bool, err error) {
	end, err := r.takeTurn(ctx, pv, in, underWay)
	if end == nil {
		return false, err != nil, false, err
	}
	defer end()
	done, again, err = r.stepInTurn(ctx, *in, step)
	return done, true, again && !done && err == nil, err
}

// takeTurn waits for the turn of a step, and confirms again in it where in is not fresh then. The turn lasts until end is called; end is
// nil where it does not come in time, or where confirming failed.
func (r *FailoverReconciler) takeTurn(
	ctx context.Context, pv *corev1.PersistentVolume, in *failover.Input, underWay *semaphore.Weighted,
) (end func(), err error) {
	if end = take(ctx, underWay, 1); end == nil || r.age(*in) <= crowdFresh {
		return end, nil
	}
	// The attachment and the pods are read at the same time.
	read := take(ctx, r.crowd.readings, min(1+int64(len(in.Pods)), crowdReadings))
	if read == nil {
		end()
		return nil, nil
	}
	defer read()
	if *in, err = r.confirmInTurn(ctx, pv, *in); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// stepInTurn takes a step by in and what was heard since, if that calls for it, and tells whether it is done, and whether it was not done
// only because what was read is old.
func (r *FailoverReconciler) stepInTurn(
	ctx context.Context, in failover.Input, step func(failover.Input, failover.Decision) (done bool, err error),
) (done, again bool, err error) {
	in = r.newest(in)
	in.Halt = r.halt.now(ctx)
	if r.isOld(in) {
		return false, true, nil
	}
	d := failover.Decide(in)
	if d.Verdict != failover.Lost || len(in.Pods) == 0 || !endAtOnce(in) {
		return false, false, nil
	}
	done, err = step(in, d)
	return done, r.isOld(in), err
}

// confirmInTurn confirms again, but for no longer than what was read counts: others wait for the turn. If that does not succeed,
// in is as old as it was.
func (r *FailoverReconciler) confirmInTurn(ctx context.Context, pv *corev1.PersistentVolume, in failover.Input) (failover.Input, error) {
	readCtx, cancel := context.WithTimeout(ctx, failover.MaxAge)
	defer cancel()
	confirm := func() (failover.Input, error) { return r.confirmAgain(readCtx, pv, in) }
	denied := r.listsUntil.Load()
	// A pod may have come to the volume since the list, which only another one shows.
	if now := r.clock.Now(); now.Sub(in.Listed) > recent || denied != nil && now.Before(*denied) {
		confirm = func() (failover.Input, error) { return r.confirm(readCtx, pv, in.Node.Name) }
	}
	again, err := confirm()
	switch {
	case err == nil:
		return again, nil
	case errors.Is(err, errMayNotGetPods):
		ctrl.LoggerFrom(ctx).Error(err, "Reading the pods of nodes by lists, so that many removals take longer; grant get on pods")
		r.listsUntil.Store(new(r.clock.Now().Add(crowdDenied)))
		return in, nil
	case readCtx.Err() != nil && ctx.Err() == nil:
		return in, nil
	default:
		return in, err
	}
}
