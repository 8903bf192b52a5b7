package linstorsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Kind is a kind of request that the server counts.
type Kind string

// Kinds of requests. Each is counted when it arrives, also when it fails or is still being answered.
const (
	KindEvents Kind = "events"
	KindView   Kind = "view"
	// KindViewPart is a view of some resources or nodes only.
	KindViewPart          Kind = "view-part"
	KindDefinitions       Kind = "definitions"
	KindDefinition        Kind = "definition"
	KindVolumeDefinitions Kind = "volume-definitions"
	KindResources         Kind = "resources"
	KindResource          Kind = "resource"
	KindNodes             Kind = "nodes"
	KindNode              Kind = "node"
	KindGroups            Kind = "groups"
	KindGroup             Kind = "group"
	KindControllerProps   Kind = "controller-properties"
	KindVersion           Kind = "version"
	KindErrorReports      Kind = "error-reports"
	KindStoragePools      Kind = "storage-pools"
	KindHealth            Kind = "health"
	KindSnapshots         Kind = "snapshots"
	// KindAutoPlace, KindEvacuate and KindRestore are the calls of planned loss.
	KindAutoPlace Kind = "auto-place"
	KindEvacuate  Kind = "evacuate"
	KindRestore   Kind = "restore"
	// KindChange is everything else that changes something.
	KindChange Kind = "change"
	// KindOther is everything that the simulated LINSTOR does not have.
	KindOther Kind = "other"
)

// Requests returns how many requests of each kind have been made. Those that an interceptor handled, that arrived while
// the controller was down, or that the CSI driver made, see [DriverAgent], are not among them.
func (s *Server) Requests() map[Kind]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Answered returns how many bytes the bodies of all answers have had, events included.
func (s *Server) Answered() int64 { return s.answered.Load() }

// ResetRequests sets the counts of [Server.Requests] and [Server.Answered] to zero.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.requests)
	s.answered.Store(0)
}

// counting counts the bytes of an answer's body.
type counting struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// Unwrap lets an [http.ResponseController] flush.
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// routes is LINSTOR's REST API, as far as it is here.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, kind Kind, handler http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.count(kind, r)
			handler(w, r)
		})
	}
	handle("GET /v1/events/drbd/promotion", KindEvents, s.servePromotion)
	// Which of two kinds it is stands in its query.
	mux.HandleFunc("GET /v1/view/resources", s.serveView)
	handle("GET /v1/resource-definitions", KindDefinitions, s.serveDefinitions)
	handle("GET /v1/resource-definitions/{definition}", KindDefinition, s.serveDefinition)
	handle("PUT /v1/resource-definitions/{definition}", KindChange, s.changeDefinition)
	handle("PUT /v1/resource-groups/{group}", KindChange, s.changeGroup)
	handle("POST /v1/controller/properties", KindChange, s.changeController)
	handle("PUT /v1/nodes/{node}", KindChange, s.changeOther(func(r *http.Request, key, value string) error {
		return s.SetNodeProperty(r.PathValue("node"), key, value)
	}))
	handle("PUT /v1/resource-definitions/{definition}/resources/{node}", KindChange, s.changeOther(
		func(r *http.Request, key, value string) error {
			return s.SetResourceProperty(r.PathValue("definition"), r.PathValue("node"), key, value)
		}))
	handle("DELETE /v1/nodes/{node}/lost", KindChange, s.loseNode)
	s.driverRoutes(handle)
	handle("PUT /v1/nodes/{node}/evacuate", KindEvacuate, s.evacuateNode)
	handle("PUT /v1/nodes/{node}/restore", KindRestore, s.restoreNode)
	handle("POST /v1/resource-definitions/{definition}/autoplace", KindAutoPlace, s.autoPlace)
	handle("GET /v1/resource-definitions/{definition}/resources", KindResources, s.serveResources)
	handle("GET /v1/resource-definitions/{definition}/resources/{node}", KindResource, s.serveResource)
	handle("GET /v1/nodes", KindNodes, s.serveNodes)
	handle("GET /v1/nodes/{node}", KindNode, s.serveNode)
	handle("GET /v1/resource-groups", KindGroups, s.serveGroups)
	handle("GET /v1/resource-groups/{group}", KindGroup, s.serveGroup)
	handle("GET /v1/controller/properties", KindControllerProps, s.serveControllerProps)
	handle("GET /v1/view/snapshots", KindSnapshots, s.serveSnapshots)
	handle("GET /v1/view/storage-pools", KindStoragePools, s.serveStoragePools)
	handle("GET /v1/error-reports", KindErrorReports, s.serveErrorReports)
	handle("GET /v1/controller/version", KindVersion, s.serveVersion)
	handle("GET /health", KindHealth, func(http.ResponseWriter, *http.Request) {})
	handle("/", KindOther, func(w http.ResponseWriter, r *http.Request) {
		notFound(w, "path", r.URL.Path)
	})
	return mux
}

// DriverAgent is the User-Agent of the CSI driver, whose requests are not counted: they are none of the controller's.
const DriverAgent = "linstor-csi"

