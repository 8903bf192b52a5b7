package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// DefaultRequestTimeout is the deadline of a small REST request.
	DefaultRequestTimeout = 10 * time.Second
	// satelliteTimeout is the deadline of a request that LINSTOR answers once its satellites have, also those that hang.
	satelliteTimeout = 2 * time.Minute
	// minRequestTimeout bounds how far the deadline shrinks when several endpoints share it.
	minRequestTimeout = 3 * time.Second
)

const mediaJSON = "application/json"

// Client asks LINSTOR controllers. It prefers the one that answered last, turns to the next when
// that one can not be reached, does not answer in time or fails (5xx), and is safe for concurrent use.
type Client struct {
	http           *http.Client
	endpoints      []endpoint
	requestTimeout time.Duration
	observe        func(kind string, err error)
	// anonymous is set if there is no certificate of the client.
	anonymous bool

	mu      sync.Mutex
	current int
	moved   chan struct{} // closed and replaced when current changes
}

// Options are the settings of a Client. The zero value of each field means its default.
type Options struct {
	// UserAgent is the User-Agent of every request.
	UserAgent string
	// RequestTimeout is the deadline of small REST requests; default DefaultRequestTimeout. With several endpoints each attempt gets its
	// share, so that a silent one does not use up the time of the others.
	RequestTimeout time.Duration
	// Observe is told of each request by kind, and how it has ended.
	Observe func(kind string, err error)
	// DialContext makes connections in place of the network, for tests without sockets.
	DialContext DialFunc
	// RoundTripper takes the place of the transport below authentication, for tests.
	RoundTripper http.RoundTripper
}

func (o Options) withDefaults(cfg Config) Options {
	o.UserAgent = cmp.Or(o.UserAgent, "piraeus-ha-controller")
	o.RequestTimeout = cmp.Or(o.RequestTimeout, DefaultRequestTimeout)
	if o.Observe == nil {
		o.Observe = func(string, error) {}
	}
	if o.DialContext == nil {
		o.DialContext = defaultDial()
	}
	if o.RoundTripper == nil {
		o.RoundTripper = newTransport(cfg, o.DialContext)
	}
	return o
}

// New returns a client for the controllers of cfg. It connects to none of them yet.
func New(cfg Config, opts Options) (*Client, error) {
	if len(cfg.endpoints) == 0 {
		return nil, errors.New("no LINSTOR controller is configured; make the configuration with ConfigFromEnv")
	}
	opts = opts.withDefaults(cfg)
	share := opts.RequestTimeout / time.Duration(len(cfg.endpoints))
	return &Client{
		http:           &http.Client{Transport: newAuthTransport(opts.RoundTripper, cfg, opts.UserAgent)},
		endpoints:      cfg.endpoints,
		anonymous:      cfg.tls.cert == nil,
		requestTimeout: max(share, min(minRequestTimeout, opts.RequestTimeout)),
		observe:        opts.Observe,
		moved:          make(chan struct{}),
	}, nil
}

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Endpoint returns the endpoint in use, and a channel that is closed when another takes its place.
func (c *Client) Endpoint() (*url.URL, <-chan struct{}) {
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

// get asks for a JSON document and hands its body to decode: the endpoint in use, and each of the others while they fail.
func (c *Client) get(ctx context.Context, kind string, timeout time.Duration, path string, decode func(io.Reader) error) error {
	c.mu.Lock()
	first := c.current
	c.mu.Unlock()

	var failures error
	for i := range c.endpoints {
		n := (first + i) % len(c.endpoints)
		err := c.getFrom(ctx, c.endpoints[n].url, kind, timeout, path, decode)
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

// getFrom asks one endpoint, with a deadline of its own.
func (c *Client) getFrom(
	ctx context.Context, base *url.URL, kind string, timeout time.Duration, path string, decode func(io.Reader) error,
) error {
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.getJSON(attempt, base, path, decode)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// net/http answers with the context's cause, which can be anything: another request's 404, say.
		err = ctx.Err()
	case attempt.Err() != nil:
		// Not the caller's deadline: callers that share a request must be able to tell.
		err = NoAnswerError{timeout}
	}
	c.observe(kind, err)
	if err != nil {
		return fmt.Errorf("LINSTOR controller %s: read %s: %w", base.Host, kind, err)
	}
	return nil
}

// NoAnswerError is a request that ran into its deadline.
type NoAnswerError struct{ timeout time.Duration }

// Error implements error.
func (e NoAnswerError) Error() string { return fmt.Sprintf("no answer within %s", e.timeout) }

func (c *Client) getJSON(ctx context.Context, base *url.URL, path string, decode func(io.Reader) error) error {
	resp, err := c.send(ctx, http.MethodGet, base, path, http.Header{"Accept": {mediaJSON}}, nil)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if err := checkResponse(resp, mediaJSON); err != nil {
		return err
	}
	if err := decode(resp.Body); err != nil {
		return fmt.Errorf("can not decode the answer: %w", err)
	}
	// What follows the document must be read, or the connection can not be used again.
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// send sends a request. Its errors name neither the URL, which the caller knows, nor any header.
func (c *Client) send(ctx context.Context, method string, base *url.URL, path string, header http.Header, body []byte) (*http.Response, error) {
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." { // it would lead elsewhere, escaped or not
			return nil, fmt.Errorf("LINSTOR can have nothing of the name %q: %w", name, ErrNotFound)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		secure := strings.HasPrefix(urlErr.URL, "https:") // also if it was redirected there
		err = explained(urlErr.Err, c.anonymous && secure)
	}
	return resp, err
}

// closeBody ends a response. There is nothing to do about an error: what was needed has been read.
func closeBody(resp *http.Response) { _ = resp.Body.Close() }
