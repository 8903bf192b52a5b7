package sendby_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// network is one that sends a request when it has a connection, perhaps once more, and answers later.
type network struct{ connects, again, answers time.Duration }

func (n network) RoundTrip(req *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(req.Context())
	sent := func() { trace.WroteRequest(httptrace.WroteRequestInfo{}) }
	steps := []func() time.Duration{
		func() time.Duration { trace.GetConn(""); return n.connects },
		func() time.Duration { sent(); return 0 },
	}
	if n.again > 0 {
		steps = append(steps, func() time.Duration { trace.GetConn(""); return n.again }, func() time.Duration { sent(); return 0 })
	}
	for _, step := range append(steps, func() time.Duration { return n.answers }) {
		select {
		case <-time.After(step()):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return httptest.NewRecorder().Result(), nil
}

func TestARequestIsNotSentWhenItsConnectionComesLate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		network network
		late    bool
	}{
		"but may be answered late":                 {network{connects: time.Second / 2, answers: time.Minute}, false},
		"however soon the answer would have come":  {network{connects: 2 * time.Second}, true},
		"nor where it has to be sent once more":    {network{connects: time.Second / 2, again: 2 * time.Second}, true},
		"and is sent as ever where both come soon": {network{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				req := httptest.NewRequestWithContext(within(time.Second)(t.Context()), http.MethodDelete, "/", nil)
				began := time.Now()
				resp, err := sendby.Transport(tc.network).RoundTrip(req)
				if errors.Is(err, sendby.ErrLate) != tc.late || (err != nil) != tc.late {
					t.Errorf("error %v", err)
				}
				if err == nil {
					if err := resp.Body.Close(); err != nil {
						t.Error(err)
					}
				} else if time.Since(began) != time.Second {
					t.Errorf("given up after %s", time.Since(began))
				}
			})
		})
	}
}
