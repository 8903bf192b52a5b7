package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// crowdFew is how many lost volumes are no crowd yet, by default.
	crowdFew = 16
	// crowdDeletions is how many pods are being deleted at a time in a crowd. By default the API server works on some 250
	// requests of service accounts at a time, and rejects what waits behind 300 others.
	crowdDeletions = 250
	// crowdReady is how old what was read for an act may become while it waits for others to be ready.
	crowdReady = failover.MaxAge * 6 / 10
	// crowdQuiet is for how long nearly all removals must have been ready: others may be about to begin.
	crowdQuiet = 100 * time.Millisecond
	// crowdPatience is how long a detach waits for removals of others at most, and crowdPause how soon it looks again.
	crowdPatience = 3 * time.Second
	crowdPause    = 250 * time.Millisecond
	// crowdGather is how long an act in a crowd waits for others before its node is tainted.
	crowdGather = 50 * time.Millisecond
)

// crowd are the acts that are under way. Where they are many, what Kubernetes does about the first pods that are removed slows
// down all that is asked for the last ones. So they read at the same time and delete at the same time, and all removals come
// before the first detach.
type crowd struct {
	few int
	// manyLost tells whether more volumes than that are lost, or soon will be.
	manyLost  func(few int) bool
	deletions chan struct{}

	mu sync.Mutex
	// removals are under way, and some of them not ready yet.
	removals, preparing int
	// ready is closed when nearly all have been ready for crowdQuiet, which quiet measures; nil while they are not.
	ready chan struct{}
	quiet *time.Timer
}

func newCrowd(few int, manyLost func(few int) bool) *crowd {
	return &crowd{few: few, manyLost: manyLost, deletions: make(chan struct{}, crowdDeletions), ready: make(chan struct{})}
}

// many tells whether many volumes are lost, or soon will be.
func (c *crowd) many() bool { return c.manyLost(c.few) }

// remove counts the removal of a volume's pods until it leaves; prepared is called when it is ready, and has no effect the
// second time.
func (c *crowd) remove() (prepared, leave func()) {
	c.count(1, 1)
	prepared = sync.OnceFunc(func() { c.count(0, -1) })
	return prepared, func() {
		prepared()
		c.count(-1, 0)
	}
}

// count counts removals, and sees whether nearly all of them are ready: those that are slow to prepare hold up nobody.
func (c *crowd) count(removals, preparing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removals += removals
	c.preparing += preparing
	switch nearlyAll := c.preparing <= c.removals/10; {
	case nearlyAll && c.quiet == nil:
		ready := c.ready
		c.quiet = time.AfterFunc(crowdQuiet, func() { close(ready) })
	case !nearlyAll && c.quiet != nil:
		if !c.quiet.Stop() {
			c.ready = make(chan struct{})
		}
		c.quiet = nil
	}
}

// wait returns when nearly all removals are ready, or after a while.
func (c *crowd) wait(ctx context.Context, most time.Duration) {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	select {
	case <-ready:
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// afterRemovals is how soon a detach is looked at again that can wait for the removals under way; zero where it must not wait
// any longer. The pods were removed at the given time.
func (c *crowd) afterRemovals(now, removed time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removals <= max(c.few, 0) || now.Sub(removed) > crowdPatience {
		return 0
	}
	return crowdPause
}

// gather waits, where there are many, until others of the same node have come as far, so that they need one request together.
func (c *crowd) gather(ctx context.Context) {
	if !c.many() {
		return
	}
	select {
	case <-time.After(crowdGather):
	case <-ctx.Done():
	}
}

// endAtOnce tells whether every pod ends with its deletion: that is by force, and nobody else holds their objects.
func endAtOnce(in failover.Input) bool {
	return !slices.ContainsFunc(in.Pods, func(pod failover.Pod) bool {
		return pod.Finalizers || failover.RemovalOf(in, pod) != failover.RemoveForce
	})
}

// removeInCrowd marks the attachment and removes the first pod when its turn has come. It tells whether that is all: the
// end of the last pod calls for the detach, after those who wait for their removal now.
func (r *FailoverReconciler) removeInCrowd(
	ctx context.Context, pv *corev1.PersistentVolume, in failover.Input, d failover.Decision,
) (over bool, err error) {
	r.crowd.wait(ctx, crowdReady-r.age(in))
	select {
	case r.crowd.deletions <- struct{}{}:
		defer func() { <-r.crowd.deletions }()
	case <-time.After(failover.MaxAge - r.age(in)):
		return false, nil // the next turn confirms again
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if r.isOld(in) {
		return false, nil // the next turn confirms again
	}
	if in.Attachment, err = r.mark(ctx, in, d); err != nil || r.isOld(in) {
		return false, err
	}
	err = r.remove(ctx, pv, in, d, in.Pods[0], failover.RemoveForce)
	return len(in.Pods) == 1 && !r.isOld(in), err
}
