// Package servertime turns the times that the Kubernetes API server gives its objects into those of this machine's clock, which may be
// minutes off.
package servertime

import (
	"net/http"
	"sync"
	"time"
)

const (
	// precision is that of the header Date, which leaves out what is less.
	precision = time.Second
	// lasts is for how long the best estimate is kept where newer ones are no better: clocks drift.
	lasts = time.Minute
)

// Clock knows by how much this machine's clock is ahead of the API server's. Use [New]. A nil Clock takes the two for the same. It is
// safe for concurrent use.
type Clock struct {
	mu sync.Mutex
	// ahead is at least as much as this machine's clock is ahead: what is turned into its time may seem younger, and never older.
	ahead   time.Duration
	learned time.Time // zero while nothing is known
}

// New returns a Clock that knows nothing yet.
func New() *Clock { return &Clock{} }

// Transport returns next, and learns from the header Date of each answer.
func (c *Clock) Transport(next http.RoundTripper) http.RoundTripper { return transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	asked := time.Now()
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		t.clock.Learn(asked, time.Now(), date)
	}
	return resp, nil
}

// Learn takes over what the server said its time was, between the times of this machine at which it was asked and had answered.
func (c *Clock) Learn(asked, answered, date time.Time) {
	// Without the readings of the monotonic clock, by which a clock that was set would not show.
	asked, answered = asked.Round(0), answered.Round(0)
	atMost, moreThan := answered.Sub(date), asked.Sub(date)-precision
	c.mu.Lock()
	defer c.mu.Unlock()
	old := answered.Sub(c.learned)
	if c.learned.IsZero() || atMost <= c.ahead || c.ahead < moreThan || old > lasts || old < 0 {
		c.ahead, c.learned = atMost, answered
	}
}

// Local returns the time of this machine at which the server's clock showed t; a zero time stays zero.
func (c *Clock) Local(t time.Time) time.Time {
	if c == nil || t.IsZero() {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.Add(c.ahead)
}
