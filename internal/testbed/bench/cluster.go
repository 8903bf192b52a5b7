package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// cluster is a bed with an observer.
type cluster struct {
	*bed.Bed
	seen *observer
	name string
	log  io.Writer
	// single is held by the single loss of the bed that is being played. While LINSTOR misses another node, or has not missed one yet that
	// is dead, it answers the CSI driver late or not at all, and whatever is attached then is no single loss.
	single *semaphore.Weighted
}

// startTimeout bounds bringing up a bed.
const startTimeout = 3 * time.Minute

// withCluster brings up a bed, with the controller deployed unless it is bare, calls play and stops the bed.
func withCluster(ctx context.Context, s Settings, name string, options bed.Options, play func(ctx context.Context, c *cluster) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	startCtx, stopStarting := context.WithTimeout(ctx, startTimeout)
	defer stopStarting()
	root, err := bed.Root()
	if err != nil {
		return err
	}
	options.Direct = true                                                             // nothing here cuts the controller's own network
	options.ControllerArgs = append(options.ControllerArgs, "--metrics-secure=false") // they are read here
	options.LogDir = fmt.Sprintf("%s/.testbed/bench-%s", root, name)
	b, err := bed.Start(startCtx, options)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer b.Stop()
	c := &cluster{Bed: b, name: name, log: s.Log, single: semaphore.NewWeighted(1)}
	if !options.Bare {
		if err := b.DeployController(startCtx); err != nil {
			return fmt.Errorf("%s: deploy the controller: %w", name, err)
		}
		ns := &corev1.Namespace{}
		ns.Name = namespace
		if err := b.Client.Create(ctx, ns); err != nil {
			return fmt.Errorf("%s: create namespace: %w", name, err)
		}
		if c.seen, err = observe(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := play(ctx, c); err != nil {
		return fmt.Errorf("%s (logs in %s): %w", name, b.LogDir, err)
	}
	return b.Err()
}

// say tells what goes on.
func (c *cluster) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.log, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), c.name, fmt.Sprintf(format, args...))
}

// cordon keeps the scheduler from nodes, or lets it use them again.
func (c *cluster) cordon(ctx context.Context, unschedulable bool, nodes ...string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
	for _, name := range nodes {
		node := &corev1.Node{}
		node.Name = name
		if err := c.Client.Patch(ctx, node, patch); err != nil {
			return fmt.Errorf("cordon node %s: %w", name, err)
		}
	}
	return nil
}

// profileLeader profiles the controller's leader for a while, into a file of the folder for profiles, if there is
// one. The returned function waits for the end.
func (c *cluster) profileLeader(ctx context.Context, path string, duration time.Duration) func() error {
	if path == "" {
		return func() error { return nil }
	}
	var group errgroup.Group
	group.Go(func() error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		return c.Profile(ctx, leader, duration, path)
	})
	return group.Wait
}

// profilePath returns the file of a profile, empty if none are wanted.
func (s Settings) profilePath(name string) (string, error) {
	if s.ProfileDir == "" {
		return "", nil
	}
	if err := os.MkdirAll(s.ProfileDir, 0o755); err != nil {
		return "", fmt.Errorf("folder for profiles: %w", err)
	}
	return filepath.Join(s.ProfileDir, name+".pprof"), nil
}

// pause waits, and tells whether ctx is still alive then.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
