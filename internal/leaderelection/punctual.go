package leaderelection

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errLate is what becomes of a Lease that could not be renewed in time.
var errLate = errors.New("the Lease was not renewed in time")

// punctual lets a leader end in time that cannot renew its Lease. client-go tries to release it then, and only when that is
// done tells the process to stop. Where the API does not answer that takes as long as a request may take, and another
// replica may lead by then. So the request is not sent.
type punctual struct {
	resourcelock.Interface
	// limit is how long after a renewal began client-go gives up the next one.
	limit time.Duration

	mu      sync.Mutex
	renewed time.Time // the last time; zero while the Lease is not this process's
}

// endInTime returns the lock of a process that tries to renew its Lease for renewDeadline, retryPeriod after each renewal.
func endInTime(lock resourcelock.Interface, renewDeadline, retryPeriod time.Duration) *punctual {
	return &punctual{Interface: lock, limit: renewDeadline + retryPeriod}
}

// lastRenewed is when the newest renewal began; zero while the Lease is not this process's.
func (p *punctual) lastRenewed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewed
}

// Get implements resourcelock.Interface.
func (p *punctual) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if renewed := p.lastRenewed(); !renewed.IsZero() && time.Since(renewed) >= p.limit {
		return nil, nil, errLate
	}
	return p.Interface.Get(ctx) //nolint:wrapcheck // client-go asks what kind it is
}

// Create implements resourcelock.Interface.
func (p *punctual) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return p.write(record, func() error { return p.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (p *punctual) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return p.write(record, func() error { return p.Interface.Update(ctx, record) })
}

func (p *punctual) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now()
	if err := write(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed = time.Time{}
	if record.HolderIdentity == p.Identity() {
		p.renewed = began
	}
	return nil
}
