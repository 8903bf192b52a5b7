package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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
	case <-time.After(3500 * time.Millisecond):
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
			Lock:          Wrap(lock, 7*time.Second, 2*time.Second),
			LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() { close(stopped) },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		go elector.Run(t.Context())
		<-stopped
		if took := time.Since(l.renewed()); took > 9*time.Second {
			t.Errorf("the leader stopped %s after it had renewed its Lease, want at most 9s", took)
		}
		if l.holder() != "leader" {
			t.Errorf("%q holds the Lease of an API that does not answer", l.holder())
		}
	})
}
