package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/dial"
)

const (
	// dialTimeout and handshakeTimeout are short, because another endpoint may be waiting.
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTimeout stays below the 30 s after which LINSTOR's HTTP server closes an idle connection.
	idleTimeout = 20 * time.Second
	// idleConnections are kept for the next burst of reads; opening one costs more than the read.
	idleConnections = 32
	// keepAlive* notice within about ten seconds that the controller's node is gone, also on an event
	// stream on which neither side ever sends.
	keepAliveIdle     = 4 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
)

// DialFunc makes a connection.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func defaultDial() DialFunc {
	return dial.New(&net.Dialer{
		Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
	}).DialContext
}

// rotatingTransport is the one transport that REST requests and the event stream share. The authorities that it trusts are
// read again for each request where they are a file, because they are rotated in place: when they have changed, new
// requests go over new connections. While the file is being replaced or can not be read, the last good ones stand.
type rotatingTransport struct {
	cfg  Config
	dial DialFunc

	mu      sync.Mutex
	pem     []byte
	current *http.Transport
}

func newTransport(cfg Config, dial DialFunc) *rotatingTransport {
	t := &rotatingTransport{cfg: cfg, dial: dial}
	roots, pem, err := cfg.tls.roots()
	if err != nil { // the file was good a moment ago, and will be again: until then nobody is trusted
		roots = x509.NewCertPool()
	}
	t.pem, t.current = pem, t.trusting(roots)
	return t
}

// trusting returns a transport that trusts the given authorities. It has no response-header timeout: LINSTOR sends the
// headers of an event stream with the first event.
func (t *rotatingTransport) trusting(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         t.dial,
		TLSClientConfig:     t.cfg.tls.config(roots),
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleTimeout,
	}
}

// RoundTrip implements http.RoundTripper.
func (t *rotatingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.latest().RoundTrip(req)
}

// CloseIdleConnections closes those that no request uses.
func (t *rotatingTransport) CloseIdleConnections() { t.latest().CloseIdleConnections() }

// latest returns the transport for a request that is sent now.
func (t *rotatingTransport) latest() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cfg.tls.ca == nil || t.cfg.tls.ca.file == "" {
		return t.current
	}
	if pem, err := t.cfg.tls.ca.read(); err != nil || bytes.Equal(pem, t.pem) {
		return t.current
	}
	roots, pem, err := t.cfg.tls.roots()
	if err != nil {
		return t.current
	}
	old := t.current
	t.pem, t.current = pem, t.trusting(roots)
	old.CloseIdleConnections()
	return t.current
}
