package bed_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// TestBareBed runs two processes of the controller where nothing looks after pods: one leads, follows
// LINSTOR and can be profiled; the other takes over when it is stopped.
func TestBareBed(t *testing.T) {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after Stop
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	b, err := bed.Start(ctx, bed.Options{Bare: true, Direct: true, Profiling: true})
	must(t, err)
	t.Cleanup(b.Stop)
	t.Logf("logs in %s", b.LogDir)
	b.LINSTOR.AddNode("storage")
	must(t, b.ApplyManifest(ctx))

	first := startReplica(ctx, t, b, "first")
	second := startReplica(ctx, t, b, "second")
	leads(ctx, t, b, first.Name)
	must(t, b.WaitFor(ctx, "both to follow LINSTOR", func() (bool, error) { return b.LINSTOR.Streams() == 2, nil }))

	profile := filepath.Join(t.TempDir(), "profile")
	must(t, b.Profile(ctx, first.Name, time.Second, profile))
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("the profile is empty: %v", err)
	}
	if err := b.Profile(ctx, "third", time.Second, profile); err == nil || !strings.Contains(err.Error(), "third") {
		t.Errorf("profile of a pod that does not exist: %v", err)
	}

	first.Stop()
	leads(ctx, t, b, second.Name)
	if _, err := first.WaitReady(ctx); err != nil {
		t.Errorf("it was ready before it was stopped: %v", err)
	}
}

// startReplica starts a process and waits until it is ready.
func startReplica(ctx context.Context, t *testing.T, b *bed.Bed, name string) *bed.Replica {
	t.Helper()
	r, err := b.StartReplica(ctx, name)
	must(t, err)
	_, err = r.WaitReady(ctx)
	must(t, err)
	return r
}

// leads waits until a process leads.
func leads(ctx context.Context, t *testing.T, b *bed.Bed, name string) {
	t.Helper()
	must(t, b.WaitFor(ctx, name+" to lead", func() (bool, error) {
		leader, err := b.Leader(ctx)
		return leader == name, err
	}))
}
