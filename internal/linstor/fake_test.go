package linstor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// fakeLinstor is as much of a LINSTOR controller as these tests need. Its state is what REST shows; events are
// sent by hand.
type fakeLinstor struct {
	mu          sync.Mutex
	nodes       []client.Node
	definitions []client.Definition
	groups      []client.Group
	controller  map[string]string
	resources   []client.Resource
	// intercept may answer a request instead.
	intercept func(http.ResponseWriter, *http.Request) bool
	// replays is set if the first stream begins with all current values, too.
	replays bool
	streams map[chan string]struct{}
	// muted are streams whose connection is half open.
	muted    map[chan string]bool
	opened   int
	requests map[string]int
}

func newFakeLinstor() *fakeLinstor {
	return &fakeLinstor{
		groups:     []client.Group{{Name: "DfltRscGrp"}},
		controller: map[string]string{},
		streams:    map[chan string]struct{}{},
		muted:      map[chan string]bool{},
		requests:   map[string]int{},
	}
}

// change changes the state under the lock.
func (f *fakeLinstor) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeLinstor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	path := r.URL.Path
	if r.URL.RawQuery != "" {
		path += "?"
	}
	f.requests[path]++
	intercept := f.intercept
	f.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	switch r.URL.Path {
	case client.StreamPath:
		f.stream(w, r)
	case "/v1/nodes":
		f.answer(w, func() any { return f.nodes })
	case "/v1/error-reports":
		f.answer(w, func() any { return []client.ErrorReport{} })
	case "/v1/controller/properties":
		f.answer(w, func() any { return f.controller })
	case "/v1/resource-groups":
		f.answer(w, func() any { return f.groups })
	case "/v1/resource-definitions":
		f.answer(w, func() any {
			return chosen(f.definitions, r.URL.Query()["resource_definitions"], func(d client.Definition) string { return d.Name })
		})
	case "/v1/view/resources":
		f.answer(w, func() any {
			return chosen(f.resources, r.URL.Query()["resources"], func(r client.Resource) string { return r.Name })
		})
	default:
		f.answerOne(w, strings.Split(strings.Trim(r.URL.Path, "/"), "/"))
	}
}

// chosen applies a filter by name; an empty one lets everything through.
func chosen[T any](all []T, filter []string, name func(T) string) []T {
	if len(filter) == 0 {
		return all
	}
	wanted := map[string]bool{}
	for _, n := range filter {
		wanted[fold(n)] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(element T) bool { return !wanted[fold(name(element))] })
}

// answerOne answers a request for one object: /v1/<kind>/<name>[/resources].
func (f *fakeLinstor) answerOne(w http.ResponseWriter, path []string) {
	var found any
	f.change(func() {
		switch path[1] {
		case "resource-groups":
			if i := slices.IndexFunc(f.groups, func(g client.Group) bool { return fold(g.Name) == fold(path[2]) }); i >= 0 {
				found = f.groups[i]
			}
		case "resource-definitions":
			i := slices.IndexFunc(f.definitions, func(d client.Definition) bool { return d.Name == path[2] })
			if i >= 0 && len(path) == 3 {
				found = f.definitions[i]
			} else if i >= 0 {
				found = slices.DeleteFunc(slices.Clone(f.resources), func(r client.Resource) bool { return r.Name != path[2] })
			}
		}
	})
	if found == nil {
		notFound(w)
		return
	}
	f.answer(w, func() any { return found })
}

func notFound(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	io.WriteString(w, `[{"ret_code":-4611686018427387594,"message":"not found."}]`)
}

// answer encodes the value as LINSTOR does: without keys that have no value.
func (f *fakeLinstor) answer(w http.ResponseWriter, value func() any) {
	var document any
	f.change(func() {
		raw, err := json.Marshal(value())
		if err == nil {
			err = json.Unmarshal(raw, &document)
		}
		if err != nil {
			panic(err)
		}
	})
	raw, err := json.Marshal(withoutNulls(document))
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(raw)
}

func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if element == nil {
				delete(v, key)
			} else {
				v[key] = withoutNulls(element)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	case nil:
		return []any{}
	}
	return value
}

// stream withholds the headers until the first event, and sends all current values to everybody when another client subscribes, as LINSTOR
// does. The first of these tests' streams begins without: they count what follows.
func (f *fakeLinstor) stream(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 100_000)
	f.mu.Lock()
	f.streams[events] = struct{}{}
	f.opened++
	replay := f.replays || f.opened > 1
	resources := slices.Clone(f.resources)
	f.mu.Unlock()
	if replay {
		for _, one := range resources {
			if one.IsDRBD() {
				f.promotion(one.Name, one.NodeName, one.Values().MayPromote)
			}
		}
	}
	defer func() {
		f.mu.Lock()
		delete(f.streams, events)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-events:
			if !ok {
				return
			}
			io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	}
}

