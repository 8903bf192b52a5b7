package leaderelection

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// youth is how old a process must be to stand for election: by then it has seen what the nodes run, and since when.
	youth = 30 * time.Second
	// lately is how long ago somebody must have held the Lease for an older process to be expected.
	lately = time.Minute
)

// errYoung is why a process does not take over the Lease.
var errYoung = errors.New("this process was started less than " + youth.String() + " ago, and lets an older one lead")

// Lease is the Lease of the election. A process that has just been started does not stand for it, and it knows when this process has renewed it, on
// which the unanimous grace depends. It is safe for concurrent use.
type Lease struct {
	resourcelock.Interface
	started time.Time

	mu      sync.Mutex
	last    resourcelock.LeaderElectionRecord
	renewed time.Time
}

// Wrap returns the Lease of a process that starts now.
func Wrap(lock resourcelock.Interface) *Lease { return &Lease{Interface: lock, started: time.Now()} }

// Renewed returns when this process began the newest renewal that the API has answered with success, by the machine's clock; the zero
// time if the process has none, because it does not lead.
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

// Update implements resourcelock.Interface. It fails if a young process would take over the Lease.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == l.Identity() && l.isYoung() {
		return errYoung
	}
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// isYoung reports whether this process leaves the Lease to older ones. If the clock of who held it last is off, it waits in vain at worst.
func (l *Lease) isYoung() bool {
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
