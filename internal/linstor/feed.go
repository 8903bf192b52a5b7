package linstor

import (
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
	defaultResyncInterval  = 10 * time.Minute
	defaultCompareInterval = time.Minute
	defaultCompareSample   = 5
	defaultConfirmDead     = 5 * time.Second
	defaultReadsPerSecond  = 200
	defaultWorkers         = 16
	// The longest wait with its jitter is 10 s.
	defaultBackoffStart  = 500 * time.Millisecond
	defaultBackoffCap    = 8 * time.Second
	defaultBackoffJitter = 0.25
	// backoffReset is after how long the backoff starts from its beginning.
	backoffReset = time.Minute
)

// Options are the settings of a Feed. The zero value of each field means its default.
type Options struct {
	// ResyncInterval is how often everything is read again; default 10 min.
	ResyncInterval time.Duration
	// CompareInterval is how often the settings (definitions, groups, controller properties) are read, and a
	// sample of resources is compared with what the event stream said; default 1 min. While events come it is up to 15 s later.
	CompareInterval time.Duration
	// ConfirmDead is how long a difference between REST and the event stream must last for the stream to
	// count as dead; default 5 s.
	ConfirmDead time.Duration
	// ReadsPerSecond limits the reads of single resource definitions, but for those of Refresh; default 200.
	ReadsPerSecond int
	// Workers is how many of these reads may begin at once, and twice as many as run at once; default 16.
	Workers int
	// Elected is closed when this process leads. Until then it leaves LINSTOR and the processors to the one that does where many
	// events come at a time. Nil means that it leads.
	Elected <-chan struct{}
	// Backoff is how long to wait before connecting again; default 500 ms, doubling up to 10 s, with jitter.
	Backoff wait.Backoff
	// Metrics counts; the default is the client's.
	Metrics *Metrics
}

func (o Options) withDefaults() Options {
	setDefault(&o.ResyncInterval, defaultResyncInterval)
	setDefault(&o.CompareInterval, defaultCompareInterval)
	setDefault(&o.ConfirmDead, defaultConfirmDead)
	setDefault(&o.ReadsPerSecond, defaultReadsPerSecond)
	setDefault(&o.Workers, defaultWorkers)
	if o.Backoff.Duration == 0 {
		o.Backoff = wait.Backoff{
			Duration: defaultBackoffStart, Cap: defaultBackoffCap,
			Factor: 2, Jitter: defaultBackoffJitter, Steps: 10,
		}
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
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
	opts = opts.withDefaults()
	if opts.Metrics == nil {
		opts.Metrics = client.metrics
	}
	f := &Feed{
		client: client, store: store, opts: opts, log: log, metrics: opts.Metrics,
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
	delay := f.opts.Backoff.DelayWithReset(clock.RealClock{}, backoffReset)
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
