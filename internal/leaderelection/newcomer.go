package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// Youth is how long a process counts as a newcomer, that lets others lead first: longer than a Lease takes to expire, and
	// longer than any grace period that began before it did may need to end.
	Youth = time.Minute
	// lately is how long ago somebody must have led for others to be expected.
	lately = time.Minute
)

// newcomer lets others go first while the process is young: it has not seen what is going on, a loss that began before it
// started takes it the longest of all grace periods, and the other replicas have seen it. So before it takes over a Lease
// that somebody held lately, it gives them the time in which each of them tries once. If nobody has taken it then, it does.
type newcomer struct {
	resourcelock.Interface
	started  time.Time
	courtesy time.Duration

	mu   sync.Mutex
	last resourcelock.LeaderElectionRecord
}

// letOthersFirst returns the lock of a process that starts now and whose replicas try every retryPeriod.
func letOthersFirst(lock resourcelock.Interface, retryPeriod time.Duration) resourcelock.Interface {
	// client-go adds up to JitterFactor times the period to it. Another replica may see the last renewal that late, and
	// try that late again once it has expired.
	courtesy := time.Duration(2 * (1 + leaderelection.JitterFactor) * float64(retryPeriod))
	return &newcomer{Interface: lock, started: time.Now(), courtesy: courtesy}
}

// Get implements resourcelock.Interface.
func (n *newcomer) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := n.Interface.Get(ctx)
	if err == nil {
		n.mu.Lock()
		n.last = *record
		n.mu.Unlock()
	}
	return record, raw, err //nolint:wrapcheck // client-go asks what kind it is
}

// Update implements resourcelock.Interface. It is a takeover unless this process held the Lease already. The write names
// the version that was read, so that one that comes too late fails.
func (n *newcomer) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == n.Identity() && n.yields() {
		select {
		case <-time.After(n.courtesy):
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // client-go asks what kind it is
		}
	}
	err := n.Interface.Update(ctx, record)
	if err == nil {
		n.mu.Lock()
		n.last = record
		n.mu.Unlock()
	}
	return err //nolint:wrapcheck // client-go asks what kind it is
}

// yields tells whether others may go first.
func (n *newcomer) yields() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last.HolderIdentity != n.Identity() && time.Since(n.started) < Youth && time.Since(n.last.RenewTime.Time) < lately
}
