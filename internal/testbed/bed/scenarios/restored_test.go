package scenarios_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/watches"
)

// An administrator restores etcd from a snapshot and leaves the API server running: its watches deliver nothing any more, and its lists come from a cache of
// its own that is as deaf. The process ends, and is started again with watches that deliver.
func TestAProcessWhoseWatchesAreDeafSinceEtcdWasRestoredEnds(t *testing.T) {
	root, err := bed.Root()
	if err != nil {
		t.Fatal(err)
	}
	data, snapshot := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "snapshot")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	env := &envtest.Environment{BinaryAssetsDirectory: filepath.Join(root, "bin")}
	env.ControlPlane.Etcd = &envtest.Etcd{DataDir: data}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	restart := func(whileItIsDown func() error) {
		t.Helper()
		for _, step := range []func() error{env.ControlPlane.Etcd.Stop, whileItIsDown, env.ControlPlane.Etcd.Start} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "election"}}
	if err := api.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	go wait.UntilWithContext(t.Context(), func(ctx context.Context) { // whoever leads renews it
		_ = api.Patch(ctx, lease.DeepCopy(), client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))))
	}, 100*time.Millisecond)

	found := watches.New(watches.Pace{Every: time.Second, Behind: time.Hour}, logr.Discard())
	found.Elected, found.Acting, found.Dead = make(chan struct{}), func() bool { return false }, func() {}
	found.Turn = func(context.Context) error { return nil }
	found.Live = func(ctx context.Context) (string, error) {
		var live coordinationv1.Lease
		err := api.Get(ctx, client.ObjectKeyFromObject(lease), &live)
		return live.ResourceVersion, err
	}
	watched, err := cache.New(config, cache.Options{NewInformer: found.NewInformer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watched.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = watched.Start(t.Context()) }()
	watched.WaitForCacheSync(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- found.Start(t.Context()) }()

	restart(func() error { return os.CopyFS(snapshot, os.DirFS(data)) })
	for i := range 200 { // what is lost with the restore
		write := func(ctx context.Context) (bool, error) {
			return api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("lost-", i)}}) == nil, nil
		}
		if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, write); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the process has ended before: %v", err)
	case <-time.After(5 * time.Second):
	}
	restart(func() error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(snapshot))
	})
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the process ended without an error")
		}
	case <-time.After(time.Minute):
		t.Error("the process goes on")
	}
}
