package linstorsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// subscriber is one client of the promotion events.
type subscriber struct {
	queue []string
	// wake holds a token while there is something to do.
	wake chan struct{}
	// silent makes the stream half-open: nothing is sent any more, the connection stays.
	silent bool
	// ended and reset say how the stream is to end.
	ended, reset bool
}

func (sub *subscriber) ring() {
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// DropStreams ends all event streams that are open now in an orderly way (EOF).
func (s *Server) DropStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStreams(false)
}

// ResetStreams cuts the connections of all event streams that are open now.
func (s *Server) ResetStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStreams(true)
}

// SilenceStreams makes all event streams that are open now half-open: they stay, and nothing comes any more. New
// streams are not concerned.
func (s *Server) SilenceStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subscribers {
		sub.silent = true
		sub.queue = nil
	}
}

// Streams returns the number of open event streams, half-open ones included.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subscribers)
}

func (s *Server) endStreams(reset bool) {
	for sub := range s.subscribers {
		sub.ended, sub.reset = true, reset
		sub.ring()
	}
}

// broadcast queues one event for everybody. It never waits for a client.
func (s *Server) broadcast(event string) {
	for sub := range s.subscribers {
		if !sub.silent && !sub.ended {
			sub.queue = append(sub.queue, event)
			sub.ring()
		}
	}
}

// promotionEvent is LINSTOR's EventMayPromoteChange. What is unknown is absent.
type promotionEvent struct {
	ResourceName string `json:"resource_name,omitempty"`
	NodeName     string `json:"node_name,omitempty"`
	MayPromote   *bool  `json:"may_promote,omitempty"`
}

// eventText is one event on the wire, byte for byte: no id, no retry, no comment.
func eventText(resourceName, nodeName string, mayPromote *bool) string {
	// Names and booleans can not fail to encode.
	data, _ := json.Marshal(promotionEvent{resourceName, nodeName, mayPromote})
	return fmt.Sprintf("event: may-promote-change\ndata: %s\n\n", data)
}

// snapshot returns the events that tell the present state of all DRBD resources.
func (s *Server) snapshot() []string {
	var events []string
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		if !d.drbd() {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			rsc := d.resources[name]
			events = append(events, eventText(d.name, rsc.node.name, rsc.values.mayPromoteOrNil()))
		}
	}
	return events
}

// servePromotion answers GET /v1/events/drbd/promotion.
func (s *Server) servePromotion(w http.ResponseWriter, r *http.Request) {
	sub := &subscriber{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.subscribers[sub] = struct{}{}
	var replay []string
	if r.Header.Get("Last-Event-ID") == "current" {
		replay = s.snapshot()
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.subscribers, sub)
		s.mu.Unlock()
	}()

	if len(replay) > 0 && s.options.ReplayDelay > 0 {
		timer := time.NewTimer(s.options.ReplayDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	for _, event := range replay {
		s.broadcast(event)
	}
	s.mu.Unlock()
	s.pump(w, r, sub)
}

// pump sends what is queued until the client leaves or the stream ends. Unless [Options.HeadersAtOnce] is set, nothing is
// written before the first event, not even the status line.
func (s *Server) pump(w http.ResponseWriter, r *http.Request, sub *subscriber) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	sent := s.options.HeadersAtOnce
	if sent {
		if err := control.Flush(); err != nil {
			return
		}
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-sub.wake:
		}
		s.mu.Lock()
		queue, ended, reset := sub.queue, sub.ended, sub.reset
		sub.queue = nil
		s.mu.Unlock()
		if ended && (reset || !sent) {
			panic(http.ErrAbortHandler)
		}
		for _, event := range queue {
			if _, err := fmt.Fprint(w, event); err != nil {
				return
			}
			sent = true
		}
		if ended {
			return
		}
		if sent {
			if err := control.Flush(); err != nil {
				return
			}
		}
	}
}
