package linstorsim

import (
	"cmp"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Immediately stands for a delay of zero where zero means the default.
const Immediately = time.Duration(-1)

// Options are the delays and settings of a simulated LINSTOR. Zero values mean the defaults, which are
// LINSTOR's own where LINSTOR has one.
type Options struct {
	// PingTimeout is the time from a satellite falling silent to the controller giving it up. LINSTOR takes 5 to
	// 7 s; default 6 s.
	PingTimeout time.Duration
	// StatusLag is how long a node still reads ONLINE after its satellite closed the connection. LINSTOR takes up
	// to 1 s; default 1 s.
	StatusLag time.Duration
	// ReconnectInterval is the time between two attempts to reach a lost satellite. Default 10 s.
	ReconnectInterval time.Duration
	// FirstReconnect is the time from the loss of a satellite to the first attempt to reach it: LINSTOR's attempts have a beat of their
	// own. Default the ReconnectInterval.
	FirstReconnect time.Duration
	// SyncDuration is the time a returning satellite is CONNECTED before it is ONLINE. Default 500 ms.
	SyncDuration time.Duration
	// StartDuration is the time that [Server.Restart] leaves REST unanswered. Default 1 s.
	StartDuration time.Duration
	// ConnectDelay is the time from the controller answering REST after a start to its first attempts to reach the satellites, in which
	// all nodes are OFFLINE. Default none.
	ConnectDelay time.Duration
	// ReplayDelay is the time between taking the snapshot for "Last-Event-ID: current" and sending it. Changes in
	// between reach the subscribers before their own older value. Default none.
	ReplayDelay time.Duration
	// ValuesBeforeOnline is how long before ONLINE the values of a returning satellite are shown, at most the
	// SyncDuration. LINSTOR shows them up to 6 s before. Default none.
	ValuesBeforeOnline time.Duration
	// PartialConnections is how long the first values of a returning satellite lack in_use and all connections but one,
	// about 100 ms. Default none.
	PartialConnections time.Duration
	// AdjustDelay is the time from a returning satellite being ONLINE to its adjust of what the full sync brought; until
	// then DRBD there runs what it ran before. Default 200 ms. See [Server.DelayAdjust].
	AdjustDelay time.Duration
	// AdjustTime, when set, is how long the satellite of a node takes to do what it is told while it is ONLINE: to make a replica, to
	// take it away or to adjust it. An answer of REST does not wait for it. It is called with the server's lock held and must not call
	// back. By default it takes no time.
	AdjustTime func(nodeName string) time.Duration
	// EventsDelay is the time from a satellite's new events2 to its values, after [Server.EndEvents]. Default 35 ms.
	EventsDelay time.Duration
	// CommitDelay is the time between the two commits of a deletion or a disk's removal. Default none.
	CommitDelay time.Duration
	// Clients makes clients without a vote of the replicas without a disk that make-available places, as LINSTOR 1.34 and newer do.
	Clients bool
	// TieBreakers lets LINSTOR add and remove tie-breakers by itself where [PropAutoTieBreaker] is true, whenever
	// replicas or settings of a definition change after its creation.
	TieBreakers bool
	// HeadersAtOnce sends an event stream's headers at once, as the LINSTOR 1.33 and 1.34 that were tried do. By default
	// they come with the first event, which LINSTOR's HTTP server allows and which is harder on clients.
	HeadersAtOnce bool
	// Durations are how long satellites take; none by default.
	Durations Durations
	// ThickPools makes the storage pools LVM instead of LVM_THIN. With thin pools, view/resources waits for
	// satellites that are silent and not yet given up, as LINSTOR does.
	ThickPools bool
	// Balancing lets LINSTOR's own task bring all definitions to their groups' place counts, once an hour unless [PropBalanceInterval] of
	// the controller says otherwise. A real LINSTOR does so by default.
	Balancing bool
	// ShipRate, in KiB per second, is how fast a snapshot is shipped from one node to another. By default it takes no time.
	ShipRate int64
	// Version is LINSTOR's own; default 1.33.3. Before 1.33, an evacuation takes no body.
	Version string
	// ControllerProps are the controller's properties; nil means those that Piraeus sets.
	ControllerProps map[string]string
}

// Server is the simulated LINSTOR. It is an [http.Handler] for LINSTOR's REST API and safe for concurrent use.
// Node and resource names are compared without regard to case.
type Server struct {
	cluster *drbd.Cluster
	options Options
	mux     *http.ServeMux

	mu    sync.Mutex
	nodes map[string]*node
	// strangers are the nodes that LINSTOR has forgotten. They go on without it.
	strangers   map[string]*node
	definitions map[string]*definition
	groups      map[string]map[string]string
	placements  map[string]Placement
	props       map[string]string
	subscribers map[*subscriber]struct{}
	requests    map[Kind]int
	answered    atomic.Int64
	intercept   func(http.ResponseWriter, *http.Request) bool
	servers     []*http.Server
	// births counts how often an object of a name has been made.
	births map[string]int
	// eventEnds counts the ends of all satellites' events2.
	eventEnds int
	// moves are the disks that move from one replica to another.
	moves []*move
	// shipments are the snapshots that are on their way.
	shipments []*shipment
	// operators counts the operators that there have been, see [Server.SetOperator].
	operators int
	// ports counts the definitions that there have ever been.
	ports int
	// process counts the controller's processes; what an earlier one had planned does not happen.
	process int
	down    bool
	// blind is set while the controller has no connector, see [Server.LoseConnector].
	blind  bool
	closed bool
}

// DefaultGroup is the resource group of definitions that name none.
const DefaultGroup = "DfltRscGrp"

// New returns a running LINSTOR without nodes. It listens to the cluster from now on; resources that the
// cluster has already are unknown to it.
func New(cluster *drbd.Cluster, options Options) *Server {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&options.PingTimeout, 6 * time.Second},
		{&options.StatusLag, time.Second},
		{&options.ReconnectInterval, 10 * time.Second},
		{&options.SyncDuration, 500 * time.Millisecond},
		{&options.StartDuration, time.Second},
		{&options.ReplayDelay, 0},
		{&options.AdjustDelay, 200 * time.Millisecond},
		{&options.EventsDelay, 35 * time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		*d.value = max(*d.value, 0)
	}
	if options.ControllerProps == nil {
		options.ControllerProps = PiraeusProps()
	}
	options.Version = cmp.Or(options.Version, "1.33.3")
	s := &Server{
		cluster:     cluster,
		options:     options,
		nodes:       map[string]*node{},
		strangers:   map[string]*node{},
		births:      map[string]int{},
		definitions: map[string]*definition{},
		groups:      map[string]map[string]string{DefaultGroup: {}},
		placements:  map[string]Placement{},
		props:       maps.Clone(options.ControllerProps),
		subscribers: map[*subscriber]struct{}{},
		requests:    map[Kind]int{},
		process:     1,
	}
	s.mux = s.routes()
	cluster.OnChange(s.changed)
	s.planBalancing()
	return s
}

