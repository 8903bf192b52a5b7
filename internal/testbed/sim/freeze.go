package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
)

// freezer stops everything that a process sends and hears, as a process is that gets no processor: what it was about to do it does
// afterwards.
type freezer struct {
	mu     sync.Mutex
	thawed chan struct{} // nil while it runs
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		f.thawed = make(chan struct{})
	}
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	thawed := f.thawed
	f.mu.Unlock()
	if thawed == nil {
		return nil
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

// late tells whether a request comes too late to be sent, as the transport under a real client does.
func late(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api", http.NoBody)
	if err != nil {
		return err
	}
	response, err := sendby.Transport(sent{}).RoundTrip(request)
	if err != nil {
		return err
	}
	return errors.Join(response.Body.Close())
}

// sent answers every request.
type sent struct{}

func (sent) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(http.NoBody)}, nil
}
