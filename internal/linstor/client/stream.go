package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"

	"github.com/tmaxmax/go-sse"
)

const (
	// EventMayPromote announces that DRBD's word on one replica changed: to true, false or unknown.
	EventMayPromote = "may-promote-change"
	// eventError is what LINSTOR sends, after a status of 200, before it closes a stream that it can not serve.
	eventError = "error"

	// StreamPath is where LINSTOR serves them.
	StreamPath   = "/v1/events/drbd/promotion"
	mediaEvents  = "text/event-stream"
	maxEventSize = 1 << 20
)

var errStreamClosed = errors.New("LINSTOR closed the event stream")

// Event is one event of LINSTOR's stream of promotion events.
type Event struct {
	// Resource is the resource definition's display name.
	Resource string `json:"resource_name"`
	// Node is the node's display name.
	Node string `json:"node_name"`
	// MayPromote is nil when LINSTOR does not know, as of a satellite that it just lost.
	MayPromote *bool `json:"may_promote"`
}

// Handler is told what happens on an event stream, all in order. Its functions must not block:
// a reader that does not read holds up the LINSTOR controller itself.
type Handler struct {
	// Sent: the request is on the wire. The headers of the answer may come hours later, with the first event.
	Sent func()
	// Open: LINSTOR serves the stream, as its first event shows.
	Open func()
	// Promotion: an event has come.
	Promotion func(Event)
	// Skipped: an event has come that is unknown (err is nil) or can not be decoded.
	Skipped func(eventType string, err error)
}

// Promotions follows the promotion events of the LINSTOR controller at base until the context or the
// stream ends. It always returns an error.
func (c *Client) Promotions(ctx context.Context, base *url.URL, handler Handler) error {
	err := c.followPromotions(ctx, base, handler)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	c.observe(kindStream, err)
	return fmt.Errorf("LINSTOR controller %s: %s: %w", base.Host, kindStream, err)
}

func (c *Client) followPromotions(ctx context.Context, base *url.URL, handler Handler) error {
	var once sync.Once // a redirect writes a second request
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				once.Do(handler.Sent)
			}
		},
	})
	// "current" makes LINSTOR send the value of every resource first, to every listener.
	resp, err := c.send(ctx, http.MethodGet, base, StreamPath, http.Header{"Accept": {mediaEvents}, "Last-Event-Id": {"current"}}, nil)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if err := checkResponse(resp, mediaEvents); err != nil {
		return err
	}
	opened := false
	for event, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: maxEventSize}) {
		if err != nil {
			return err
		}
		if event.Type != eventError && !opened {
			opened = true
			handler.Open()
		}
		if err := handleEvent(event, handler); err != nil {
			return err
		}
	}
	return errStreamClosed
}

// handleEvent returns an error only for the event after which LINSTOR closes the stream.
func handleEvent(event sse.Event, handler Handler) error {
	switch event.Type {
	case EventMayPromote:
		var promotion Event
		err := json.Unmarshal([]byte(event.Data), &promotion)
		if err == nil && (promotion.Resource == "" || promotion.Node == "") {
			err = errors.New("resource_name or node_name is missing")
		}
		if err != nil {
			handler.Skipped(event.Type, err)
			return nil
		}
		handler.Promotion(promotion)
	case eventError:
		message, ok := linstorMessage([]byte(event.Data))
		if !ok || message == "" {
			message = "no reason given"
		}
		return fmt.Errorf("LINSTOR can not serve it: %s", message)
	default:
		handler.Skipped(event.Type, nil)
	}
	return nil
}
