package sendby_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// An API server that is busy at first. client-go comes back after the second that it is told to wait.
func TestADeletionIsNotRepeatedWhenItIsLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		until func(ctx context.Context) context.Context
		sent  int32
		late  bool
	}{
		"it is repeated where nothing is said": {func(ctx context.Context) context.Context { return ctx }, 2, false},
		"it is repeated while there is time":   {within(time.Minute), 2, false},
		"it is not repeated later":             {within(500 * time.Millisecond), 1, true},
		"it is not sent where it is late":      {within(-time.Millisecond), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if sent.Add(1) == 1 {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL, QPS: -1}
			config.Wrap(sendby.Transport)
			clients, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			err = clients.CoreV1().Pods("default").Delete(tc.until(t.Context()), "db-0", metav1.DeleteOptions{})
			if errors.Is(err, sendby.ErrLate) != tc.late || (err != nil) != tc.late {
				t.Errorf("error %v", err)
			}
			if got := sent.Load(); got != tc.sent {
				t.Errorf("sent %d times, want %d", got, tc.sent)
			}
		})
	}
}

func within(d time.Duration) func(context.Context) context.Context {
	return func(ctx context.Context) context.Context { return sendby.With(ctx, time.Now().Add(d)) }
}
