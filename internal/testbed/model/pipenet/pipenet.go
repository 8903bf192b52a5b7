// Package pipenet is a network inside the process: a listener whose connections are net.Pipe pairs. A goroutine
// that waits for one is durably blocked, so that servers and clients can talk in a testing/synctest bubble.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// Listener accepts the connections that its DialContext makes. Use [Listen].
type Listener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{}
}

var _ net.Listener = (*Listener)(nil)

// Listen returns an open listener.
func Listen() *Listener {
	return &Listener{accept: make(chan net.Conn), closed: make(chan struct{}), conns: map[*conn]struct{}{}}
}

// DialContext connects to the listener whatever network and address say, so that it fits
// [net/http.Transport.DialContext]. It waits until the connection is accepted, and fails when the listener is
// closed or the context ends.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.dial(ctx, "pipe")
}

// DialFrom returns a DialContext whose connections the listener sees to come from that address.
func (l *Listener) DialFrom(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, address(from)) }
}

func (l *Listener) dial(ctx context.Context, from address) (net.Conn, error) {
	near, far := net.Pipe()
	server := &conn{Conn: far, listener: l, from: from}
	l.mu.Lock()
	l.conns[server] = struct{}{}
	l.mu.Unlock()
	select {
	case l.accept <- server:
		return near, nil
	case <-l.closed:
		_, _ = near.Close(), server.Close()
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		_, _ = near.Close(), server.Close()
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: ctx.Err()}
	}
}

// Accept waits for the next connection. It returns an error that wraps [net.ErrClosed] once the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "pipe", Addr: l.Addr(), Err: net.ErrClosed}
	default:
	}
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "pipe", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close ends accepting and dialling. Connections stay as they are.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Disconnect closes all connections that are open now; the listener goes on.
func (l *Listener) Disconnect() {
	l.mu.Lock()
	conns := l.conns
	l.conns = map[*conn]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// Addr returns an address without meaning.
func (l *Listener) Addr() net.Addr { return address("pipe") }

// conn is the accepting end of a connection, which its listener keeps a list of.
type conn struct {
	net.Conn
	listener *Listener
	from     address
}

func (c *conn) RemoteAddr() net.Addr { return c.from }

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
