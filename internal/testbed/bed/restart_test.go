package bed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAComponentEndsByItself ends etcd without Kill: for a bed that restarts its components that is nothing but counted, for
// any other an error.
func TestAComponentEndsByItself(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"and is started again": true, "which is an error": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			b, err := Start(ctx, Options{Bare: true, RestartComponents: restart})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Stop)
			if times := b.Restarts(); len(times) != 0 {
				t.Errorf("ended before anything was done: %v", times)
			}
			b.components[Etcd].kill()
			if !restart {
				err := b.WaitFor(ctx, "the end of etcd to be an error", func() (bool, error) { return false, nil })
				if !errors.Is(err, errEnded) {
					t.Errorf("the end of etcd led to %v; want an error that says so", err)
				}
				return
			}
			if err := b.WaitFor(ctx, "the end of etcd to be counted", func() (bool, error) { return b.Restarts()[Etcd] == 1, nil }); err != nil {
				t.Fatal(err)
			}
			if err := b.WaitFor(ctx, "the API to answer again", func() (bool, error) {
				return b.Client.List(ctx, &corev1.NodeList{}) == nil, nil
			}); err != nil {
				t.Error(err)
			}
			if err := b.Err(); err != nil {
				t.Errorf("the end of etcd is an error: %v", err)
			}
		})
	}
}

// TestTheAttacherEndsWhileItStarts ends it once, as it does by itself where the CSI driver is slow to answer: it is started again.
func TestTheAttacherEndsWhileItStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Bed{components: map[Component]*component{}, restarts: map[Component]int{}}
		t.Cleanup(b.Stop)
		ended := make(chan struct{})
		started := 0
		b.keep(Attacher, &component{ended: ended, start: func() (<-chan struct{}, error) {
			started++
			return make(chan struct{}), nil
		}})
		close(ended)
		time.Sleep(2 * restartDelay)
		synctest.Wait()
		if err := b.Err(); started != 1 || err != nil {
			t.Errorf("started again %d times, error %v; want once and none", started, err)
		}
	})
}
