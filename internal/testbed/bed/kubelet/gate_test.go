package kubelet

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// answer is a transport that always answers.
type answer struct{}

func (answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestGateHoldsRequestsBack(t *testing.T) {
	tests := map[string]struct {
		shut, open, cancel bool
		err                error
		took               time.Duration
	}{
		"an open gate lets them pass":            {},
		"a shut gate lets them time out":         {shut: true, err: errUnreachable, took: gateTimeout},
		"a gate that opens makes them try again": {shut: true, open: true, err: errUnreachable, took: time.Second},
		"a request can be given up":              {shut: true, cancel: true, err: context.Canceled, took: time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var g gate
				if test.shut {
					g.shut()
				}
				time.AfterFunc(time.Second, func() {
					if test.open {
						g.open()
					}
					if test.cancel {
						cancel()
					}
				})
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				response, err := g.wrap(answer{}).RoundTrip(req)
				if err == nil {
					_ = response.Body.Close()
				}
				if !errors.Is(err, test.err) || time.Since(begin) != test.took {
					t.Errorf("got %v after %s, want %v after %s", err, time.Since(begin), test.err, test.took)
				}
			})
		})
	}
}
