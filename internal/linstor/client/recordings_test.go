package client

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// recordedAnswer returns a client of a LINSTOR that gives one answer to everything.
func recordedAnswer(t *testing.T, status int, body []byte) *Client {
	t.Helper()
	return clientFor(t, roundTripper(func(*http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
	}))
}

// readings are the product's ways to read each recorded path, each by a name.
func readings(t *testing.T, line recordings.Line) map[string]func(*Client) (any, error) {
	t.Helper()
	ctx := t.Context()
	path, query, _ := strings.Cut(line.Get, "?")
	_, name, _ := strings.Cut(query, "=")
	switch {
	case path == "/v1/nodes":
		return map[string]func(*Client) (any, error){"nodes": func(c *Client) (any, error) { return c.Nodes(ctx) }}
	case path == "/v1/controller/properties":
		return map[string]func(*Client) (any, error){"properties": func(c *Client) (any, error) { return c.ControllerProps(ctx) }}
	case path == "/v1/resource-groups":
		return map[string]func(*Client) (any, error){"groups": func(c *Client) (any, error) { return c.Groups(ctx) }}
	case path == "/v1/resource-definitions":
		return map[string]func(*Client) (any, error){
			"all definitions":  func(c *Client) (any, error) { return c.Definitions(ctx) },
			"some definitions": func(c *Client) (any, error) { return c.Definitions(ctx, name) },
		}
	case path == "/v1/view/resources":
		return map[string]func(*Client) (any, error){"view": func(c *Client) (any, error) { return c.View(ctx) }}
	case strings.HasSuffix(path, "/resources"):
		return map[string]func(*Client) (any, error){"list": func(c *Client) (any, error) { return c.Resources(ctx, "pvc-db") }}
	case path == "/v1/error-reports":
		return map[string]func(*Client) (any, error){"error reports": func(c *Client) (any, error) { return c.ErrorReports(ctx, "node-a") }}
	case path == "/v1/view/storage-pools":
		return map[string]func(*Client) (any, error){"pools": func(c *Client) (any, error) { return c.StoragePools(ctx) }}
	}
	t.Fatalf("no reading is known for %s", line.Get)
	return nil
}

func TestEveryRecordedAnswerIsUnderstood(t *testing.T) {
	t.Parallel()
	for _, recording := range recordings.Names(t) {
		t.Run(recording, func(t *testing.T) {
			t.Parallel()
			read := 0
			for _, line := range recordings.Load(t, recording).Lines {
				if line.Get == "" || line.Status == 0 {
					continue
				}
				for reading, do := range readings(t, line) {
					read++
					got, err := do(recordedAnswer(t, line.Status, line.Body))
					if line.Status != http.StatusOK {
						if statusErr, ok := errors.AsType[*StatusError](err); !ok || statusErr.Code != line.Status || !statusErr.Linstor {
							t.Errorf("%v: status %d read as %s: %v, want LINSTOR's own error", line.T, line.Status, reading, err)
						}
						if (line.Status == http.StatusNotFound) != errors.Is(err, ErrNotFound) {
							t.Errorf("%v: status %d read as %s is not found: %v", line.T, line.Status, reading, errors.Is(err, ErrNotFound))
						}
						continue
					}
					if err != nil {
						t.Errorf("%v: %s read as %s: %v", line.T, line.Get, reading, err)
						continue
					}
					nothingIsLost(t, line, got)
				}
			}
			if read < 7 {
				t.Errorf("only %d answers were read", read)
			}
		})
	}
}

// nothingIsLost compares what was understood of an answer, encoded again, with the recorded text: every value that the product's
// types have a name for is there, and what LINSTOR left out is left out.
func nothingIsLost(t *testing.T, line recordings.Line, got any) {
	t.Helper()
	var recorded any
	if err := json.Unmarshal(line.Body, &recorded); err != nil {
		t.Fatal(err)
	}
	list, ok := got.([]Resource)
	if !ok {
		if n, want := lengthOf(got), lengthOf(recorded); n != want {
			t.Errorf("%v: %s has %d elements, %d understood", line.T, line.Get, want, n)
		}
		return
	}
	var want, have []any
	for _, element := range recorded.([]any) {
		want = append(want, stateIn(element.(map[string]any)))
	}
	for _, r := range list {
		have = append(have, stateOf(r))
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%v: %s (-recorded +understood):\n%s", line.T, line.Get, diff)
	}
}

func lengthOf(value any) int {
	switch v := value.(type) {
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	case map[string]string:
		return len(v)
	case []ErrorReport:
		return len(v)
	case []Pool:
		return len(v)
	case []Node:
		return len(v)
	case []Group:
		return len(v)
	case []Definition:
		return len(v)
	}
	return -1
}

// stateIn returns what an element of a recorded list says of the state of a replica, as far as it says anything.
func stateIn(element map[string]any) map[string]any {
	state := map[string]any{"name": element["name"], "node_name": element["node_name"]}
	take := func(from any, key string) {
		if object, ok := from.(map[string]any); ok && object[key] != nil {
			state[key] = object[key]
		}
	}
	take(element, "flags")
	take(element["state"], "in_use")
	layer, _ := element["layer_object"].(map[string]any)
	for _, key := range []string{"may_promote", "promotion_score"} {
		take(layer["drbd"], key)
	}
	drbd, _ := layer["drbd"].(map[string]any)
	peers, _ := drbd["connections"].(map[string]any)
	for peer, connection := range peers {
		state["to "+peer] = connection.(map[string]any)["connected"]
	}
	return state
}

// stateOf returns the same of a replica as it was understood.
func stateOf(r Resource) map[string]any {
	state := map[string]any{"name": r.Name, "node_name": r.NodeName}
	if len(r.Flags) > 0 {
		var flags []any
		for _, flag := range r.Flags {
			flags = append(flags, flag)
		}
		state["flags"] = flags
	}
	if inUse := r.IsInUse(); inUse != nil {
		state["in_use"] = *inUse
	}
	values := r.Values()
	if values.MayPromote != nil {
		state["may_promote"] = *values.MayPromote
	}
	if values.PromotionScore != nil {
		state["promotion_score"] = float64(*values.PromotionScore)
	}
	for peer, connection := range values.Connections {
		state["to "+peer] = nil
		if connected := connection.IsConnected(); connected != nil {
			state["to "+peer] = *connected
		}
	}
	return state
}

func TestEveryRecordedEventIsUnderstood(t *testing.T) {
	t.Parallel()
	for _, recording := range recordings.Names(t) {
		t.Run(recording, func(t *testing.T) {
			t.Parallel()
			var stream strings.Builder
			var want []Event
			for _, line := range recordings.Load(t, recording).Lines {
				if line.SSE != EventMayPromote {
					continue
				}
				stream.WriteString("event: " + line.SSE + "\ndata: " + string(line.Data) + "\n\n")
				var keys map[string]any
				if err := json.Unmarshal(line.Data, &keys); err != nil {
					t.Fatal(err)
				}
				event := Event{Resource: keys["resource_name"].(string), Node: keys["node_name"].(string)}
				if value, ok := keys["may_promote"]; ok {
					event.MayPromote = new(value.(bool))
				}
				want = append(want, event)
			}
			if len(want) == 0 {
				t.Fatal("no event was recorded")
			}
			heard := readStream(t, strings.NewReader(stream.String()))
			if diff := cmp.Diff(want, heard.Promotions); diff != "" || heard.Skipped > 0 {
				t.Errorf("%d skipped (-recorded +understood):\n%s", heard.Skipped, diff)
			}
		})
	}
}
