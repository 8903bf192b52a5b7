package leaderelection

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a Lease in memory, which refuses writes that name another version than the last.
type lease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

// client is one process's way to it.
type client struct {
	*lease
	identity string
	read     int
}

func (c *client) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	record := *c.record
	raw, err := json.Marshal(record)
	c.read = c.version
	return &record, raw, err
}

func (c *client) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, record)
}

func (c *client) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read != c.version {
		return apierrors.NewConflict(schema.GroupResource{}, "lease", nil)
	}
	c.record = &record
	c.version++
	c.read = c.version
	return nil
}

func (*client) RecordEvent(string) {}
func (c *client) Identity() string { return c.identity }
func (c *client) Describe() string { return "lease" }
func (l *lease) holder() string    { l.mu.Lock(); defer l.mu.Unlock(); return l.record.HolderIdentity }

func (l *lease) renewed() (t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.RenewTime.Time
}

// join starts a process by the default durations of the options and returns what ends it: with a word, or without.
func (l *lease) join(t *testing.T, identity string) (end func(releases bool)) {
	t.Helper()
	dead := &mortal{Interface: Wrap(&client{lease: l, identity: identity})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: dead, LeaseDuration: 10 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go elector.Run(ctx)
	return func(releases bool) {
		dead.die(!releases)
		cancel()
		synctest.Wait()
	}
}

// mortal is the lock of a process that may be killed: nothing that it writes arrives then.
type mortal struct {
	resourcelock.Interface
	mu   sync.Mutex
	dead bool
}

func (m *mortal) die(dead bool) { m.mu.Lock(); defer m.mu.Unlock(); m.dead = dead }

func (m *mortal) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if dead {
		return context.Canceled
	}
	return m.Interface.Update(ctx, record)
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// What ends a leader, and how the one behind it is called.
var ends = map[string]bool{"is killed": false, "is asked to end": true}

func TestReplicasThatHaveSeenMoreGoFirst(t *testing.T) {
	for name, releases := range ends {
		t.Run("where the leader "+name+" and starts again", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l lease
				end := l.join(t, "leader")
				synctest.Wait()
				defer l.join(t, "standby")(false)
				pass(2 * time.Minute)
				end(releases)
				defer l.join(t, "again")(false)
				pass(20 * time.Second)
				if got := l.holder(); got != "standby" {
					t.Errorf("%q leads, want the one that has seen everything", got)
				}
			})
		})
	}
}

func TestANewcomerLeadsWhereNobodyElseDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		releases bool
		pause    time.Duration // before it starts
		within   time.Duration // client-go tries again after at most 2.2 RetryPeriods, 4.4 s
	}{
		"once it is half a minute old, after a leader that was killed":       {within: 35 * time.Second},
		"once it is half a minute old, after a leader that was asked to end": {releases: true, within: 35 * time.Second},
		"soon, if nobody has held the Lease for a minute":                    {pause: time.Minute, within: 15 * time.Second},
		"at once, if the last leader gave it up a minute ago":                {releases: true, pause: time.Minute, within: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l lease
				end := l.join(t, "leader")
				synctest.Wait()
				if got := l.holder(); got != "leader" {
					t.Fatalf("%q leads, want the first at once", got)
				}
				pass(2 * time.Minute)
				end(tc.releases)
				pass(tc.pause)
				started := time.Now()
				defer l.join(t, "again")(false)
				pass(tc.within)
				if got := l.holder(); got != "again" {
					t.Errorf("%q leads %s after the start, want the newcomer", got, time.Since(started))
				}
				// And goes on doing so.
				pass(time.Minute)
				if age := time.Since(l.renewed()); l.holder() != "again" || age > 5*time.Second {
					t.Errorf("%q leads and has renewed %s ago", l.holder(), age)
				}
			})
		})
	}
}

// silent is a lock whose API may cease to answer: each request takes as long as the client waits.
type silent struct {
	*client
	since time.Time
}

func (s *silent) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := s.answers(ctx); err != nil {
		return nil, nil, err
	}
	return s.client.Get(ctx)
}

func (s *silent) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := s.answers(ctx); err != nil {
		return err
	}
	return s.client.Update(ctx, record)
}

func (s *silent) answers(ctx context.Context) error {
	if time.Now().Before(s.since) {
		return nil
	}
	select {
	case <-time.After(2500 * time.Millisecond):
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Lease that nobody renews may be taken after its duration. The leader has stopped by then.
func TestALeaderThatCannotRenewItsLeaseStopsBeforeItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lease
		lock := &silent{client: &client{lease: &l, identity: "leader"}, since: time.Now().Add(time.Minute)}
		stopped := make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          Wrap(lock),
			LeaseDuration: 10 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() { close(stopped) },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		go elector.Run(t.Context())
		<-stopped
		if took := time.Since(l.renewed()); took > 9500*time.Millisecond {
			t.Errorf("the leader stopped %s after it had renewed its Lease, want at most 9.5s", took)
		}
		if l.holder() != "leader" {
			t.Errorf("%q holds the Lease of an API that does not answer", l.holder())
		}
	})
}

// The leader is lost right after a rollout, when each replica has been ready for minReadySeconds: the next one leads as soon as the Lease may be taken.
func TestAReplicaThatIsHalfAMinuteOldLeadsAsSoonAsTheLeaseExpires(t *testing.T) {
	for range 20 { // the times of all tries are random
		synctest.Test(t, func(t *testing.T) {
			var l lease
			end := l.join(t, "leader")
			synctest.Wait()
			pass(2 * time.Second)
			defer l.join(t, "next")(false)
			pass(35 * time.Second)
			end(false)
			pass(19 * time.Second) // the Lease's 10 s since it was last seen to change, and up to 4.4 s until it is looked at, before and after
			if got := l.holder(); got != "next" {
				t.Errorf("%q leads, want the next one", got)
			}
		})
	}
}

func TestANewcomerLetsAnOlderReplicaLead(t *testing.T) {
	for range 20 { // the times of all tries are random
		synctest.Test(t, func(t *testing.T) {
			var l lease
			end := l.join(t, "leader")
			synctest.Wait()
			defer l.join(t, "standby")(false)
			pass(2 * time.Minute)
			defer l.join(t, "young")(false)
			pass(5 * time.Second)
			end(false)
			pass(30 * time.Second)
			if got := l.holder(); got != "standby" {
				t.Errorf("%q leads, want the one that has seen everything", got)
			}
		})
	}
}
