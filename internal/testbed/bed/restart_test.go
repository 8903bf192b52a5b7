package bed

import (
	"context"
	"errors"
	"testing"
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
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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