// count counts a request.
func (s *Server) count(kind Kind, r *http.Request) {
	if r.UserAgent() == DriverAgent {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[kind]++
}

// page applies limit and offset; the offset counts only together with a limit.
func page[T any](query url.Values, list []T) []T {
	limit, _ := strconv.Atoi(query.Get("limit"))
	offset, _ := strconv.Atoi(query.Get("offset"))
	if limit <= 0 {
		return list
	}
	offset = min(max(offset, 0), len(list))
	return list[offset:min(offset+limit, len(list))]
}

func (s *Server) serveDefinitions(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	withVolumes := query.Get("with_volume_definitions") == "true"
	s.mu.Lock()
	keys := newFilter(query["resource_definitions"]).keys(s.definitions)
	list := make([][]byte, 0, len(keys))
	for _, key := range keys {
		if d := s.definitions[key]; haveAll(d.props, query["props"]) {
			list = append(list, s.definitionText(d, withVolumes))
		}
	}
	s.mu.Unlock()
	answerList(w, page(query, list))
}

func (s *Server) serveDefinition(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	d := s.definitions[fold(r.PathValue("definition"))]
	var text []byte
	if d != nil {
		text = s.definitionText(d, r.URL.Query().Get("with_volume_definitions") == "true")
	}
	s.mu.Unlock()
	answerIf(w, text, "resource definition", r.PathValue("definition"))
}

// serveResources answers from memory alone: it never waits for a satellite.
func (s *Server) serveResources(w http.ResponseWriter, r *http.Request) {
	var list [][]byte
	s.mu.Lock()
	d := s.definitions[fold(r.PathValue("definition"))]
	if d != nil {
		for _, name := range slices.Sorted(maps.Keys(d.resources)) {
			list = append(list, s.resourceText(d, d.resources[name], false))
		}
	}
	s.mu.Unlock()
	if d == nil {
		notFound(w, "resource definition", r.PathValue("definition"))
		return
	}
	answerList(w, page(r.URL.Query(), list))
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var text []byte
	if d := s.definitions[fold(r.PathValue("definition"))]; d != nil {
		if rsc := d.resources[fold(r.PathValue("node"))]; rsc != nil {
			text = s.resourceText(d, rsc, false)
		}
	}
	s.mu.Unlock()
	answerIf(w, text, "resource", r.PathValue("definition")+" on node "+r.PathValue("node"))
}

func (s *Server) serveNodes(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	filter := newFilter(query["nodes"])
	list := []nodeJSON{}
	s.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		if n := s.nodes[key]; filter.passes(n.name) {
			list = append(list, s.node(n))
		}
	}
	s.mu.Unlock()
	answer(w, page(query, list))
}

func (s *Server) serveNode(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := s.nodes[fold(r.PathValue("node"))]
	var text []byte
	if n != nil {
		text = encode(s.node(n))
	}
	s.mu.Unlock()
	answerIf(w, text, "node", r.PathValue("node"))
}

func (s *Server) serveGroups(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	filter := newFilter(query["resource_groups"])
	list := []groupJSON{}
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if filter.passes(name) {
			list = append(list, s.group(name))
		}
	}
	s.mu.Unlock()
	answer(w, page(query, list))
}

func (s *Server) serveGroup(w http.ResponseWriter, r *http.Request) {
	var text []byte
	s.mu.Lock()
	for name := range s.groups {
		if strings.EqualFold(name, r.PathValue("group")) {
			text = encode(s.group(name))
		}
	}
	s.mu.Unlock()
	answerIf(w, text, "resource group", r.PathValue("group"))
}

func (s *Server) serveControllerProps(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	props := maps.Clone(s.props)
	s.mu.Unlock()
	answer(w, props)
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	answer(w, versionJSON{
		Version: s.options.Version, GitHash: "simulated", BuildTime: "2026-01-01T00:00:00+00:00", RestAPIVersion: "1.27.0",
	})
}

// encode returns a body as JSON.
func encode(body any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	// LINSTOR's JSON writer does not escape for HTML. The wire types can not fail to encode.
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(body)
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}

func answer(w http.ResponseWriter, body any) { send(w, http.StatusOK, encode(body)) }

// bodies are the buffers in which lists are put together: those of all resources have megabytes.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// answerList answers with a list of objects that are JSON already.
func answerList(w http.ResponseWriter, list [][]byte) {
	body := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(body)
	body.Reset()
	body.WriteByte('[')
	for i, text := range list {
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(text)
	}
	body.WriteByte(']')
	send(w, http.StatusOK, body.Bytes())
}

// answerIf answers with an object that is JSON already, or that there is none.
func answerIf(w http.ResponseWriter, text []byte, kind, name string) {
	if text == nil {
		notFound(w, kind, name)
		return
	}
	send(w, http.StatusOK, text)
}

func send(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here is a client that left.
	_, _ = w.Write(text)
}

// notFound answers as LINSTOR does for objects that it does not have: 404 with a list of return codes.
func notFound(w http.ResponseWriter, kind, name string) {
	// MASK_ERROR with FAIL_NOT_FOUND_RSC_DFN; clients look at the HTTP status.
	const retCode = -4611686018427387904 | 301
	send(w, http.StatusNotFound, encode([]apiCallRC{{RetCode: retCode, Message: fmt.Sprintf("The %s '%s' does not exist.", kind, name)}}))
}
