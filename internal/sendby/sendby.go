// Package sendby keeps a request from being sent when what it rests on has become old.
package sendby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

// ErrLate is why a request was not sent: the moment by which it had to be has passed. It may have been sent before, and been rejected or
// have got no answer.
var ErrLate = errors.New("not sent, because what it rests on is too old by now; it has to be read again")

type contextKey struct{}

// With returns a context whose requests [Transport] sends until a moment, and not later. The answer may take longer, as ctx allows.
//
// A deadline would end the wait for an answer as well. And to look at the time before the request is made is not enough: client-go
// repeats by itself, up to ten times, what the API server rejects with the header Retry-After (429 where it is busy). A new connection
// may take seconds as well. What the kernel has taken over is out of reach: it may still be on its way.
func With(ctx context.Context, moment time.Time) context.Context {
	return context.WithValue(ctx, contextKey{}, moment)
}

// Transport returns next with the moments of [With] in force: a request that is late fails with an error that wraps [ErrLate].
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	moment, ok := req.Context().Value(contextKey{}).(time.Time)
	if !ok {
		return t.next.RoundTrip(req)
	}
	if late := time.Since(moment); late > 0 {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper has to, also where it fails
		}
		return nil, fmt.Errorf("%w (%s late)", ErrLate, late.Round(time.Millisecond))
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(time.Until(moment), func() { cancel(ErrLate) })
	tries := func() { timer.Reset(time.Until(moment)) } // also where the transport repeats by itself what it has written
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { tries() },
		GotConn: func(httptrace.GotConnInfo) { tries() },
		WroteRequest: func(written httptrace.WroteRequestInfo) {
			if written.Err == nil {
				timer.Stop()
			}
		},
	})
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrLate) {
			err = fmt.Errorf("%w (no connection in time: %w)", ErrLate, err)
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = body{resp.Body, cancel}
	return resp, nil
}

// body is an answer that ends its request's context when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find what is below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
