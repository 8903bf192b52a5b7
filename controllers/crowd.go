package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// crowdFew is how many lost volumes are no crowd yet, by default.
	crowdFew = 16
	// crowdMarks is how many attachments the acts of a crowd mark at a time, and crowdRemovals how many pods they delete after that. Of the
	// latter nearly all are under way at a time, so that few readings become old. That takes the priority level of config/flowcontrol:
	// otherwise the API server lets 300 requests of a ServiceAccount wait beside those that it works on, which may be few at first, and
	// rejects all others for a second. It does so for crowdReadings, the requests that read one by one right before.
	crowdMarks    = 300
	crowdRemovals = 800
	crowdReadings = 300
	// crowdQuiet is for how long nearly all removals must have been marked: others may be about to begin.
	crowdQuiet = 100 * time.Millisecond
	// crowdFresh is how old a confirmation may be by which an attachment is marked, or a pod removed, without another. Neither is sent
	// when it has become old.
	crowdFresh = failover.MaxAge * 19 / 20
	// crowdWait is how old one may become while an act waits for others, before its turn.
	crowdWait = failover.MaxAge * 3 / 4
	// crowdReread is how old one may be when the next stage comes without being read again before it. After that enough is left to mark
	// and to remove what one node has, and to detach by the same confirmation.
	crowdReread = failover.MaxAge * 2 / 5
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
	// crowdAhead is how long before its grace has passed an act of a crowd begins to read: until the first write little else goes on. Where
	// the crowd is no larger than crowdSmall that takes crowdAheadSmall, and what is read for the removals serves the detaches as well.
	crowdAhead      = 500 * time.Millisecond
	crowdAheadSmall = 200 * time.Millisecond
	crowdSmall      = 250
	// crowdGather is for how long no other act of a crowd may have begun before one goes on. crowdGatherMax bounds that wait, and those
	// for others to be as far.
	crowdGather    = 50 * time.Millisecond
	crowdGatherMax = 300 * time.Millisecond
	// crowdLook is for how long it is known whose grace is about to pass.
	crowdLook = 10 * time.Millisecond
	// crowdLast bounds the wait for the last ones, where nearly all others are as far.
	crowdLast = 100 * time.Millisecond
)

// crowd are the acts that are under way. Where they are many, what Kubernetes does about the first pods that are removed slows
// down all that is asked for the last ones, and lists most of all. So they go stage by stage: all read before the first write, all nodes
// are tainted and everything is read again before the first attachment is marked, all attachments are marked and everything is read again
// before the first pod is removed, and all pods are removed before the first detach. No stage waits for long, and for the last ones only a
// moment.
type crowd struct {
	few int
	// manyLost tells whether more volumes than that are lost, or soon will be.
	manyLost func(few int) bool
	// graceEnds is how long it takes until the last grace has passed, but for the time ahead, of those that do within a time; zero where
	// no more than a few do.
	graceEnds func(few int, ahead, within time.Duration) time.Duration
	// marks, removals and readings are the requests under way for them; whoever asked first makes the next.
	marks, removals, readings *semaphore.Weighted

	mu sync.Mutex
	// came is when the latest act came to where acts meet before they read, and othersCome when the last of those will have whose
	// grace is about to pass; gracesPass is when that is.
	came                   time.Time
	othersCome, gracesPass expected
	// at is how many removals are under way at a stage. nearlyAll is open while nearly all have reached a stage that have come to the one
	// before, and all while all have.
	at             [stages]int
	nearlyAll, all [stages]gate
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
		marks: semaphore.NewWeighted(crowdMarks), removals: semaphore.NewWeighted(crowdRemovals),
		readings: semaphore.NewWeighted(crowdReadings),
	}
}

// many tells whether many volumes are lost, or soon will be.
func (c *crowd) many() bool { return c.manyLost(c.few) }

// stage is what a removal does at the moment.
type stage int

const (
	reading       stage = iota // everything that the removal rests on
	tainting                   // the node
	beforeMark                 // everything is read again
	marking                    // the attachment
	beforeRemoval              // everything is read again
	removing                   // the pods
	stages
)

// progress is how the removal of a volume's pods tells the others how far it is.
type progress struct {
	crowd *crowd // nil for what removes no pod
	at    stage  // stages when it is over
	// ended is the last pod, where the answer to its deletion says that it is gone and none can have taken its place.
	ended types.UID
}

// remove counts a removal, decided on by in, until it is over. Where pods do not end at once nobody waits for it to have read.
func (c *crowd) remove(in failover.Input) *progress {
	p := &progress{crowd: c}
	if !endAtOnce(in) {
		p.at = marking
	}
	c.change(func() { c.at[p.at]++ })
	return p
}

// to tells that the removal has come to a stage, and returns whether it was not there before; it never goes back.
func (p *progress) to(next stage) (came bool) {
	if p.crowd == nil {
		return false
	}
	p.crowd.change(func() {
		if came = p.at < next; !came {
			return
		}
		p.crowd.at[p.at]--
		if p.at = next; next < stages {
			p.crowd.at[next]++
		}
	})
	return came
}

// end tells that no pod is left, or that the removal is given up.
func (p *progress) end() { p.to(stages) }

// goOn tells that the removal, decided on by in, has come to a stage, and waits for others to come there, for that long at most.
func (p *progress) goOn(ctx context.Context, next stage, in failover.Input, patience time.Duration) {
	if p.to(next) {
		p.crowd.waitFor(ctx, next, in, patience)
	}
}

