package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// crowdFew is how many lost volumes are no crowd yet, by default.
	crowdFew = 16
	// crowdMarks and crowdRemovals are how many acts of a crowd may mark their attachment, or remove their pod, at a time. By
	// default the API server works on some 250 requests of service accounts at a time.
	crowdMarks    = 200
	crowdRemovals = 160
	// crowdQuiet is for how long nearly all removals must have been marked: others may be about to begin.
	crowdQuiet = 100 * time.Millisecond
	// crowdMarkFresh and crowdRemoveFresh are how old a confirmation may be by which an attachment is marked, or a pod removed,
	// without another: the rest of the time is for the one request, and for the detach that may follow the other.
	crowdMarkFresh   = failover.MaxAge * 3 / 4
	crowdRemoveFresh = recent
	// crowdTries is how often an act confirms in its turn where what it has read is old before it is used, and crowdTurn how much of
	// its time it keeps for that.
	crowdTries = 2
	crowdTurn  = (crowdTries + 1) * failover.MaxAge
	// crowdPatience is how long a removal waits at most until others are marked, and a detach until others are removed; crowdPause
	// is how soon the latter looks again.
	crowdPatience = 3 * time.Second
	crowdPause    = 500 * time.Millisecond
	// crowdDenied is for how long pods are not read one by one after that was forbidden.
	crowdDenied = time.Minute
	// crowdAhead is how long before its grace has passed an act of a crowd begins to read: until the first write little else goes on.
	crowdAhead = 500 * time.Millisecond
	// crowdGather is for how long no other act of a crowd may have begun before one goes on. crowdGatherMax bounds that wait, and the one
	// for the confirmations of others.
	crowdGather    = 50 * time.Millisecond
	crowdGatherMax = 300 * time.Millisecond
	// crowdLook is for how long it is known whose grace is about to pass.
	crowdLook = 10 * time.Millisecond
	// crowdLast bounds the wait for the last confirmations, where nearly all others are confirmed.
	crowdLast = 100 * time.Millisecond
)

// crowd are the acts that are under way. Where they are many, what Kubernetes does about the first pods that are removed slows
// down all that is asked for the last ones. So all attachments are marked before the first pod is removed, few enough pods are
// removed at a time for each to be read once more right before, and all removals come before the first detach.
type crowd struct {
	few int
	// manyLost tells whether more volumes than that are lost, or soon will be.
	manyLost func(few int) bool
	// graceEnds is how long it takes until the last grace has passed, but for the time ahead, of those that do within a time; zero where
	// no more than a few do.
	graceEnds func(few int, ahead, within time.Duration) time.Duration
	// marks and removals are taken by who does that at the moment, in the order in which they come.
	marks, removals chan struct{}

	mu sync.Mutex
	// came is when the latest act came to where acts meet before they read, and othersCome when the last of those will have whose
	// grace is about to pass, as far as was known when that was looked for.
	came, othersCome, looked time.Time
	// removing are the removals under way, marking those whose attachment is not marked yet, and confirming those that others wait for
	// to be confirmed.
	removing, marking, confirming int
	// nearlyConfirmed is open while nearly all are confirmed, and confirmed while all are.
	nearlyConfirmed, confirmed gate
	// quieter is open while only a few removals are under way.
	quieter gate
	// marked is closed when nearly all have been marked for crowdQuiet, which quiet measures; nil while they are not.
	marked chan struct{}
	quiet  *time.Timer
}

// gate holds up who waits for it to be opened. The zero value is open.
type gate struct {
	opened chan struct{} // nil while it is open
}

func (g *gate) set(open bool) {
	switch {
	case !open && g.opened == nil:
		g.opened = make(chan struct{})
	case open && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

// pause waits for so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// pass waits until a gate is opened that had that channel, and tells whether it was within patience.
func pass(ctx context.Context, opened chan struct{}, patience time.Duration) bool {
	if opened == nil {
		return true
	}
	select {
	case <-opened:
		return true
	case <-time.After(patience):
	case <-ctx.Done():
	}
	return false
}

func newCrowd(few int, manyLost func(few int) bool, graceEnds func(few int, ahead, within time.Duration) time.Duration) *crowd {
	return &crowd{
		few: few, manyLost: manyLost, graceEnds: graceEnds, marked: make(chan struct{}),
		marks: make(chan struct{}, crowdMarks), removals: make(chan struct{}, crowdRemovals),
	}
}

// many tells whether many volumes are lost, or soon will be.
func (c *crowd) many() bool { return c.manyLost(c.few) }

// progress is how the removal of a volume's pods tells the others how far it is.
type progress struct {
	// confirmed tells that it was confirmed, by in, and waits for others for that long at most; marked tells that its attachment is
	// marked, and over that no pod is left or that it is given up. Each implies the one before, and has an effect only the first time.
	confirmed    func(ctx context.Context, in failover.Input, patience time.Duration)
	marked, over func()
}

// noRemoval is the progress of what removes no pod.
func noRemoval() progress {
	nothing := func() {}
	return progress{confirmed: func(context.Context, failover.Input, time.Duration) {}, marked: nothing, over: nothing}
}

// remove counts a removal, decided on by in, until it is over.
func (c *crowd) remove(in failover.Input) progress {
	confirming := 0
	if endAtOnce(in) {
		confirming = 1
	}
	c.count(1, 1, confirming)
	counted := sync.OnceFunc(func() { c.count(0, 0, -confirming) })
	marked := sync.OnceFunc(func() {
		counted()
		c.count(0, -1, 0)
	})
	var waited sync.Once
	return progress{
		confirmed: func(ctx context.Context, in failover.Input, patience time.Duration) {
			counted()
			waited.Do(func() { c.waitForConfirmations(ctx, in, patience) })
		},
		marked: marked,
		over: sync.OnceFunc(func() {
			marked()
			c.count(-1, 0, 0)
		}),
	}
}

// count counts removals, and sees whether only a few are left, and whether nearly all of them are confirmed, or marked: those that are
// slow hold up nobody.
func (c *crowd) count(removing, marking, confirming int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removing += removing
	c.marking += marking
	c.confirming += confirming
	c.nearlyConfirmed.set(c.confirming <= c.removing/10)
	c.confirmed.set(c.confirming == 0)
	c.quieter.set(c.removing <= max(c.few, 0))
	switch nearlyAll := c.marking <= c.removing/10; {
	case nearlyAll && c.quiet == nil:
		marked, quiet := c.marked, crowdQuiet
		if !c.manyLost(c.removing + c.removing/10) {
			quiet = 0 // nobody is known who might begin
		}
		c.quiet = time.AfterFunc(quiet, func() { close(marked) })
	case !nearlyAll && c.quiet != nil:
		if !c.quiet.Stop() {
			c.marked = make(chan struct{})
		}
		c.quiet = nil
	}
}

// wait returns when nearly all removals are marked, or after a while, which is a small part of the time that ctx leaves. While only a
// few are under way nobody waits: where many are lost one after the other, the next one may always be about to begin.
func (c *crowd) wait(ctx context.Context) {
	patience := crowdPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/4)
	}
	c.mu.Lock()
	marked, few := c.marked, c.removing <= c.few
	c.mu.Unlock()
	if few {
		return
	}
	select {
	case <-marked:
	case <-time.After(patience):
	case <-ctx.Done():
	}
}

