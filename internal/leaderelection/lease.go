package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// youth is how long a process counts as a newcomer: longer than a Lease takes to expire, and longer than any grace period that began
	// before it did may need to end.
	youth = time.Minute
	// lately is how long ago somebody must have led for others to be expected.
	lately = time.Minute
)

// Lease is the Lease of the election. It knows when this process has renewed it, which the unanimous grace rests on, and has a process that
// has just started let the others go first. It is safe for concurrent use.
type Lease struct {
	resourcelock.Interface
	started time.Time
	// courtesy is how long a newcomer gives the others to take over a Lease.
	courtesy time.Duration

	mu      sync.Mutex
	last    resourcelock.LeaderElectionRecord
	renewed time.Time
}

// Wrap returns the Lease of a process that starts now and whose replicas try for it every retryPeriod.
func Wrap(lock resourcelock.Interface, retryPeriod time.Duration) *Lease {
	// client-go adds up to JitterFactor times the period to it. Another replica may see the last renewal that late, and
	// try that late again once it has expired.
	courtesy := time.Duration(2 * (1 + leaderelection.JitterFactor) * float64(retryPeriod))
	return &Lease{Interface: lock, started: time.Now(), courtesy: courtesy}
}

// Renewed returns when this process began the newest renewal that the API has answered with success, by the machine's clock; the zero
// time where the process has none, because it does not lead.
func (l *Lease) Renewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

// Get implements resourcelock.Interface.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.mu.Lock()
		l.last = *record
		l.mu.Unlock()
	}
	return record, raw, err //nolint:wrapcheck // client-go asks what kind it is
}

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface. A newcomer has not seen what the nodes run and when a loss began, and the other replicas have.
// So before it takes over a Lease that somebody held lately, it gives them the time in which each of them tries once. Its write names the
// version that it has read, and fails if one of them was quicker.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() && l.yields() {
		select {
		case <-time.After(l.courtesy):
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // client-go asks what kind it is
		}
	}
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// yields tells whether others may go first.
func (l *Lease) yields() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.HolderIdentity != l.Identity() && time.Since(l.started) < youth && time.Since(l.last.RenewTime.Time) < lately
}

func (l *Lease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if err := write(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.renewed = record, time.Time{}
	if record.HolderIdentity == l.Identity() {
		l.renewed = began
	}
	return nil
}
