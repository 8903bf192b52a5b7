package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// FuzzStream reads anything at all as LINSTOR's event stream. The reader must come to an end, whatever it reads; it
// hands out only events that name their replica, in the same order however the bytes are cut into pieces; and what
// it has understood once it understands again when LINSTOR would send it.
func FuzzStream(f *testing.F) {
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole := readStream(t, bytes.NewReader(stream))
		if diff := cmp.Diff(whole, readStream(t, iotest.OneByteReader(bytes.NewReader(stream)))); diff != "" {
			t.Errorf("read in one piece (-) and byte by byte (+):\n%s", diff)
		}
		for _, event := range whole.Promotions {
			if event.Resource == "" || event.Node == "" {
				t.Errorf("an event without its replica: %+v", event)
			}
		}
		again := readStream(t, strings.NewReader(wireEvents(t, whole.Promotions)))
		if diff := cmp.Diff(whole.Promotions, again.Promotions); diff != "" {
			t.Errorf("understood (-) and understood when sent again (+):\n%s", diff)
		}
	})
}

// heardOf is what a reader of a stream was told.
type heardOf struct {
	Promotions []Event
	Skipped    int
	Opened     bool
	Err        string
}

func readStream(t *testing.T, body io.Reader) heardOf {
	t.Helper()
	client := clientFor(t, roundTripper(func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"text/event-stream"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(body)}, nil
	}))
	var heard heardOf
	base, _ := client.Endpoint()
	err := client.Promotions(t.Context(), base, Handler{
		Sent: func() {},
		Open: func() {
			if heard.Opened || len(heard.Promotions) > 0 {
				t.Error("a stream was opened in its middle")
			}
			heard.Opened = true
		},
		Promotion: func(event Event) { heard.Promotions = append(heard.Promotions, event) },
		Skipped:   func(string, error) { heard.Skipped++ },
	})
	if err == nil {
		t.Fatal("a stream has ended without an error")
	}
	if !heard.Opened && len(heard.Promotions) > 0 {
		t.Error("a stream that was never opened brought an event")
	}
	heard.Err = err.Error()
	return heard
}

// wireEvents are the events as LINSTOR writes them.
func wireEvents(t *testing.T, events []Event) string {
	t.Helper()
	var text strings.Builder
	for _, event := range events {
		data, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "event: %s\ndata: %s\n\n", EventMayPromote, data)
	}
	return text.String()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func clientFor(t *testing.T, transport http.RoundTripper) *Client {
	t.Helper()
	cfg, err := ConfigFromEnv(func(key string) (string, bool) { return "http://linstor:3370", key == envControllers })
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(cfg, Options{RoundTripper: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
