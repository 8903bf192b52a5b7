package linstor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// DefaultRequestTimeout is the deadline of a small REST request.
	DefaultRequestTimeout = 10 * time.Second
	// DefaultViewTimeout is the deadline of the view of all resources, for which LINSTOR asks its
	// satellites, and waits for those that hang.
	DefaultViewTimeout = 2 * time.Minute
	// minRequestTimeout bounds how far the deadline shrinks when several endpoints share it.
	minRequestTimeout = 3 * time.Second

	defaultUserAgent = "piraeus-ha-controller"
)

// Client asks LINSTOR controllers. It prefers the one that answered last, turns to the next when
// that one can not be reached, does not answer in time or fails (5xx), and is safe for concurrent use.
type Client struct {
	http           *http.Client
	endpoints      []endpoint
	requestTimeout time.Duration
	viewTimeout    time.Duration
	metrics        *Metrics
	rows           *knownRows

	mu      sync.Mutex
	current int
	moved   chan struct{} // closed and replaced when current changes
}

// ClientOption changes a default of NewClient.
type ClientOption func(*clientOptions)

type clientOptions struct {
	userAgent      string
	requestTimeout time.Duration
	viewTimeout    time.Duration
	dial           dialFunc
	base           http.RoundTripper
	metrics        *Metrics
}

// WithUserAgent sets the User-Agent of every request.
func WithUserAgent(userAgent string) ClientOption {
	return func(o *clientOptions) { o.userAgent = userAgent }
}

// WithRequestTimeout sets the deadline of small REST requests; the default is DefaultRequestTimeout. With
// several endpoints each attempt gets its share, so that a silent one does not use up the time of the others.
func WithRequestTimeout(timeout time.Duration) ClientOption {
	return func(o *clientOptions) { o.requestTimeout = timeout }
}

// WithMetrics makes the client count its requests.
func WithMetrics(metrics *Metrics) ClientOption {
	return func(o *clientOptions) { o.metrics = metrics }
}

// WithDialContext replaces how connections are made, for tests without sockets.
func WithDialContext(dial dialFunc) ClientOption {
	return func(o *clientOptions) { o.dial = dial }
}

// WithRoundTripper replaces the transport below authentication, for tests.
func WithRoundTripper(base http.RoundTripper) ClientOption {
	return func(o *clientOptions) { o.base = base }
}

// NewClient returns a client for the controllers of cfg. It connects to none of them yet.
func NewClient(cfg Config, opts ...ClientOption) (*Client, error) {
	if len(cfg.endpoints) == 0 {
		return nil, errors.New("no LINSTOR controller is configured; make the configuration with ConfigFromEnv")
	}
	o := clientOptions{
		userAgent: defaultUserAgent, requestTimeout: DefaultRequestTimeout, viewTimeout: DefaultViewTimeout,
		dial: defaultDial(),
	}
	for _, opt := range opts {
		opt(&o)
	}
	if o.base == nil {
		o.base = newTransport(cfg, o.dial)
	}
	if o.metrics == nil {
		o.metrics = NewMetrics()
	}
	transport := newAuthTransport(o.base, cfg, o.userAgent)
	endpoints, err := withGolinstor(cfg.endpoints, transport)
	if err != nil {
		return nil, err
	}
	return &Client{
		http:           &http.Client{Transport: transport},
		endpoints:      endpoints,
		requestTimeout: max(o.requestTimeout/time.Duration(len(cfg.endpoints)), min(minRequestTimeout, o.requestTimeout)),
		viewTimeout:    o.viewTimeout,
		metrics:        o.metrics,
		rows:           newKnownRows(),
		moved:          make(chan struct{}),
	}, nil
}

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// endpoint returns the endpoint in use, and a channel that is closed when another takes its place.
func (c *Client) endpoint() (*url.URL, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoints[c.current].url, c.moved
}

// moveTo makes n the endpoint in use. Only an endpoint that has just answered gets there.
func (c *Client) moveTo(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == c.current {
		return
	}
	c.current = n
	close(c.moved)
	c.moved = make(chan struct{})
}

// try runs do against the endpoint in use, and against each of the others while they fail.
func (c *Client) try(ctx context.Context, kind string, timeout time.Duration, do func(context.Context, endpoint) error) error {
	c.mu.Lock()
	first := c.current
	c.mu.Unlock()

	var failures error
	for i := range c.endpoints {
		n := (first + i) % len(c.endpoints)
		err := c.once(ctx, kind, timeout, c.endpoints[n], do)
		if statusErr, ok := errors.AsType[*StatusError](err); err == nil || ok && statusErr.final() {
			c.moveTo(n)
			return err
		}
		if failures == nil {
			failures = err
		} else {
			failures = fmt.Errorf("%w; %w", failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failures
}

// once runs do with a deadline of its own.
func (c *Client) once(
	ctx context.Context, kind string, timeout time.Duration, e endpoint, do func(context.Context, endpoint) error,
) error {
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := do(attempt, e)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// net/http answers with the context's cause, which can be anything: another request's 404, say.
		err = ctx.Err()
	case attempt.Err() != nil:
		// Not the caller's deadline: callers that share a request must be able to tell.
		err = noAnswerError{timeout}
	}
	c.metrics.request(kind, err)
	if err != nil {
		return fmt.Errorf("LINSTOR controller %s: read %s: %w", e.url.Host, kind, err)
	}
	return nil
}

// noAnswerError is a request that ran into its deadline.
type noAnswerError struct{ timeout time.Duration }

func (e noAnswerError) Error() string { return fmt.Sprintf("no answer within %s", e.timeout) }

// get asks for a JSON document and hands its body to decode.
func (c *Client) get(ctx context.Context, kind string, timeout time.Duration, path string, decode func(io.Reader) error) error {
	return c.try(ctx, kind, timeout, func(ctx context.Context, e endpoint) error {
		resp, err := c.send(ctx, e.url, path, "application/json", nil)
		if err != nil {
			return err
		}
		defer closeBody(resp)
		if err := checkResponse(resp, "application/json"); err != nil {
			return err
		}
		if err := decode(resp.Body); err != nil {
			return fmt.Errorf("can not decode the answer: %w", err)
		}
		// What follows the document must be read, or the connection can not be used again.
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
}

// send issues a GET request. Its errors name neither the URL, which the caller knows, nor any header.
func (c *Client) send(ctx context.Context, base *url.URL, path, accept string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String()+path, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", accept)
	maps.Copy(req.Header, header)
	resp, err := c.http.Do(req)
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		err = urlErr.Err
	}
	return resp, err
}

// closeBody ends a response. There is nothing to do about an error: what was needed has been read.
func closeBody(resp *http.Response) { _ = resp.Body.Close() }
