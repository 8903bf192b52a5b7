// Package watches ends a process whose watches of the API are dead. A watch that delivers nothing looks like a cluster in which nothing happens: after a
// restore of etcd, or behind a proxy that keeps a connection open, an informer may stay deaf for hours.
//
// What the watches should have reached shows the Lease of the election: its leader writes it every two seconds, and the API server reads a single object
// from etcd. A list would not do: the API server answers it from a cache of its own, which is as deaf as the informer once etcd was restored. But a list of a
// kind that never changes is what makes the API server find out how far etcd is, and tell its watches: etcd by its defaults says so every ten minutes only.
package watches

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// Pace is how fast dead watches are found, and how long a process goes on with them. The zero value of each field means its default.
type Pace struct {
	// Every is how often the watches are compared with the Lease; default 30 s.
	Every time.Duration
	// Behind is how long a watch may be behind before it is dead; default 2 min. The API server sends bookmarks about once a minute.
	Behind time.Duration
	// Leads and Acts are how long a process that leads goes on with a dead watch, and one that leads while a volume is lost, or may soon be; defaults 2 and
	// 4 min. It reads live before it acts.
	Leads, Acts time.Duration
}

// Watches are the watches of one process. It is a runnable of the controller manager and runs on every replica. Use [New].
type Watches struct {
	// Live reads the resourceVersion of the Lease.
	Live func(ctx context.Context) (string, error)
	// Elected is closed once this process leads.
	Elected <-chan struct{}
	// Acting reports whether a volume is lost, or in its grace period.
	Acting func() bool
	// Turn waits until no other replica ends. It returns an error if ctx ends before.
	Turn func(ctx context.Context) error
	// Dead counts a dead watch.
	Dead func()

	pace Pace
	log  logr.Logger

	mu  sync.Mutex
	all []*watch
	// lease is the newest resourceVersion of the Lease.
	lease uint64
}

// watch is the watch of one kind.
type watch struct {
	kind    string
	version func() string
	list    func(ctx context.Context) error
	// reached is the resourceVersion that it had reached when it was last compared.
	reached uint64
	// behind is one that it had not reached since then.
	behind uint64
	since  time.Time
}

// New returns Watches without any watch. Its fields must be set before Start.
func New(pace Pace, log logr.Logger) *Watches {
	orDefault := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDefault(&pace.Every, 30*time.Second)
	orDefault(&pace.Behind, 2*time.Minute)
	orDefault(&pace.Leads, 2*time.Minute)
	orDefault(&pace.Acts, 4*time.Minute)
	return &Watches{pace: pace, log: log}
}

// NewInformer returns an informer whose watch is among those that are compared. It has the signature of cache.Options.NewInformer.
func (w *Watches) NewInformer(
	lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(lw, o, resync, indexers)
	w.Add(fmt.Sprintf("%T", o), informer.LastSyncResourceVersion, func(ctx context.Context) error {
		_, err := toolscache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	return informer
}

// Add adds a watch of objects of a kind. version returns the resourceVersion that it has reached, and list has the API server list the kind.
func (w *Watches) Add(kind string, version func() string, list func(ctx context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, &watch{kind: kind, version: version, list: list})
}

// NeedLeaderElection makes the manager run it on every replica.
func (*Watches) NeedLeaderElection() bool { return false }

// Start compares the watches until ctx ends, and returns nil then. It returns an error, which ends the process, once a watch is dead: on a
// standby at once, on a leader after a while, and on each replica when its turn comes.
func (w *Watches) Start(ctx context.Context) error {
	var dead time.Time
	var kind string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.pace.Every):
		}
		if dead.IsZero() {
			if kind = w.deadOne(ctx); kind == "" {
				continue
			}
			dead = time.Now()
			w.Dead()
			w.log.Error(nil, "A watch of the API is dead: this process ends soon, and its container is started again", "kind", kind)
		}
		if time.Since(dead) < w.goesOn() {
			continue
		}
		if err := w.Turn(ctx); err != nil {
			if ctx.Err() == nil {
				w.log.Error(err, "Cannot tell whether another replica ends")
			}
			continue
		}
		return fmt.Errorf("the watch of %s has delivered nothing since %s, although the API server answers", kind, dead.Format(time.RFC3339))
	}
}

// goesOn returns how long this process goes on with a dead watch.
func (w *Watches) goesOn() time.Duration {
	select {
	case <-w.Elected:
	default:
		return 0
	}
	if w.Acting() {
		return w.pace.Acts
	}
	return w.pace.Leads
}

// deadOne compares the watches, and returns the kind of one that is dead; empty if none is. If the Lease was not read, or nobody has written it since it was
// last read, nothing is known.
func (w *Watches) deadOne(ctx context.Context) (dead string) {
	ctx, cancel := context.WithTimeout(ctx, w.pace.Every)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	reached := make([]string, len(w.all))
	for i, one := range w.all {
		reached[i] = one.version()
	}
	text, err := w.Live(ctx) // after that: who writes the Lease later makes a later version than all that were reached
	lease, ok := number(text)
	if err != nil || !ok || lease == w.lease {
		return ""
	}
	w.lease = lease
	for i, one := range w.all {
		if one.isDead(reached[i], lease, w.pace.Behind) {
			return one.kind
		}
	}
	var lists sync.WaitGroup
	for _, one := range w.all {
		lists.Go(func() {
			if err := one.list(ctx); err != nil {
				w.log.V(1).Info("Cannot list objects whose watch is checked", "kind", one.kind, "error", err.Error())
			}
		})
	}
	lists.Wait()
	return ""
}

// isDead reports whether a watch that has reached a version is dead: the Lease is older than what it had reached at the last comparison, and was written
// since, because etcd was restored; or the watch has been behind the Lease for too long.
func (o *watch) isDead(version string, lease uint64, atMost time.Duration) bool {
	reached, ok := number(version)
	if !ok {
		return false // nothing was listed yet
	}
	before := o.reached
	o.reached = reached
	switch {
	case lease < before:
		return true
	case reached >= o.behind:
		o.behind, o.since = lease, time.Now()
		return false
	}
	return time.Since(o.since) >= atMost
}

// number returns a resourceVersion as a number, by which those of one API server can be compared.
func number(text string) (uint64, bool) {
	v, err := strconv.ParseUint(text, 10, 64)
	return v, err == nil && v > 0
}
