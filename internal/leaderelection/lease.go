package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is the Lease of the election. It knows when this process has renewed it, which the unanimous grace rests on, and has a process that
// has just started let the others go first. It is safe for concurrent use.
type Lease struct {
	resourcelock.Interface
	// patient is until when a process that has just started does not stand for a Lease that somebody has had.
	patient time.Time

	mu      sync.Mutex
	renewed time.Time
}

// Wrap returns the Lease of a process that starts now and whose replicas try for it every retryPeriod.
func Wrap(lock resourcelock.Interface, retryPeriod time.Duration) *Lease {
	// client-go adds up to JitterFactor times the period to it. Another replica may see the last renewal that late, and
	// try that late again once it has expired.
	courtesy := time.Duration(2 * (1 + leaderelection.JitterFactor) * float64(retryPeriod))
	return &Lease{Interface: lock, patient: time.Now().Add(courtesy)}
}

// Renewed returns when this process began the newest renewal that the API has answered with success, by the machine's clock; the zero
// time where the process has none, because it does not lead.
func (l *Lease) Renewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed
}

// Get implements resourcelock.Interface. A process that has just started has not seen a loss that began before, and gives it the longest
// of all grace periods: 64 s instead of 23 s where etcd was killed in the act (TestAnyProcessIsKilled). So it stands for a Lease that
// somebody has had only when each of the others, which have seen the loss, has tried for it.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil || !l.Renewed().IsZero() || !time.Now().Before(l.patient) {
		return record, raw, err //nolint:wrapcheck // client-go asks what kind it is
	}
	select {
	case <-time.After(time.Until(l.patient)):
		return l.Interface.Get(ctx) //nolint:wrapcheck // client-go asks what kind it is
	case <-ctx.Done():
		return nil, nil, ctx.Err() //nolint:wrapcheck // client-go asks what kind it is
	}
}

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *Lease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if err := write(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = time.Time{}
	if record.HolderIdentity == l.Identity() {
		l.renewed = began
	}
	return nil
}