// waitForRemovals waits until only a few removals are left, and tells whether that is so: not where it takes longer than patience.
func (c *crowd) waitForRemovals(ctx context.Context, patience time.Duration) bool {
	c.mu.Lock()
	quieter := c.quieter.opened
	c.mu.Unlock()
	return pass(ctx, quieter, patience)
}

// takeSlot waits for one of the slots and takes it until end is called, which is nil where ctx would not leave the time to use it.
func takeSlot(ctx context.Context, slots chan struct{}) (end func()) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(crowdTurn, time.Until(deadline)/2)))
		defer cancel()
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }
	case <-ctx.Done():
		return nil
	}
}

// afterRemovals is how soon a detach is looked at again that can wait for the removals under way; zero where it must not wait
// any longer. The pods were removed at the given time.
func (c *crowd) afterRemovals(now, removed time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quieter.opened == nil {
		return 0
	}
	return max(0, min(crowdPause, removed.Add(crowdPatience).Sub(now)))
}

// begins is how soon an act begins that has to wait for its grace, and whether that is now. Where there are many whose pods end at once
// it reads before the grace has passed.
func (c *crowd) begins(in failover.Input, d failover.Decision) (after time.Duration, now bool) {
	if d.Verdict != failover.Pending || len(in.Pods) == 0 || !endAtOnce(in) || !c.many() {
		return d.After, false
	}
	after = max(0, d.GraceLeft-crowdAhead)
	return min(after, d.After), after == 0
}

// gather waits, where there are many whose pods end at once, until no more acts begin, nor many will because their grace passes, so
// that one request serves all of the same node, and none begins to write while others read.
func (c *crowd) gather(ctx context.Context, in failover.Input) {
	if !c.many() || !endAtOnce(in) {
		return
	}
	c.mu.Lock()
	c.came = time.Now()
	c.mu.Unlock()
	for until := time.Now().Add(crowdGatherMax); ; {
		rest := time.Until(until)
		c.mu.Lock()
		left := time.Until(c.came.Add(crowdGather))
		c.mu.Unlock()
		if left <= 0 {
			left = c.untilOthersCome(rest - crowdGather)
		}
		if left = min(left, rest); left <= 0 {
			return
		}
		if pause(ctx, left); ctx.Err() != nil {
			return
		}
	}
}

// untilOthersCome is how long it takes until others have come whose grace passes within that time, if they are many: a few, and
// then a few more, would be waited for again and again where nodes are lost one after the other.
func (c *crowd) untilOthersCome(within time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	// All acts ask at about the same time, and it takes a look at each volume that may be lost.
	if now := time.Now(); now.Sub(c.looked) > crowdLook {
		c.looked, c.othersCome = now, time.Time{}
		if left := c.graceEnds(c.few, crowdAhead, within); left > 0 {
			c.othersCome = now.Add(left + crowdGather)
		}
	}
	return time.Until(c.othersCome)
}

// waitForConfirmations waits, where there are many whose pods end at once, until those that have begun are confirmed, for the last
// ones only a moment: the API server answers lists far more slowly once the first write is made.
func (c *crowd) waitForConfirmations(ctx context.Context, in failover.Input, patience time.Duration) {
	c.mu.Lock()
	nearlyAll, all := c.nearlyConfirmed.opened, c.confirmed.opened
	c.mu.Unlock()
	if all == nil || !c.many() || !endAtOnce(in) {
		return
	}
	until := time.Now().Add(patience)
	if pass(ctx, nearlyAll, patience) {
		pass(ctx, all, min(crowdLast, time.Until(until)))
	}
}

// endAtOnce tells whether every pod ends with its deletion: that is by force, and nobody else holds their objects.
func endAtOnce(in failover.Input) bool {
	return !slices.ContainsFunc(in.Pods, func(pod failover.Pod) bool {
		return pod.Finalizers || failover.RemovalOf(in, pod) != failover.RemoveForce
	})
}
