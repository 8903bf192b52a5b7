package drbd

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Default delays of a cluster; see [Options].
const (
	DefaultDetectionDelay = 10 * time.Second
	DefaultReconnectDelay = time.Second
)

// Immediately stands for a delay of zero where zero means the default.
const Immediately = time.Duration(-1)

// Options are the delays of a cluster. Zero values mean the defaults.
type Options struct {
	// DetectionDelay is the time from a link or node going dead to its peers noticing. A real one takes 6.3 to 11.3 s, see
	// [Measured]; [Immediately] is the connection reset of a dying machine's kernel.
	DetectionDelay time.Duration
	// Detect, when set, gives each end of a connection its own detection delay and replaces DetectionDelay. It
	// is called with the cluster locked and must not call back.
	Detect func(observer, peer string) time.Duration
	// DetectCut, when set, gives both ends of a connection of a Primary that is cut off their detection delays in place of Detect,
	// and is called like it. A crash is no cut.
	DetectCut func(primary, peer string) (byPeer, byPrimary time.Duration)
	// ReconnectDelay is the time from a link coming back to the DRBD handshake. Default 1 s.
	ReconnectDelay time.Duration
	// Reconnect, when set, gives each connection its own reconnect delay and replaces ReconnectDelay. After a cut of all
	// links the second connection can come 10 s after the first. It is called like Detect, with a < b.
	Reconnect func(a, b string) time.Duration
	// NoticeEach makes a node notice each dead connection in its own time. Otherwise it notices all dead ones of a
	// resource with the first.
	NoticeEach bool
	// Flap is the time that a replica takes to agree with the others after it lost the Primary, in which they may be
	// promoted, may not, and may again. Real ones take 2 to 13 ms. Default none.
	Flap time.Duration
	// HealFlap is how long an outdated replica that is connected again says that it may be promoted, before it has
	// heard of the Primary. Real ones do so for 0.6 ms. Default none.
	HealFlap time.Duration
	// ConnectDelay is the time from a new peer being configured to the first handshake with it. Default none.
	ConnectDelay time.Duration
	// ResyncDelay is the time from the handshake to the beginning of a resync, in which a replica with old data is what it was. Default
	// none.
	ResyncDelay time.Duration
	// ResyncDuration is the time a replica with old data stays Inconsistent after the handshake. Default none.
	ResyncDuration time.Duration
	// SyncRate, in KiB per second, is how fast a disk that has nothing yet is filled: the initial sync of its whole size. By default it
	// takes the ResyncDuration. An initial sync that is interrupted begins anew.
	SyncRate int64
}

// Cluster is a set of nodes, the network between them and the DRBD resources on them. It is safe for
// concurrent use.
type Cluster struct {
	mu        sync.Mutex
	options   Options
	nodes     map[string]*node
	resources map[string]*resource
	cut       map[link]bool
	sessions  int
	stopped   bool

	listeners  []func(resource, node string)
	changes    []change
	delivering bool
}

// node is one machine.
type node struct {
	up       bool
	isolated bool
}

// link is an unordered pair of node names.
type link struct{ a, b string }

func linkOf(a, b string) link { return link{min(a, b), max(a, b)} }

// change is one replica whose observable state changed.
type change struct{ resource, node string }

// NewCluster returns a cluster without nodes.
func NewCluster(options Options) *Cluster {
	options.DetectionDelay = delay(options.DetectionDelay, DefaultDetectionDelay)
	options.ReconnectDelay = delay(options.ReconnectDelay, DefaultReconnectDelay)
	options.ResyncDelay = delay(options.ResyncDelay, 0)
	options.ResyncDuration = delay(options.ResyncDuration, 0)
	options.ConnectDelay = delay(options.ConnectDelay, 0)
	return &Cluster{
		options:   options,
		nodes:     map[string]*node{},
		resources: map[string]*resource{},
		cut:       map[link]bool{},
	}
}

func delay(set, standard time.Duration) time.Duration {
	switch {
	case set == 0:
		return standard
	case set < 0:
		return 0
	}
	return set
}

// Stop ends everything that the cluster would do later on its own, and all notifications.
func (c *Cluster) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.changes = nil
}

// OnChange registers a function that is called after a replica's [State] changed, appeared or vanished, in
// the order of the changes and never twice at a time. It may read the cluster and change it. Several changes in
// one step may be told as one. It is called after the operation that caused the change, and before that returns
// unless another goroutine is delivering already.
func (c *Cluster) OnChange(f func(resource, node string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, f)
}

// SetDetectionDelay changes the detection delay for faults that happen from now on; 0 is none.
func (c *Cluster) SetDetectionDelay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options.DetectionDelay = d
	c.options.Detect, c.options.DetectCut = nil, nil
}

// AddNode adds a running node that reaches all others. Adding a node twice changes nothing.
func (c *Cluster) AddNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[name] == nil {
		c.nodes[name] = &node{up: true}
	}
}

// Nodes returns the names of all nodes, sorted.
func (c *Cluster) Nodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.nodes))
}

// Resources returns the names of all resources, sorted.
func (c *Cluster) Resources() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.resources))
}

// Up tells whether the node exists and runs.
func (c *Cluster) Up(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name] != nil && c.nodes[name].up
}

// do runs f with the cluster locked and delivers the changes it made.
func (c *Cluster) do(f func() error) error {
	c.mu.Lock()
	err := f()
	c.mu.Unlock()
	c.deliver()
	return err
}

// later runs f with the cluster locked after the delay; at once, in the caller's lock, when there is none.
func (c *Cluster) later(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, func() {
		_ = c.do(func() error {
			if !c.stopped {
				f()
			}
			return nil
		})
	})
}

// deliver tells the listeners of all changes, one at a time and in order.
func (c *Cluster) deliver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delivering {
		return
	}
	c.delivering = true
	defer func() { c.delivering = false }()
	for len(c.changes) > 0 {
		next := c.changes[0]
		c.changes = c.changes[1:]
		listeners := slices.Clone(c.listeners)
		c.mu.Unlock()
		for _, listener := range listeners {
			listener(next.resource, next.node)
		}
		c.mu.Lock()
	}
}

// reaches tells whether the network carries packets between two nodes, both running.
func (c *Cluster) reaches(a, b string) bool {
	x, y := c.nodes[a], c.nodes[b]
	return x != nil && y != nil && x.up && y.up && !x.isolated && !y.isolated && !c.cut[linkOf(a, b)]
}

// detection is how long an observer takes to notice that a peer fell silent.
func (c *Cluster) detection(observer, peer string) time.Duration {
	if c.options.Detect != nil {
		return c.options.Detect(observer, peer)
	}
	return c.options.DetectionDelay
}

// reconnection is how long a connection that can be made again takes to be made.
func (c *Cluster) reconnection(a, b string) time.Duration {
	if c.options.Reconnect != nil {
		return c.options.Reconnect(min(a, b), max(a, b))
	}
	return c.options.ReconnectDelay
}

// find returns a resource and its replica on a node.
func (c *Cluster) find(resourceName, nodeName string) (*resource, *replica, error) {
	r := c.resources[resourceName]
	if r == nil {
		return nil, nil, fmt.Errorf("resource %s: %w", resourceName, ErrNotFound)
	}
	x := r.replicas[nodeName]
	if x == nil {
		return nil, nil, fmt.Errorf("resource %s on node %s: %w", resourceName, nodeName, ErrNotFound)
	}
	return r, x, nil
}
