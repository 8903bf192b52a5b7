package linstor

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

const defaultResyncInterval = 10 * time.Minute

// Options are the settings of a Feed. The zero value of each field means its default.
type Options struct {
	// ResyncInterval is how often everything is read again; default 10 min.
	ResyncInterval time.Duration
	// Elected is closed once this process leads. Until then it polls less often. Nil means that it leads.
	Elected <-chan struct{}
}

// Feed keeps a store up to date with LINSTOR. It is a runnable of the controller manager and runs on every
// replica of the Deployment, leading or not. One connection brings events (stream.go), one loop reads what is wanted (reading.go).
type Feed struct {
	client  *Client
	store   *Store
	opts    Options
	log     logr.Logger
	metrics *Metrics

	// schedule has what the loop reads, and when.
	schedule schedule
	// flights are the requests under way. Callers that want the same list, or the same resource, share one.
	flights singleflight.Group
	// life ends with Start, and ends the flights. They outlive the callers that began them.
	life context.Context //nolint:containedctx // see above
	end  context.CancelFunc

	// refused has the answer by which LINSTOR refuses to be read.
	refused chan refusal

	mu     sync.Mutex
	status Status
	// early are the events of replicas that the store did not have, while everything is being read.
	early []early
	// outage has the reasons that were logged of an outage, so that each is logged once. It is empty while there is none.
	outage []string
}

// NewFeed returns a feed of the store. Nothing runs before Start.
func NewFeed(client *Client, store *Store, log logr.Logger, opts Options) *Feed {
	opts.ResyncInterval = cmp.Or(opts.ResyncInterval, defaultResyncInterval)
	f := &Feed{client: client, store: store, opts: opts, log: log, metrics: client.metrics, refused: make(chan refusal, 1)}
	f.life, f.end = context.WithCancel(context.Background()) //nolint:forbidigo // Start ends it
	f.schedule = newSchedule(f.lists())
	store.Subscribe(f.schedule.changed)
	return f
}

// NeedLeaderElection makes the manager run the feed on every replica: a new leader must know since when
// a condition has held.
func (f *Feed) NeedLeaderElection() bool { return false }

// Start follows LINSTOR until ctx is done, and returns nil then. It absorbs every error: an outage of
// LINSTOR must not end the process that is there for outages.
func (f *Feed) Start(ctx context.Context) error {
	var reading sync.WaitGroup
	reading.Go(func() { f.readWanted(ctx) })
	f.keepFollowing(ctx)
	f.disconnected()
	f.end()
	reading.Wait()
	f.client.CloseIdleConnections()
	return nil
}

// keepFollowing makes one connection after the other until ctx is done. Delays between failures double. They begin anew after a minute.
func (f *Feed) keepFollowing(ctx context.Context) {
	delay := wait.Backoff{Duration: pollEvery / 2, Factor: 2, Steps: 4, Jitter: 0.25}. // up to 8 s
												DelayWithReset(clock.RealClock{}, time.Minute)
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		f.lost(err)
		sleep(ctx, delay())
	}
}

// sleep waits for d, or until ctx is done, which it reports as false.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
