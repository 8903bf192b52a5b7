package linstor

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
)

// network connects clients and servers without sockets, so that tests can run in synctest bubbles.
type network struct {
	mu    sync.Mutex
	hosts map[string]func(net.Conn)
	conns []net.Conn
}

func newNetwork() *network { return &network{hosts: map[string]func(net.Conn){}} }

func (n *network) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	accept := n.hosts[address]
	if accept == nil {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	}
	client, server := net.Pipe()
	n.conns = append(n.conns, server)
	accept(server)
	return client, nil
}

// silence makes a host accept connections and requests, and never answer.
func (n *network) silence(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[address] = func(conn net.Conn) { go func() { _, _ = io.Copy(io.Discard, conn) }() }
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		conn.Close()
	}
}

// serve runs a handler on an address until the test ends.
func (n *network) serve(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	listener := &pipeListener{conns: make(chan net.Conn, 100), done: make(chan struct{})}
	n.mu.Lock()
	n.hosts[address] = func(conn net.Conn) { listener.conns <- conn }
	n.mu.Unlock()
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close(); n.close() })
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
