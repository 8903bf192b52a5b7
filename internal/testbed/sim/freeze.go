package sim

import (
	"context"
	"net"
	"sync"
)

// freezer stops everything that a process sends and hears, as a process is that gets no processor: what it was about to do it does
// afterwards.
type freezer struct {
	mu     sync.Mutex
	thawed chan struct{} // nil while it runs
	// still is set where not even deadlines end a wait, until the process goes on.
	still bool
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		f.thawed = make(chan struct{})
	}
}

// stop freezes a process that does not even notice that a deadline passes.
func (f *freezer) stop() {
	f.freeze()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still = true
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.still = false
	if f.thawed != nil {
		close(f.thawed)
		f.thawed = nil
	}
}

func (f *freezer) frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thawed != nil
}

// wait waits until the process runs.
func (f *freezer) wait(ctx context.Context) error {
	f.mu.Lock()
	thawed, still := f.thawed, f.still
	f.mu.Unlock()
	if thawed == nil {
		return nil
	}
	if still {
		<-thawed
		return ctx.Err()
	}
	select {
	case <-thawed:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// conn is a connection of a process that can be frozen.
type conn struct {
	net.Conn
	freezer *freezer
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_ = c.freezer.wait(context.Background())
	return n, err
}

func (c conn) Write(b []byte) (int, error) {
	_ = c.freezer.wait(context.Background())
	return c.Conn.Write(b)
}
