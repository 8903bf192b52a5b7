package client

import (
	"context"
	"net"
	"net/http"
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

// newTransport returns the one transport that REST requests and the event stream share. It has no response-header timeout: LINSTOR sends the
// headers of an event stream with the first event.
func newTransport(cfg Config, dial DialFunc) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSClientConfig:     cfg.tls.config(),
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleTimeout,
	}
}
