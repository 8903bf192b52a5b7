// Package dial makes connections to hosts by their names, also while no name server answers.
//
// The node that is lost may have run the cluster's name server. Until Kubernetes has noticed, queries to it vanish, and a resolver waits
// five seconds for each, and longer for a name that has to be looked for in several domains.
package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// Patience is how long a dial waits for the addresses of a name whose last ones are known: a name server that lives answers within
	// milliseconds.
	Patience = 500 * time.Millisecond
	// lookupTimeout is how long a look-up may go on for the dials to come: a resolver may ask several servers, one after the other.
	lookupTimeout = 30 * time.Second
)

// Resolver finds the addresses of a name. [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Func makes a connection, as [net.Dialer.DialContext] does.
type Func func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer makes connections and keeps the last addresses of each name. It is safe for concurrent use.
type Dialer struct {
	resolver Resolver
	connect  Func
	timeout  time.Duration

	mu   sync.Mutex
	last map[string][]netip.Addr // by name
}

// New returns a Dialer that asks the system's name service, and connects as d does: d.Timeout bounds the whole of a dial.
func New(d *net.Dialer) *Dialer {
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	return With(resolver, d.DialContext, d.Timeout)
}

// With returns a Dialer of the given parts, of which connect is called with addresses only. No timeout is none.
func With(resolver Resolver, connect Func, timeout time.Duration) *Dialer {
	return &Dialer{resolver: resolver, connect: connect, timeout: timeout, last: make(map[string][]netip.Addr)}
}

// DialContext connects to an address host:port. The name service is asked each time. Where it does not answer within Patience, or with
// an error, and has ever told the host's addresses, the last ones are used. Where it has not, its answer is waited for, and its error is that
// of the dial.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.timeout)
		defer cancel()
	}
	host, port, err := net.SplitHostPort(address)
	if _, notAnAddress := netip.ParseAddr(host); err != nil || host == "" || notAnAddress == nil {
		return d.connect(ctx, network, address)
	}
	addresses, err := d.addresses(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return d.connectToAny(ctx, network, addresses, port)
}

// addresses returns those of a host: the newest that can be had without waiting for long.
func (d *Dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	answer := d.lookUp(ctx, host)
	kept := d.kept(host)
	var patience <-chan time.Time // for ever
	if len(kept) > 0 {
		patience = time.After(Patience)
	}
	select {
	case a := <-answer:
		if a.err != nil && len(kept) > 0 {
			return kept, nil
		}
		return a.addresses, a.err
	case <-patience:
		return kept, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("looking up %s: %w", host, ctx.Err())
	}
}

type answer struct {
	addresses []netip.Addr
	err       error
}

// lookUp asks for the addresses of a host and keeps them for later dials, be it that the one that asks is over by then.
func (d *Dialer) lookUp(ctx context.Context, host string) <-chan answer {
	result := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	go func() {
		defer cancel()
		addresses, err := d.resolver.LookupNetIP(ctx, "ip", host)
		if err == nil && len(addresses) == 0 {
			err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
		}
		if err == nil {
			d.mu.Lock()
			d.last[host] = addresses
			d.mu.Unlock()
		}
		result <- answer{addresses, err}
	}()
	return result
}

// kept returns the last addresses of a host, none if there was never an answer.
func (d *Dialer) kept(host string) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last[host]
}

// connectToAny tries addresses one after the other, each for its share of the time that is left.
func (d *Dialer) connectToAny(ctx context.Context, network string, addresses []netip.Addr, port string) (net.Conn, error) {
	var failures error
	for i, address := range addresses {
		conn, err := d.connectFor(ctx, len(addresses)-i, network, net.JoinHostPort(address.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		failures = errors.Join(failures, err)
	}
	return nil, failures
}

// connectFor tries an address for as long as each of so many may take.
func (d *Dialer) connectFor(ctx context.Context, shares int, network, address string) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(shares))
		defer cancel()
	}
	return d.connect(ctx, network, address)
}
