package recordings

import (
	"bytes"
	"embed"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

//go:embed testdata/*.jsonl
var files embed.FS

// Transcript is one recording.
type Transcript struct {
	// Scenario is its name, Says what was done to the cluster.
	Scenario, Says string
	// Resource is the resource definition that all is about.
	Resource string
	// Nodes are all nodes of the cluster.
	Nodes []string
	// Events are what was done to the cluster, or happened by itself there.
	Events []Event
	// Lines is what was said, ordered by time.
	Lines []Line
	// Must is what a right controller concludes.
	Must []Demand
}

// Event is something that was done to the cluster at a time.
type Event struct {
	T    Seconds `json:"t"`
	What string  `json:"what"`
}

// Seconds is a time of a transcript, counted from the fault, or a length of time.
type Seconds time.Duration

// String returns the time as Go writes it.
func (s Seconds) String() string { return time.Duration(s).String() }

// UnmarshalJSON decodes a number of seconds.
func (s *Seconds) UnmarshalJSON(raw []byte) error {
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil {
		return err
	}
	*s = Seconds(time.Duration(seconds * float64(time.Second)).Round(time.Millisecond))
	return nil
}

// Line is one line of a transcript, as it stands in the file.
type Line struct {
	// T is when the answer or the event had arrived whole.
	T Seconds `json:"t"`

	// SSE is the name of an event, or "connected" or "closed" for the stream itself. Data is what the event says.
	SSE  string          `json:"sse"`
	Data json.RawMessage `json:"data"`

	// Get is the path of an answer that differs from the one before, or took long. Error is set where there was none.
	Get    string          `json:"get"`
	Status int             `json:"status"`
	Took   Seconds         `json:"took"`
	Body   json.RawMessage `json:"body"`
	Error  string          `json:"error"`
	// Same is how many identical answers came since the line before of that path, the last of them at SameUntil.
	Same      int     `json:"same"`
	SameUntil Seconds `json:"same_until"`
	// End is set where the line only tells that nothing changed until the end of the recording.
	End bool `json:"end"`

	// Post, Put and Delete are the paths of calls that the scenario made. Such a call began at Began.
	Post   string  `json:"post"`
	Put    string  `json:"put"`
	Delete string  `json:"delete"`
	Began  Seconds `json:"began"`
	// Sent is what the call said.
	Sent json.RawMessage `json:"sent"`
}

// isCall tells whether the scenario made a call, as against the recorder.
func (l Line) isCall() bool { return l.Post != "" || l.Put != "" || l.Delete != "" }

// Demand is what must be concluded about the volume on a node at every moment of a time.
type Demand struct {
	From Seconds `json:"t_from"`
	To   Seconds `json:"t_to"`
	// Of is the node.
	Of string `json:"of"`
	// Verdict and Reason are the conclusion; an empty Reason allows any. Where Not is set it is any other verdict instead.
	Verdict failover.Verdict `json:"verdict"`
	Reason  failover.Reason  `json:"reason"`
	Not     failover.Verdict `json:"not"`
	// Why is the reason in words.
	Why string `json:"why"`
}

// Allows tells whether the demand is met by a decision.
func (d Demand) Allows(decision failover.Decision) bool {
	if d.Not != "" {
		return decision.Verdict != d.Not
	}
	return decision.Verdict == d.Verdict && (d.Reason == "" || decision.Reason == d.Reason)
}

// String returns the demand in words.
func (d Demand) String() string {
	if d.Not != "" {
		return "anything but " + string(d.Not)
	}
	return strings.TrimSpace(string(d.Verdict) + " " + string(d.Reason))
}

// Names returns the names of all recordings.
func Names(tb testing.TB) []string {
	tb.Helper()
	found, err := fs.Glob(files, "testdata/*.jsonl")
	if err != nil || len(found) == 0 {
		tb.Fatalf("no recordings: %v", err)
	}
	for i, name := range found {
		found[i] = strings.TrimSuffix(path.Base(name), ".jsonl")
	}
	return found
}

// Load reads the named recording.
func Load(tb testing.TB, name string) *Transcript {
	tb.Helper()
	raw, err := files.ReadFile("testdata/" + name + ".jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	var transcript Transcript
	decode(tb, name, lines[0], &transcript)
	for _, raw := range lines[1 : len(lines)-1] {
		var line Line
		decode(tb, name, raw, &line)
		transcript.Lines = append(transcript.Lines, line)
	}
	decode(tb, name, lines[len(lines)-1], &transcript)
	if len(transcript.Lines) == 0 || len(transcript.Must) == 0 {
		tb.Fatalf("recording %s is not whole", name)
	}
	return &transcript
}

func decode(tb testing.TB, name string, raw []byte, into any) {
	tb.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		tb.Fatalf("recording %s: %v", name, err)
	}
}