// from is how many removals are at a stage or further; the lock is held.
func (c *crowd) from(first stage) int {
	n := 0
	for _, at := range c.at[first:] {
		n += at
	}
	return n
}

// change counts removals by what it is called with, and sees whether only a few are left, and whether nearly all of them have come to a
// stage: those that are slow hold up nobody, nor do those that have begun after others.
func (c *crowd) change(counts func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts()
	for next := tainting; next < stages; next++ {
		c.nearlyAll[next].set(c.at[next-1] <= c.from(next-1)/10)
		c.all[next].set(c.at[next-1] == 0)
	}
	underWay := c.from(reading)
	unmarked := underWay - c.from(beforeRemoval)
	c.quieter.set(underWay <= max(c.few, 0))
	switch nearlyAll := unmarked <= underWay/10; {
	case nearlyAll && c.quiet == nil:
		marked, quiet := c.marked, crowdQuiet
		if !c.manyLost(underWay + underWay/10) {
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

// wait returns when nearly all removals are marked, and a moment later where others are being marked, or after a while, which is a small
// part of the time that ctx leaves. While only a few have come to their mark nobody waits: where many are lost one after the other, the
// next one may always be about to begin.
func (c *crowd) wait(ctx context.Context) {
	patience := crowdPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/4)
	}
	c.mu.Lock()
	marked, few := c.marked, c.from(marking) <= c.few
	c.mu.Unlock()
	if few {
		return
	}
	until := time.Now().Add(patience)
	if !pass(ctx, marked, patience) {
		return
	}
	c.mu.Lock()
	all := c.all[beforeRemoval].opened
	c.mu.Unlock()
	pass(ctx, all, min(crowdGatherMax, time.Until(until)))
}

// waitForRemovals waits until only a few removals are left, and tells whether that is so: not where it takes longer than patience.
func (c *crowd) waitForRemovals(ctx context.Context, patience time.Duration) bool {
	c.mu.Lock()
	quieter := c.quieter.opened
	c.mu.Unlock()
	return pass(ctx, quieter, patience)
}

// take waits until that many requests may be made and counts them until done is called, which is nil where ctx would not leave the time
// for them.
func take(ctx context.Context, underWay *semaphore.Weighted, requests int64) (done func()) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(crowdTurn, time.Until(deadline)/2)))
		defer cancel()
	}
	if underWay.Acquire(ctx, requests) != nil {
		return nil
	}
	return func() { underWay.Release(requests) }
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
	after = max(0, d.GraceLeft-c.ahead())
	return min(after, d.After), after == 0
}

// ahead is how long before its grace has passed an act begins to read.
func (c *crowd) ahead() time.Duration {
	if c.manyLost(crowdSmall) {
		return crowdAhead
	}
	return crowdAheadSmall
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
	return c.untilPassed(&c.othersCome, c.ahead(), within, crowdGather)
}

// untilGracesPass is how long it takes until the graces of others have passed that do soon, if they are many, but for no longer than within.
func (c *crowd) untilGracesPass(within time.Duration) time.Duration {
	return min(c.untilPassed(&c.gracesPass, 0, crowdGatherMax, 0), within)
}

// untilPassed looks for when the last grace will have passed, but for the time ahead, and then that much longer.
func (c *crowd) untilPassed(known *expected, ahead, within, longer time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	// All acts ask at about the same time, and it takes a look at each volume that may be lost.
	if now := time.Now(); now.Sub(known.looked) > crowdLook {
		*known = expected{looked: now}
		if left := c.graceEnds(c.few, ahead, within); left > 0 {
			known.at = now.Add(left + longer)
		}
	}
	return time.Until(known.at)
}

// expected is a moment in the future, as far as was known when it was looked for.
type expected struct{ at, looked time.Time }

// waitFor waits, where there are many whose pods end at once, until those at the stage before have come to this one, for the last ones
// only a moment: the API server answers lists far more slowly once the first write is made.
func (c *crowd) waitFor(ctx context.Context, next stage, in failover.Input, patience time.Duration) {
	c.mu.Lock()
	nearlyAll, all := c.nearlyAll[next].opened, c.all[next].opened
	c.mu.Unlock()
	if all == nil || !c.many() || !endAtOnce(in) {
		return
	}
	until := time.Now().Add(patience)
	if pass(ctx, nearlyAll, patience) {
		pass(ctx, all, min(crowdLast, time.Until(until)))
	}
}

// whileOthers returns a context that ends a moment after nearly all others have come to a stage, for what need not be done by all before.
func (c *crowd) whileOthers(ctx context.Context, next stage) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, failover.MaxAge)
	c.mu.Lock()
	nearlyAll := c.nearlyAll[next].opened
	c.mu.Unlock()
	go func() {
		if pass(ctx, nearlyAll, failover.MaxAge) {
			pause(ctx, crowdLast)
			cancel()
		}
	}()
	return ctx, cancel
}

// endAtOnce tells whether every pod ends with its deletion: that is by force, and nobody else holds their objects.
func endAtOnce(in failover.Input) bool {
	return !slices.ContainsFunc(in.Pods, func(pod failover.Pod) bool {
		return pod.Finalizers || failover.RemovalOf(in, pod) != failover.RemoveForce
	})
}
