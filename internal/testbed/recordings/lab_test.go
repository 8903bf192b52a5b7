package recordings_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

const (
	resourceName = "pvc-db"
	groupName    = "rg-db"
	// look is how far the answers of the simulated LINSTOR are apart, and how long it takes to connect to its events again.
	look = 20 * time.Millisecond
)

// lab is a simulated LINSTOR over a model of DRBD, in which the scenario of a recording is played and recorded anew.
type lab struct {
	*testing.T
	cluster *drbd.Cluster
	linstor *linstorsim.Server
	zero    time.Time
	// transcript is the recording that is played.
	transcript *recordings.Transcript
	// adjusting is how long each satellite takes for what LINSTOR tells it, starts how long LINSTOR takes to start.
	adjusting map[string]time.Duration
	starts    time.Duration

	mu    sync.Mutex
	lines []recordings.Line
}

// record plays the scenario of a transcript in the simulated LINSTOR, and returns what it said. It must be called in a bubble.
func record(t *testing.T, transcript *recordings.Transcript, s scene) []recordings.Line {
	t.Helper()
	l := &lab{T: t, transcript: transcript, adjusting: s.adjusting, starts: s.linstor.StartDuration}
	l.build(s)
	start := transcript.Lines[0].T - transcript.Lines[0].Took
	l.zero = time.Now().Add(-time.Duration(start))
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() { l.listen(ctx) })
	for path := range answersOf(transcript.Lines) {
		tasks.Go(func() { l.ask(ctx, path) })
	}
	for _, d := range s.deedsOf(t, transcript) {
		<-time.After(time.Until(l.zero.Add(time.Duration(d.at))))
		d.do(l)
	}
	end := transcript.Lines[len(transcript.Lines)-1].T
	<-time.After(time.Until(l.zero.Add(time.Duration(end))))
	cancel()
	l.linstor.Close()
	l.cluster.Stop()
	tasks.Wait()
	slices.SortStableFunc(l.lines, func(a, b recordings.Line) int { return int(a.T - b.T) })
	return l.lines
}

// build makes the nodes of the transcript and the volume of the scene, which is in use.
func (l *lab) build(s scene) {
	l.Helper()
	if d := detection(l.transcript); d > 0 {
		s.drbd.DetectionDelay = d
	}
	l.cluster = drbd.NewCluster(s.drbd)
	options := s.linstor
	options.HeadersAtOnce, options.TieBreakers = true, true
	options.ControllerProps = map[string]string{
		"DrbdOptions/Resource/on-no-quorum": drbd.OnNoQuorumIOError, linstorsim.PropAutoTieBreaker: "True",
	}
	options.AdjustTime = func(node string) time.Duration { return l.adjusting[node] }
	l.linstor = linstorsim.New(l.cluster, options)
	for _, node := range l.transcript.Nodes {
		l.linstor.AddNode(node)
	}
	l.linstor.SetGroupProperty(groupName, linstorsim.PropAutoTieBreaker, s.autoTieBreaker)
	if len(s.replicas) == 0 {
		return
	}
	spec := linstorsim.ResourceSpec{Group: groupName, Spec: drbd.Spec{Name: resourceName, Quorum: s.quorum, Replicas: s.replicas}}
	l.must(l.linstor.CreateResource(spec))
	<-time.After(time.Second) // virtual time, in which its replicas connect
	l.must(l.cluster.Open(resourceName, l.transcript.Must[0].Of, false))
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Error(err)
	}
}

// say takes down a line.
func (l *lab) say(line recordings.Line) {
	line.T = l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *lab) now() recordings.Seconds { return recordings.Seconds(time.Since(l.zero)) }

// ask asks for a path again and again, as the recorder did, and takes down each answer that is another.
func (l *lab) ask(ctx context.Context, path string) {
	wait := look
	if place := placeOf(path); place == "definition" || place == "groups" || place == "controller" {
		wait *= 10 // a real one is asked for them every five seconds
	}
	var last recordings.Line
	for first := true; ctx.Err() == nil; first = false {
		began := l.now()
		line := l.get(ctx, path)
		line.Took = l.now() - began
		switch {
		case ctx.Err() != nil:
		case first || line.Took >= long || line.Status != last.Status || line.Error != last.Error || !bytes.Equal(line.Body, last.Body):
			line.Same, line.SameUntil = last.Same, last.SameUntil
			l.say(line)
			last = line
			last.Same = 0
		default:
			last.Same++
			last.SameUntil = l.now()
		}
		pause(ctx, wait)
	}
	l.say(recordings.Line{Get: path, End: true, Same: last.Same, SameUntil: last.SameUntil})
}

// get asks once.
func (l *lab) get(ctx context.Context, path string) (line recordings.Line) {
	line.Get = path
	answer := httptest.NewRecorder()
	if err := l.serve(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)); err != nil {
		line.Error = err.Error()
		return line
	}
	line.Status, line.Body = answer.Code, answer.Body.Bytes()
	return line
}

// serve lets the simulated LINSTOR answer, and returns that it cut the connection.
func (l *lab) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.New("connection closed")
			if cut, _ := reason.(error); !errors.Is(cut, http.ErrAbortHandler) {
				panic(reason)
			}
		}
	}()
	l.linstor.ServeHTTP(w, r)
	return nil
}

// call makes the recorded call to a path again, and compares the status of the answers.
func (l *lab) call(path string) {
	l.Helper()
	for _, line := range l.transcript.Lines {
		method := map[string]string{line.Post: http.MethodPost, line.Put: http.MethodPut, line.Delete: http.MethodDelete}[path]
		if method == "" {
			continue
		}
		answer := httptest.NewRecorder()
		l.must(l.serve(answer, httptest.NewRequestWithContext(l.Context(), method, path, bytes.NewReader(line.Sent))))
		if answer.Code != line.Status {
			l.Errorf("%s %s is answered with %d, recorded is %d", method, path, answer.Code, line.Status)
		}
		return
	}
	l.Errorf("there is no call of %s", path)
}

// listen listens to the events, and connects again when they end.
func (l *lab) listen(ctx context.Context) {
	for ctx.Err() == nil {
		e := &eventLines{lab: l, ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events/drbd/promotion", nil)
		r.Header.Set("Last-Event-ID", "current")
		_ = l.serve(e, r)
		if e.connected && ctx.Err() == nil {
			l.say(recordings.Line{SSE: "closed"})
		}
		pause(ctx, look)
	}
}

// eventLines takes down what is written as events.
type eventLines struct {
	*lab
	http.ResponseWriter
	connected bool
}

// FlushError is called when the headers are sent, and after each write.
func (e *eventLines) FlushError() error {
	if !e.connected {
		e.connected = true
		e.say(recordings.Line{SSE: "connected"})
	}
	return nil
}

func (e *eventLines) Write(text []byte) (int, error) {
	name, data, _ := strings.Cut(strings.TrimPrefix(string(text), "event: "), "\ndata: ")
	e.say(recordings.Line{SSE: name, Data: json.RawMessage(strings.TrimSpace(data))})
	return len(text), nil
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
