package recordings

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/pipenet"
)

const (
	eventMayPromote = "may-promote-change"
	// streamConnected and streamClosed are what a transcript says of the stream itself.
	streamConnected = "connected"
	streamClosed    = "closed"

	streamPath = "/v1/events/drbd/promotion"
)

// Player answers like the LINSTOR controller of a transcript. Its clock is the bubble's, and it is safe for concurrent use.
type Player struct {
	transcript *Transcript
	histories  map[string]history
	outages    []outage
	network    *pipenet.Listener
	// zero is when the fault is injected.
	zero time.Time

	mu      sync.Mutex
	streams map[chan string]struct{}
	asked   map[string]int
}

// Play plays a transcript from now on, until the test ends. It must be called in a bubble. What is asked for after the end of
// the transcript is answered as at its end.
func Play(tb testing.TB, transcript *Transcript) *Player {
	tb.Helper()
	p := &Player{
		transcript: transcript, histories: transcript.histories(), outages: transcript.outages(), network: pipenet.Listen(),
		zero:    time.Now().Add(-time.Duration(transcript.start())),
		streams: map[chan string]struct{}{}, asked: map[string]int{},
	}
	server := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	ctx, cancel := context.WithCancel(tb.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = server.Serve(p.network) })
	tasks.Go(func() { p.run(ctx) })
	tb.Cleanup(func() {
		cancel()
		_ = server.Close()
		tasks.Wait()
	})
	return p
}

// At returns when a time of the transcript is.
func (p *Player) At(t Seconds) time.Time { return p.zero.Add(time.Duration(t)) }

// now is the present time of the transcript.
func (p *Player) now() Seconds { return Seconds(time.Since(p.zero)) }

// Asked returns how often each path was asked for, with its query. That of the stream is among them.
func (p *Player) Asked() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.asked)
}

// DialContext connects to LINSTOR, and is refused while LINSTOR is not there.
func (p *Player) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if p.away() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return p.network.DialContext(ctx, network, address)
}

func (p *Player) away() bool {
	now := p.now()
	return slices.ContainsFunc(p.outages, func(o outage) bool { return o.from <= now && now < o.to })
}

// run sends the events and ends the connections, each at its time.
func (p *Player) run(ctx context.Context) {
	type deed struct {
		at Seconds
		do func()
	}
	var deeds []deed
	for _, line := range p.transcript.Lines {
		switch line.SSE {
		case "", streamConnected:
		case streamClosed:
			deeds = append(deeds, deed{line.T, p.endStreams})
		default:
			deeds = append(deeds, deed{line.T, func() { p.broadcast(eventText(line.SSE, line.Data)) }})
		}
	}
	for _, o := range p.outages {
		deeds = append(deeds, deed{o.from, p.network.Disconnect})
	}
	slices.SortStableFunc(deeds, func(a, b deed) int { return int(a.at - b.at) })
	for _, d := range deeds {
		timer := time.NewTimer(time.Until(p.At(d.at)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			d.do()
		}
	}
}

// ServeHTTP answers one request.
func (p *Player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.RequestURI()]++
	p.mu.Unlock()
	if p.away() {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == streamPath {
		p.stream(w, r)
		return
	}
	source, choose := p.route(r.URL)
	h, ok := p.histories[source]
	if !ok {
		notFound(w)
		return
	}
	a, when := h.at(p.now())
	timer := time.NewTimer(time.Until(p.At(when)))
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return
	case <-timer.C:
	}
	switch {
	case a.refused:
		panic(http.ErrAbortHandler)
	case a.status != http.StatusOK:
		write(w, a.status, a.body)
		return
	}
	if body := choose(a.body); body != nil {
		write(w, a.status, body)
		return
	}
	notFound(w)
}

// choice makes of a recorded body the one that was asked for; nil where there is none.
type choice func(json.RawMessage) json.RawMessage

func whole(body json.RawMessage) json.RawMessage { return body }

// route returns the recorded path that tells what is asked for, and how.
func (p *Player) route(asked *url.URL) (source string, choose choice) {
	const (
		definitions = "/v1/resource-definitions"
		groups      = "/v1/resource-groups"
		nodes       = "/v1/nodes"
		view        = "/v1/view/resources"
	)
	if _, ok := p.histories[asked.RequestURI()]; ok {
		return asked.RequestURI(), whole
	}
	recordedDefinitions := definitions + "?resource_definitions=" + p.transcript.Resource
	switch asked.Path {
	case nodes:
		return nodes, filtered("name", asked.Query()["nodes"])
	case definitions:
		return recordedDefinitions, filtered("name", asked.Query()["resource_definitions"])
	case view:
		return view + "?resources=" + p.transcript.Resource, filtered("name", asked.Query()["resources"])
	}
	parent, name := path.Split(asked.Path)
	parent = strings.TrimSuffix(parent, "/")
	switch parent {
	case nodes, groups:
		return parent, one("name", name)
	case definitions:
		return recordedDefinitions, one("name", name)
	}
	return parent, one("node_name", name) // a replica in a definition's list
}

// filtered chooses the elements of a list by a key; no names choose all.
func filtered(key string, names []string) choice {
	if len(names) == 0 {
		return whole
	}
	return func(body json.RawMessage) json.RawMessage {
		var texts [][]byte
		for _, element := range elements(body, key, names) {
			texts = append(texts, element)
		}
		return slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]"))
	}
}

// one chooses the element of a list whose key has the name.
func one(key, name string) choice {
	return func(body json.RawMessage) json.RawMessage {
		if found := elements(body, key, []string{name}); len(found) > 0 {
			return found[0]
		}
		return nil
	}
}

func elements(list json.RawMessage, key string, names []string) []json.RawMessage {
	var all, found []json.RawMessage
	if json.Unmarshal(list, &all) != nil {
		return nil
	}
	for _, element := range all {
		var keys map[string]any
		if json.Unmarshal(element, &keys) != nil {
			continue
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, fmt.Sprint(keys[key])) }) {
			found = append(found, element)
		}
	}
	return found
}

func write(w http.ResponseWriter, status int, body json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// notFound answers as LINSTOR does where something does not exist.
func notFound(w http.ResponseWriter) {
	write(w, http.StatusNotFound, json.RawMessage(`[{"ret_code":-4611686018427387603,"message":"…","cause":"…","correction":"…"}]`))
}
