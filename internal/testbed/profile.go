package testbed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Profile writes to a file what a pod of the high availability controller spends processor time on for a
// while, as "go tool pprof" reads it. The bed must have been started with Profiling.
func (b *Bed) Profile(ctx context.Context, pod string, duration time.Duration, path string) error {
	b.mu.Lock()
	port, ok := b.profilers[pod]
	b.mu.Unlock()
	if !ok {
		return fmt.Errorf("profile: pod %s has no profiler", pod)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/profile?seconds=%d", port, int(duration.Seconds()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("profile of pod %s: %w", pod, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("profile of pod %s: %w", pod, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile of pod %s: %s", pod, resp.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("profile of pod %s: %w", pod, err)
	}
	_, err = io.Copy(file, resp.Body)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("profile of pod %s: %w", pod, err)
	}
	return nil
}
