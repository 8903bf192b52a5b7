package linstor

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const (
	// streamLife is how long a stream is followed before another takes its place: a stream can be dead although its connection is open.
	streamLife = 15 * time.Minute
	// streamSettle is how long a stream without events must be open before it counts as connected. If LINSTOR refuses it, that comes sooner.
	streamSettle = time.Second
)

var (
	errStreamDead    = errors.New("the event stream is silent although LINSTOR sends events to another one")
	errEndpointMoved = errors.New("another LINSTOR controller has taken over")
)

// follow makes one connection to LINSTOR's event stream and stays until that ends.
//
// The order matters. A cheap REST request finds the endpoint that answers. Then the stream is opened,
// and as soon as its request is on the wire everything is read by REST: a change after that read
// comes as an event, and LINSTOR begins the stream with every resource's value. The headers of the
// stream are no sign of anything: LINSTOR sends them with the first event.
func (f *Feed) follow(ctx context.Context) error {
	if err := f.readNodes(ctx, time.Now()); err != nil {
		f.away()
		return err
	}
	select {
	case <-f.refused: // an answer to an earlier request
	default:
	}
	base, moved := f.client.Endpoint()
	present, err := f.openStream(ctx, base, nil)
	if err != nil {
		return err
	}
	defer func() { present.close() }()
	f.opened(time.Now())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-present.ended:
			return present.err
		case <-moved:
			f.away() // the controller before did not answer
			return errEndpointMoved
		case refusal := <-f.refused:
			return refusal.err
		case <-time.After(streamLife):
		}
		next, err := f.renewed(ctx, base, present)
		if err != nil {
			return err
		}
		present.close()
		present = next
	}
}

// renewed opens the stream that takes the place of another. Both are open for a moment, so no event is missed. LINSTOR begins the new one with
// all current values, and sends them to every other stream, too. If none of them comes by the old one, it is dead and may have missed events.
func (f *Feed) renewed(ctx context.Context, base *url.URL, present *stream) (*stream, error) {
	before := present.events.Load()
	next, err := f.openStream(ctx, base, present)
	if err != nil {
		return nil, err
	}
	select {
	case <-next.ended:
		return nil, next.err
	case <-time.After(streamSettle):
	}
	if present.events.Load() == before && next.events.Load() > 0 {
		next.close()
		return nil, errStreamDead
	}
	return next, nil
}

// stream is a connection to LINSTOR's event stream.
type stream struct {
	sent, ended chan struct{}
	// err is valid once ended is closed.
	err    error
	cancel context.CancelFunc
	// events is how many have come. replaced is set once another stream has brought one.
	events   atomic.Int64
	replaced atomic.Bool
}

func (s *stream) close() {
	s.cancel()
	<-s.ended
}

// openStream opens a stream that takes the place of another one; that is nil for the first. It returns once the request is on the wire.
func (f *Feed) openStream(ctx context.Context, base *url.URL, before *stream) (*stream, error) {
	s := &stream{sent: make(chan struct{}), ended: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.ended)
		defer s.cancel()
		s.err = f.client.Promotions(ctx, base, f.handler(s, before))
	}()
	select {
	case <-s.ended:
		return nil, s.err
	case <-s.sent:
		return s, nil
	}
}

// handler applies what a stream brings, in the order in which it comes.
func (f *Feed) handler(s, before *stream) client.Handler {
	var logged sync.Once
	return client.Handler{
		Sent: func() { close(s.sent) },
		Open: func() {
			if before != nil {
				before.replaced.Store(true)
			}
			f.connected()
		},
		Promotion: func(ev client.Event) {
			if s.events.Add(1); s.replaced.Load() {
				return
			}
			f.metrics.events.WithLabelValues(client.EventMayPromote).Inc()
			f.hear(ev, time.Now())
		},
		Skipped: func(eventType string, err error) {
			label, reason := eventLabelUnknown, "unknown type"
			if err != nil {
				label, reason = eventLabelUndecodable, err.Error()
			}
			f.metrics.events.WithLabelValues(label).Inc()
			logged.Do(func() {
				f.log.Info("Skipping an event of LINSTOR that can not be understood, and all like it",
					"type", client.OneLine(eventType), "reason", client.OneLine(reason))
			})
		},
	}
}

// early is an event that is applied again once everything has been read.
type early struct {
	client.Event
	at time.Time
}

// hear applies an event. It has the resource read if that was news, if the store does not have the replica, or if only this replica's value was sent again.
func (f *Feed) hear(ev client.Event, at time.Time) {
	f.confirmed(at)
	f.metrics.heard()
	if f.Status().Synced {
		f.store.announce(ev, at)
	}
	known, changed := f.store.ApplyEvent(ev, at)
	if known && !changed {
		f.pollUnlessReplayed(ev, at)
		return
	}
	if !known && f.isEarly(ev, at) {
		f.pollEarly(ev.Resource)
		return
	}
	if ev.MayPromote == nil {
		f.schedule.hint(at)
	}
	f.Poll(ev.Resource)
}

// isEarly reports whether everything is still being read, and keeps an event for when it has been.
func (f *Feed) isEarly(ev client.Event, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status.Synced {
		return false
	}
	f.early = append(f.early, early{ev, at})
	return true
}
