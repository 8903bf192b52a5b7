package linstor

import (
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// arrival is an event and when it came.
type arrival struct {
	event client.Event
	at    time.Time
}

// mailbox is an unbounded queue: the stream must be read at once, and no event may be lost, since each
// flap restarts a clock.
type mailbox struct {
	mu       sync.Mutex
	arrivals []arrival
	ready    chan struct{}
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) put(a arrival) {
	m.mu.Lock()
	m.arrivals = append(m.arrivals, a)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	arrivals := m.arrivals
	m.arrivals = nil
	return arrivals
}
