package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	lapi "github.com/LINBIT/golinstor/client"
)

// withGolinstor gives each endpoint a golinstor client over the shared transport. Each knows one controller
// only, since golinstor's own choice goes by who accepts a TCP connection.
func withGolinstor(endpoints []endpoint, transport http.RoundTripper) ([]endpoint, error) {
	endpoints = slices.Clone(endpoints)
	for i, e := range endpoints {
		api, err := lapi.NewClient(
			lapi.BaseURL(e.url),
			lapi.HTTPClient(&http.Client{Transport: jsonTransport{transport}}),
			// The default logger prints every request with its credentials.
			lapi.Log(nil),
			// The transport authenticates; golinstor would do so with what it read from the environment once.
			lapi.BasicAuth(&lapi.BasicAuthCfg{}),
			lapi.BearerToken(""),
		)
		if err != nil {
			return nil, fmt.Errorf("LINSTOR controller %s: %w", e.url.Host, err)
		}
		endpoints[i].api = api
	}
	return endpoints, nil
}

// ask makes a small request by golinstor.
func ask[T any](ctx context.Context, c *Client, kind string, do func(context.Context, *lapi.Client) (T, error)) (T, error) {
	var value T
	err := c.try(ctx, kind, c.requestTimeout, func(ctx context.Context, e endpoint) error {
		var err error
		value, err = do(ctx, e.api)
		// The URL is in the caller's words already.
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			return urlErr.Err
		}
		if err != nil {
			return fmt.Errorf("can not decode the answer: %w", err)
		}
		return nil
	})
	return value, err
}

// jsonTransport turns whatever is no successful JSON answer into a StatusError, of which golinstor would
// keep neither status nor message.
type jsonTransport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t jsonTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil || resp.StatusCode/100 == 3 {
		return resp, err
	}
	if err := checkResponse(resp, "application/json"); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	resp.Body = drained{resp.Body}
	return resp, nil
}

// drained reads what follows a document before it closes, or the connection could not be used again.
type drained struct{ io.ReadCloser }

// Close implements io.Closer.
func (d drained) Close() error {
	_, _ = io.Copy(io.Discard, d.ReadCloser)
	return d.ReadCloser.Close()
}
