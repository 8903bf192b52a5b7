package kubelet

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// errUnreachable is what a request of a partitioned node ends with.
var errUnreachable = errors.New("dial tcp: i/o timeout: the node is partitioned from the API")

// gateTimeout is how long a request hangs on a closed gate, as a connection attempt into a
// network that drops every packet would.
const gateTimeout = 10 * time.Second

// gate is the network between one node and the API. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while the gate is open; closed when it opens again
}

// shut drops everything from now on. Requests that are under way still complete.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// open lets requests pass again. Those that hang on the gate fail at once, to be repeated.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// reachable tells whether the gate is open.
func (g *gate) reachable() bool {
	return g.opened() == nil
}

// opened returns nil while the gate is open, otherwise a channel that is closed when it opens.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// wrap puts the gate in front of a transport.
func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return gatedTransport{gate: g, next: next}
}

// gatedTransport is a transport behind a gate.
type gatedTransport struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip passes the request on, or lets it hang and fail while the gate is shut.
func (t gatedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	opened := t.gate.opened()
	if opened == nil {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }() // a RoundTripper closes the body, also on errors
	}
	timeout := time.NewTimer(gateTimeout)
	defer timeout.Stop()
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case <-opened:
	case <-timeout.C:
	}
	return nil, errUnreachable
}
