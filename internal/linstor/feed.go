package linstor

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

const (
	defaultResyncInterval = 10 * time.Minute
	// readsPerSecond limits the reads of single resource definitions, but for those of Refresh: LINSTOR has others to serve.
	readsPerSecond = 200
	// workers is how many of these reads may begin at once, and twice as many as run at once.
	workers = 16
)

// Options are the settings of a Feed. The zero value of each field means its default.
type Options struct {
	// ResyncInterval is how often everything is read again; default 10 min.
	ResyncInterval time.Duration
	// Elected is closed when this process leads. Until then it leaves LINSTOR and the processors to the one that does where many
	// events come at a time. Nil means that it leads.
	Elected <-chan struct{}
}

// backoff tells how long to wait before each of several tries: 500 ms, doubling up to 10 s, with jitter; after a minute from the beginning.
func backoff() wait.DelayFunc {
	return wait.Backoff{Duration: 500 * time.Millisecond, Cap: 8 * time.Second, Factor: 2, Jitter: 0.25, Steps: 10}.
		DelayWithReset(clock.RealClock{}, time.Minute)
}

// Feed keeps a store true to LINSTOR. It is a runnable of the controller manager and runs on every
// replica of the Deployment, leading or not.
type Feed struct {
	client  *Client
	store   *Store
	opts    Options
	log     logr.Logger
	metrics *Metrics

	readers
	// eventLimiter limits the polls that follow an event at once.
	eventLimiter *rate.Limiter
	// missing is when the newest event came by which LINSTOR knows nothing of a replica any more, in nanoseconds since 1970.
	missing atomic.Int64
	// levelsChanged is set from a change of a quorum above the definitions on until these are read.
	levelsChanged atomic.Bool
	// agenda has what is to be read, while the feed is running.
	agenda  agenda
	running atomic.Bool
	// watch compares REST with the event stream, while there is one.
	watch atomic.Pointer[streamWatch]
	// viewed is closed once the first view of all resources came.
	viewed chan struct{}
	// sample is where the next sample of the comparison begins.
	sample int

	mu     sync.Mutex
	status Status
	// outage has the reasons that were logged of an outage, so that each is logged once. It is empty while there is none.
	outage map[string]bool
}

// NewFeed returns a feed of the store. Nothing runs before Start.
func NewFeed(client *Client, store *Store, log logr.Logger, opts Options) *Feed {
	opts.ResyncInterval = cmp.Or(opts.ResyncInterval, defaultResyncInterval)
	f := &Feed{
		client: client, store: store, opts: opts, log: log, metrics: client.metrics,
		eventLimiter: rate.NewLimiter(eventsAtOnce, eventsAtOnce), viewed: make(chan struct{}),
		agenda: agenda{wake: make(chan struct{}, 1), dues: map[string]*due{}},
	}
	f.readers = f.newReaders()
	return f
}

// NeedLeaderElection makes the manager run the feed on every replica: a new leader must know since when
// a condition has held.
func (f *Feed) NeedLeaderElection() bool { return false }

// Start follows LINSTOR until ctx is done, and returns nil then. It absorbs every error: an outage of
// LINSTOR must not end the process that is there for outages.
func (f *Feed) Start(ctx context.Context) error {
	var reading sync.WaitGroup
	f.running.Store(true)
	reading.Go(func() { f.readDue(ctx) })
	f.keepFollowing(ctx)
	f.disconnected()
	f.running.Store(false)
	reading.Wait()
	f.client.CloseIdleConnections()
	return nil
}

// keepFollowing makes one connection after the other until ctx is done.
func (f *Feed) keepFollowing(ctx context.Context) {
	delay := backoff()
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
