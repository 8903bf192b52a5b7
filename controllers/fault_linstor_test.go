package controllers

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
)

const streamOfEvents = "/v1/events/drbd/promotion"

// answering makes LINSTOR answer with f where that returns true; nil ends it. Streams that are open end too, as they do
// where a proxy or another server takes LINSTOR's place.
func answering(f func(http.ResponseWriter, *http.Request) bool) func(*world, *process) {
	return func(w *world, _ *process) {
		w.Linstor.Intercept(f)
		w.Linstor.ResetStreams()
	}
}

// always answers every request with a status and a body.
func always(code int, contentType, body string) func(*world, *process) {
	return answering(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
		return true
	})
}

// view does something in place of the answer to the controller's requests for everything.
func view(f func(*http.Request)) func(*world, *process) {
	return answering(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/view/resources" || r.UserAgent() == linstorsim.DriverAgent {
			return false
		}
		f(r)
		return r.Context().Err() != nil
	})
}

// stream answers each request for events with a text, and ends it.
func stream(text string) func(*world, *process) {
	return answering(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != streamOfEvents {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
		return true
	})
}

var healed = answering(nil)

// requestsFail tells whether requests by REST have failed again and again, with a code of linstor_requests_total. The event
// stream does not count: it was cut when the fault began.
func requestsFail(code string) func(*world, *process) bool {
	return countsOften(4, "linstor_requests_total", "kind=nodes", "code="+code)
}

// What LINSTOR may do while a node is lost. Where its REST API can be asked, the workload moves in the time that it always
// takes; where nobody can be asked, it moves once somebody can.
func TestFaultsOfLinstor(t *testing.T) {
	const soon, afterwards = 30 * time.Second, 30 * time.Second
	// again is how often a stream must end that does so each time: setting up the fault ends the one that stood.
	const again = 4
	refused := fault{stops: true, limit: afterwards, lasts: 3 * time.Minute, end: healed}
	answers := func(code int, contentType, body, sign string, signs ...func(*world, *process) bool) fault {
		f := refused
		f.begin = always(code, contentType, body)
		f.seen = each(append(signs, disconnected, requestsFail(sign))...)
		return f
	}
	for name, f := range map[string]fault{
		"LINSTOR is not there": {
			begin: func(w *world, _ *process) { w.Linstor.Stop() }, end: func(w *world, _ *process) { w.Linstor.Start() },
			stops: true, limit: afterwards, lasts: 3 * time.Minute, seen: disconnected,
		},
		"LINSTOR answers 401":                   answers(401, "application/json", `[{"message":"Unauthorized"}]`, "401", logs("Unauthorized", "LS_BEARER_TOKEN_FILE", "LS_PASSWORD")),
		"LINSTOR answers 403":                   answers(403, "text/plain", "no", "403"),
		"LINSTOR answers 500":                   answers(500, "application/json", `[{"message":"broken"}]`, "500"),
		"LINSTOR answers 503":                   answers(503, "text/html", "<html>", "503"),
		"a page of HTML comes in place of JSON": answers(200, "text/html", "<html>welcome</html>", "200", logs("text/html", "LS_CONTROLLERS")),
		"JSON comes that breaks off":            answers(200, "application/json", `[{"name":"node-a"`, "error"),
		"LINSTOR redirects to TLS that does not work": {
			begin: answering(func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "https://linstor:3371"+r.URL.Path, http.StatusTemporaryRedirect)
				return true
			}),
			end: healed, stops: true, limit: afterwards, lasts: 3 * time.Minute, seen: each(disconnected, requestsFail("error")),
		},
		"LINSTOR takes requests and does not answer": {
			begin: answering(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }),
			end:   healed, stops: true, limit: 45 * time.Second, lasts: 3 * time.Minute, seen: each(disconnected, requestsFail("error")),
		},
		"the event stream ends again and again": {
			begin: stream(""), end: healed, limit: soon, lasts: time.Minute, seen: countsOften(again, "linstor_stream_reconnects_total", "reason=lost"),
		},
		"the event stream is reset": {
			begin: func(w *world, _ *process) { w.Linstor.ResetStreams() }, limit: soon, lasts: time.Minute,
			seen: counts("linstor_stream_reconnects_total", "reason=lost"),
		},
		"the event stream is half open": {
			begin: func(w *world, _ *process) { w.Linstor.SilenceStreams() }, limit: 90 * time.Second, lasts: 16 * time.Minute,
			seen: counts("linstor_stream_reconnects_total", "reason=dead"),
		},
		"an error event comes and the stream ends": {
			begin: stream("event: error\ndata: [{\"message\":\"Access denied\"}]\n\n"), end: healed, limit: soon, lasts: time.Minute,
			seen: each(countsOften(again, "linstor_stream_reconnects_total", "reason=lost"), logs("Access denied")),
		},
		"garbage comes on the event stream": {
			begin: stream(strings.Repeat("event: may-promote-change\ndata: {not json\n\n\x00\xff\nevent: other\ndata: x\n\n", 100)),
			end:   healed, limit: soon, lasts: time.Minute, seen: counts("linstor_events_total", "type=undecodable"),
		},
		"an event of two megabytes comes": {
			begin: stream("event: may-promote-change\ndata: " + strings.Repeat("x", 2<<20) + "\n\n"), end: healed, limit: soon, lasts: time.Minute,
			seen: countsOften(again, "linstor_stream_reconnects_total", "reason=lost"),
		},
		"reading everything takes twenty seconds": {
			begin: view(func(r *http.Request) {
				select {
				case <-time.After(20 * time.Second):
				case <-r.Context().Done():
				}
			}), end: healed, limit: soon, lasts: time.Minute, seen: nil,
		},
		"reading everything never ends": {
			begin: view(func(r *http.Request) { <-r.Context().Done() }), end: healed, limit: soon, lasts: 5 * time.Minute,
			seen: counts("linstor_requests_total", "kind=resource_view", "code=error"),
		},
		"LINSTOR restarts in the grace and knows nothing at first": {
			begin: func(w *world, _ *process) { time.AfterFunc(43*time.Second, w.Linstor.Restart) }, limit: time.Minute, lasts: time.Minute,
			seen: counts("linstor_stream_reconnects_total"),
		},
		"LINSTOR restarts and knows nothing at first": {
			begin: func(w *world, _ *process) { time.AfterFunc(35*time.Second, w.Linstor.Restart) }, limit: time.Minute, lasts: time.Minute,
			seen: counts("linstor_stream_reconnects_total"),
		},
		"LINSTOR takes the lost node for ONLINE for ever": {
			begin: func(w *world, _ *process) { w.Linstor.FreezeSatellite(nodeA) },
			end:   func(w *world, _ *process) { w.Linstor.UnfreezeSatellite(nodeA) },
			limit: 45 * time.Second, lasts: 5 * time.Minute,
		},
	} {
		t.Run(name, f.befalls)
	}
}
