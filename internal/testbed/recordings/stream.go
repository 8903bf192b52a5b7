package recordings

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// backlog is how many events a stream holds that were not read. No transcript has as many.
const backlog = 1000

// eventText is one event on the wire.
func eventText(name string, data json.RawMessage) string {
	return fmt.Sprintf("event: %s\ndata: %s\n\n", name, data)
}

// stream serves the events. The headers come at once. With "Last-Event-ID: current" it begins with the value of each replica;
// LINSTOR sends these to all who listen, as the recorded stream shows.
func (p *Player) stream(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, backlog)
	p.mu.Lock()
	p.streams[events] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams, events)
	}()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if control.Flush() != nil {
		return
	}
	if r.Header.Get("Last-Event-ID") == "current" {
		for _, event := range p.replay() {
			p.broadcast(event)
		}
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-events:
			if !ok {
				return
			}
			if _, err := fmt.Fprint(w, event); err != nil || control.Flush() != nil {
				return
			}
		}
	}
}

// replay returns the events that tell the present value of each replica. Where the recorded stream is about to begin with them
// there are none.
func (p *Player) replay() []string {
	h := p.histories["/v1/resource-definitions/"+p.transcript.Resource+"/resources"]
	now := p.now()
	if len(h) == 0 {
		return nil
	}
	current, when := h.at(now)
	if when > now {
		return nil
	}
	var events []string
	for _, r := range replicas(current.body) {
		data, _ := json.Marshal(promotion{r.Name, r.NodeName, r.Layer.DRBD.MayPromote}) // names and booleans can be encoded
		events = append(events, eventText(eventMayPromote, data))
	}
	return events
}

// broadcast sends an event to all who listen.
func (p *Player) broadcast(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for events := range p.streams {
		events <- event
	}
}

// endStreams ends all streams that are open now.
func (p *Player) endStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for events := range p.streams {
		close(events)
		delete(p.streams, events)
	}
}
