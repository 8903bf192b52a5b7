package bed

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// relay is a cable: it passes TCP connections on from a loopback address of its own, and can be cut. While
// it is cut nothing passes and nothing is refused, as when a network drops every packet; what was sent
// meanwhile arrives when it is mended, as by TCP's retransmissions.
type relay struct {
	listener net.Listener
	target   string
	ctx      context.Context //nolint:containedctx // ends with the relay, as its goroutines do
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	cut      chan struct{} // nil while the cable is whole; closed when it is mended
	stranded chan struct{} // closed when the connections of now are stranded
}

// anyPort is an address of which the kernel chooses the port.
const anyPort = "127.0.0.1:0"

// newRelay listens at an address that leads to target.
func newRelay(address, target string) (*relay, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", target, err)
	}
	r := &relay{listener: listener, target: target, stranded: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.wg.Go(r.accept)
	return r, nil
}

// addr returns the host and port to connect to.
func (r *relay) addr() string { return r.listener.Addr().String() }

// setCut cuts or mends the cable.
func (r *relay) setCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case cut && r.cut == nil:
		r.cut = make(chan struct{})
	case !cut && r.cut != nil:
		close(r.cut)
		r.cut = nil
	}
}

// strand leaves the connections of now without a far end, as when that has lost its power: what is sent is swallowed, nothing comes, and
// nobody is told. New connections are not concerned.
func (r *relay) strand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.stranded)
	r.stranded = make(chan struct{})
}

// fate returns what is closed when the connections of now are stranded.
func (r *relay) fate() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stranded
}

// close ends all connections.
func (r *relay) close() {
	r.cancel()
	_ = r.listener.Close()
	r.wg.Wait()
}

// accept takes connections until the relay is closed.
func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(conn) })
	}
}

// serve carries one connection to its end.
func (r *relay) serve(near net.Conn) {
	defer func() { _ = near.Close() }()
	stranded := r.fate()
	if !r.whole() {
		return
	}
	far, err := (&net.Dialer{}).DialContext(r.ctx, "tcp", r.target)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	ctx, end := context.WithCancel(r.ctx)
	defer end()
	context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		r.carry(near, far, stranded)
		if closed(stranded) { // the near end does not hear of the far one's
			<-ctx.Done()
		}
	})
	wg.Go(func() { defer end(); r.carry(far, near, stranded) })
	wg.Wait()
}

// closed tells whether a channel is closed that nothing is sent on.
func closed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// carry copies one direction.
func (r *relay) carry(to, from net.Conn, stranded <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if closed(stranded) {
			if err != nil {
				return
			}
			continue
		}
		if !r.whole() { // the end of a connection does not pass a cut cable either
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// whole waits while the cable is cut, and tells whether the relay is still open.
func (r *relay) whole() bool {
	for {
		r.mu.Lock()
		cut := r.cut
		r.mu.Unlock()
		if cut == nil {
			return r.ctx.Err() == nil
		}
		select {
		case <-cut:
		case <-r.ctx.Done():
			return false
		}
	}
}