// send broadcasts an event.
func (f *fakeLinstor) send(eventType, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for events := range f.streams {
		if !f.muted[events] {
			events <- "event: " + eventType + "\ndata: " + data + "\n\n"
		}
	}
}

func (f *fakeLinstor) promotion(resource, node string, mayPromote *bool) {
	data := fmt.Sprintf(`{"resource_name":%q,"node_name":%q`, resource, node)
	if mayPromote != nil {
		data += fmt.Sprintf(`,"may_promote":%t`, *mayPromote)
	}
	f.send(client.EventMayPromote, data+"}")
}

// cut ends all streams.
func (f *fakeLinstor) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for events := range f.streams {
		close(events)
		delete(f.streams, events)
	}
}

// mute has nothing come any more by the streams that are open now.
func (f *fakeLinstor) mute() {
	f.change(func() {
		for events := range f.streams {
			f.muted[events] = true
		}
	})
}

func (f *fakeLinstor) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[path]
}

func (f *fakeLinstor) streamsOpened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// resource makes a DRBD resource that reports: in use or not, with a score, and may be promoted or not.
func resource(name, node string, inUse bool, score int, mayPromote bool) client.Resource {
	r := client.Resource{Name: name, NodeName: node}
	r.LayerObject.Type = client.LayerDRBD
	r.LayerObject.DRBD = &client.DRBD{PromotionScore: new(score), MayPromote: new(mayPromote)}
	r.State = &client.State{InUse: new(inUse)}
	return r
}

// silent makes a DRBD resource of which LINSTOR knows nothing dynamic.
func silent(name, node string) client.Resource {
	r := client.Resource{Name: name, NodeName: node}
	r.LayerObject.Type = client.LayerDRBD
	r.LayerObject.DRBD = &client.DRBD{}
	return r
}

// pvc1 sets up one healthy resource definition with a Primary on node-a, as most tests begin.
func (f *fakeLinstor) pvc1() {
	f.nodes = []client.Node{
		{Name: "Node-A", Type: "SATELLITE", ConnectionStatus: client.StatusOnline},
		{Name: "node-b", Type: "SATELLITE", ConnectionStatus: client.StatusOnline},
	}
	f.definitions = []client.Definition{definition("PVC-1", "majority")}
	f.resources = []client.Resource{
		met(resource("PVC-1", "Node-A", true, 10102, false), "node-b"),
		met(resource("PVC-1", "node-b", false, 10102, false), "Node-A"),
	}
}

// met has a replica show connections.
func met(r client.Resource, peers ...string) client.Resource {
	r.LayerObject.DRBD.Connections = map[string]client.Connection{}
	for _, peer := range peers {
		r.LayerObject.DRBD.Connections[peer] = client.Connection{Connected: new(true), Message: "Connected"}
	}
	return r
}

func definition(name, quorum string) client.Definition {
	d := client.Definition{Name: name, ResourceGroupName: "DfltRscGrp", Props: map[string]string{}}
	if quorum != "" {
		d.Props[client.PropQuorum] = quorum
	}
	d.LayerData = append(d.LayerData, struct {
		Type string `json:"type"`
	}{client.LayerDRBD})
	return d
}

// Variables of which these tests set some.
const (
	envControllers     = "LS_CONTROLLERS"
	envUsername        = "LS_USERNAME"
	envPassword        = "LS_PASSWORD"
	envBearerTokenFile = "LS_BEARER_TOKEN_FILE"
	envRootCA          = "LS_ROOT_CA"
	envUserCert        = "LS_USER_CERTIFICATE"
	envUserKey         = "LS_USER_KEY"
	fileSuffix         = "_FILE"
)

func env(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

func testClient(t *testing.T, n *network, controllers string) *Client {
	t.Helper()
	cfg, err := ConfigFromEnv(env(map[string]string{envControllers: controllers}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(cfg, nil, ClientOptions{DialContext: n.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// logLines collects what is logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) logger() logr.Logger  { return funcr.New(l.add, funcr.Options{}) }
func (l *logLines) verbose() logr.Logger { return funcr.New(l.add, funcr.Options{Verbosity: 10}) }

func (l *logLines) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, args)
}

func (l *logLines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// startFeed runs a feed of the controllers until the test ends. It must be called in a bubble.
func startFeed(t *testing.T, n *network, controllers string, log logr.Logger) *Feed {
	t.Helper()
	feed := NewFeed(testClient(t, n, controllers), NewStore(), log, Options{})
	runFeed(t, feed)
	return feed
}

// runFeed runs a feed until the test ends.
func runFeed(t *testing.T, feed *Feed) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := feed.Start(ctx); err != nil {
			t.Errorf("Start returned %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// settle lets time pass and everything that is due in it happen.
func settle(d time.Duration) {
	<-time.After(d) // virtual time: only ever called in a bubble
	synctest.Wait()
}

// atLength skips a test that takes the race detector half a minute or more in short runs: "make test-all" plays it.
func atLength(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all plays it")
	}
}