// Serve answers HTTP on a listener until Close. It returns nil when it was closed.
func (s *Server) Serve(listener net.Listener) error {
	server := &http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.Join(listener.Close(), http.ErrServerClosed)
	}
	s.servers = append(s.servers, server)
	s.mu.Unlock()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends all listeners, requests and streams, and everything that would happen later. It does not touch
// the cluster.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.process++
	servers := s.servers
	s.endStreams(true)
	for _, n := range s.nodes {
		n.settle()
	}
	s.mu.Unlock()
	for _, server := range servers {
		_ = server.Close()
	}
}

// Intercept sets a function that sees every request first, and handles it alone if it returns true; nil
// removes it. It runs without the server's lock, may take its time and may panic with [http.ErrAbortHandler]
// to cut the connection.
func (s *Server) Intercept(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// ServeHTTP answers one request of LINSTOR's REST API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	intercept := s.intercept
	s.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	s.mu.Lock()
	away := s.down || s.closed
	s.mu.Unlock()
	if away {
		panic(http.ErrAbortHandler)
	}
	s.mux.ServeHTTP(&counting{w, &s.answered}, r)
}

// Stop ends the controller process: REST answers nothing, streams end, all values are forgotten. The satellites
// and DRBD go on.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process++
	s.down, s.moves, s.shipments = true, nil, nil
	s.endStreams(true)
	s.regain()
	for _, n := range s.nodes {
		n.settle()
		n.connected, n.status, n.frozen = false, Offline, false
		n.hangUp()
	}
	for _, d := range s.definitions {
		for _, rsc := range d.resources {
			rsc.values = nil
		}
	}
}

// Start begins a new controller process after [Server.Stop]. Satellites that can be reached are ONLINE again
// after the sync duration.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down || s.closed {
		return
	}
	s.process++
	s.down = false
	s.planBalancing()
	for _, key := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[key]
		n.lost = time.Now()
		attempt := n.attempt
		s.later(s.options.ConnectDelay, func() { s.join(n, attempt) })
	}
}

// Restart stops the controller process and starts a new one after the start duration.
func (s *Server) Restart() {
	s.Stop()
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	time.AfterFunc(s.options.StartDuration, func() {
		s.mu.Lock()
		stale := s.process != process
		s.mu.Unlock()
		if !stale {
			s.Start()
		}
	})
}

// later runs f with the lock held after a delay, unless the controller process has ended by then. It is called
// with the lock held; without a delay, so is f.
func (s *Server) later(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	process := s.process
	time.AfterFunc(d, func() {
		s.mu.Lock()
		if s.process == process {
			f()
		}
		s.mu.Unlock()
	})
}

// fold is the key of a name: LINSTOR compares names without regard to case.
func fold(name string) string { return strings.ToLower(name) }
