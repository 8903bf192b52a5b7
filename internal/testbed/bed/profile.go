package bed

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
	return b.profile(ctx, pod, fmt.Sprintf("profile?seconds=%d", int(duration.Seconds())), path)
}

// HeapProfile writes to a file what the memory of such a pod consists of, garbage left out.
func (b *Bed) HeapProfile(ctx context.Context, pod, path string) error {
	return b.profile(ctx, pod, "heap?gc=1", path)
}

func (b *Bed) profile(ctx context.Context, pod, what, path string) error {
	b.mu.Lock()
	port, ok := b.profilers[pod]
	b.mu.Unlock()
	if !ok {
		return fmt.Errorf("profile: pod %s has no profiler", pod)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/%s", port, what)
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
