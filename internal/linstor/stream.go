package linstor

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
	// eventMayPromote announces that DRBD's word on one replica changed: to true, false or unknown.
	eventMayPromote = "may-promote-change"
	// eventError is what LINSTOR sends, after a status of 200, before it closes a stream that it can not serve.
	eventError = "error"

	streamPath   = "/v1/events/drbd/promotion"
	maxEventSize = 1 << 20
)

var errStreamClosed = errors.New("LINSTOR closed the event stream")

// PromotionEvent is one event of LINSTOR's stream of promotion events.
type PromotionEvent struct {
	// Resource is the resource definition's display name.
	Resource string `json:"resource_name"`
	// Node is the node's display name.
	Node string `json:"node_name"`
	// MayPromote is nil when LINSTOR does not know, as of a satellite that it just lost.
	MayPromote *bool `json:"may_promote"`
}

// streamHandler is told what happens on an event stream, all in order. Its functions must not block:
// a reader that does not read holds up the LINSTOR controller itself.
type streamHandler struct {
	// sent: the request is on the wire. The headers of the answer may come hours later, with the first event.
	sent func()
	// open: LINSTOR serves the stream, as its first event shows.
	open func()
	// promotion: an event has come.
	promotion func(PromotionEvent)
	// skipped: an event has come that is unknown (err is nil) or can not be decoded.
	skipped func(eventType string, err error)
}

// promotions follows the promotion events of the LINSTOR controller at base until the context or the
// stream ends. It always returns an error.
func (c *Client) promotions(ctx context.Context, base *url.URL, handler streamHandler) error {
	err := c.followPromotions(ctx, base, handler)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	c.metrics.request(kindStream, err)
	return fmt.Errorf("LINSTOR controller %s: %s: %w", base.Host, kindStream, err)
}

func (c *Client) followPromotions(ctx context.Context, base *url.URL, handler streamHandler) error {
	var once sync.Once // a redirect writes a second request
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				once.Do(handler.sent)
			}
		},
	})
	// "current" makes LINSTOR send the value of every resource first, to every listener.
	resp, err := c.send(ctx, base, streamPath, "text/event-stream", http.Header{"Last-Event-Id": {"current"}})
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if err := checkResponse(resp, "text/event-stream"); err != nil {
		return err
	}
	opened := false
	for event, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: maxEventSize}) {
		if err != nil {
			return err
		}
		if event.Type != eventError && !opened {
			opened = true
			handler.open()
		}
		if err := handleEvent(event, handler); err != nil {
			return err
		}
	}
	return errStreamClosed
}

// handleEvent returns an error only for the event after which LINSTOR closes the stream.
func handleEvent(event sse.Event, handler streamHandler) error {
	switch event.Type {
	case eventMayPromote:
		var promotion PromotionEvent
		err := json.Unmarshal([]byte(event.Data), &promotion)
		if err == nil && (promotion.Resource == "" || promotion.Node == "") {
			err = errors.New("resource_name or node_name is missing")
		}
		if err != nil {
			handler.skipped(event.Type, err)
			return nil
		}
		handler.promotion(promotion)
	case eventError:
		message, ok := linstorMessage([]byte(event.Data))
		if !ok || message == "" {
			message = "no reason given"
		}
		return fmt.Errorf("LINSTOR can not serve it: %s", message)
	default:
		handler.skipped(event.Type, nil)
	}
	return nil
}
