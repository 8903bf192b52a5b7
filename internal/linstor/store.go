package linstor

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// Store is the state that LINSTOR reports, and since when. It is safe for concurrent use.
type Store struct {
	mu sync.RWMutex
	// resources by folded name of the resource definition.
	resources map[string]*entry
	// nodes by folded name.
	nodes map[string]*nodeEntry
	// nodesRead is when the list behind nodes was read.
	nodesRead span
	// definitions by folded name.
	definitions     map[string]*definitionEntry
	definitionsRead span
	// groups by folded name, and how many disks each wants.
	groups      map[string]level
	placeCounts map[string]int
	groupsRead  span
	// controller is the level of the controller's properties.
	controller     level
	controllerRead span
	// events is when the newest stream was opened after there was none: no event was missed since then, unless deaf is set because that
	// has ended.
	events stamp
	deaf   bool
	// lost is when the newest event came by which LINSTOR knows nothing of a replica any more.
	lost stamp
	// early is when a replica last reported whose node was not known to be ONLINE.
	early stamp
	// complete is set once everything was read: what comes then is new.
	complete bool
	// gone has the replicas that LINSTOR no longer lists although nothing shows that they have gone, by folded name of the resource
	// and by node.
	gone map[string]map[string]*replicaEntry
	// announced is when an event came of a replica that was not listed.
	announced map[Place]stamp
	// unsettled are the folded names of the resources of which evidence is awaited.
	unsettled map[string]bool

	subscribers map[*func(string)]struct{}
}

// entry is one resource definition's replicas.
type entry struct {
	name string
	// set is the sorted, joined names of the nodes with a replica. It is confirmed by lists only.
	set Fact[string]
	// reshaped is the end of the last reading that showed other replicas or disks: settings that were read before it are in doubt.
	reshaped stamp
	// shrunk is the end of the last list that lacked a replica which was there before.
	shrunk stamp
	// heard is when the newest event came that changed something.
	heard stamp
	// old is set if LINSTOR had the resource before this process followed it. read is set once its replicas have been read.
	old, read bool
	// fence is since when what LINSTOR wants has fenced.
	fence evidence.Fence
	// began is the start of the newest list.
	began stamp
	// brought is set where a replica has come since it was judged, and lacked is the start of the last list without it.
	brought bool
	lacked  stamp
	// left are the nodes whose replica went while the node was ONLINE.
	left []string
	// replicas are sorted by node.
	replicas []replicaEntry
	// undecided is when events came that changed something and were not decided on yet.
	undecided []time.Time
}

type nodeEntry struct {
	Node
	// away is the start of the newest list that did not show it ONLINE, and back the end of the first one that did again.
	away, back stamp
	// alive is when it last showed a sign of life that did not come from LINSTOR.
	alive stamp
	// reports are the error reports of its satellite.
	reports *evidence.Reports
	// reportsAsked is when they were asked for last.
	reportsAsked time.Time
	// blind is since when LINSTOR is known to have had no connection to it while it calls it ONLINE; 0 if it has one. sighted is when that last
	// ended.
	blind, sighted stamp
}

type definitionEntry struct {
	name   string
	group  string // folded
	drbd   bool
	quorum level
	// mark is what it says of LINSTOR's balancing.
	mark evacuation.Mark
	// read is when the newest read of it began.
	read stamp
}

// replica returns the entry of the replica on a node, named in lower case; nil where there is none.
func (e *entry) replica(node string) *replicaEntry {
	if e == nil {
		return nil
	}
	for i := range e.replicas {
		if e.replicas[i].Node == node {
			return &e.replicas[i]
		}
	}
	return nil
}

// Node is a LINSTOR node, as an immutable snapshot.
type Node struct {
	// Name is the LINSTOR node name in lower case.
	Name string
	// Satellite is set for nodes that can have resources: of type SATELLITE, COMBINED or a remote kind.
	Satellite bool
	// Online is whether the node's satellite is ONLINE.
	Online Fact[bool]
	// OtherVersion is set while the satellite is of another version than LINSTOR's controller, which does not talk to it then.
	OtherVersion bool
	// Leaving is set while the node has the flag DELETE or EVICTED.
	Leaving bool
	// Evacuating is set while the node has the flag EVACUATE. It says nothing of what its replicas are worth.
	Evacuating bool
	// Evacuator is the cluster that has, or had, LINSTOR evacuate the node; empty if none has.
	Evacuator string
	// Blind is set while LINSTOR is known to have no connection to it, whatever it calls it.
	Blind bool
	// NoTarget is set while LINSTOR places no new replica there, not even one without a disk, by the property AutoplaceTarget.
	NoTarget bool
	// LastOnline is when it was last read as ONLINE; zero when never.
	LastOnline time.Time
}

// Word returns whether LINSTOR reports the node's satellite ONLINE; unknown while LINSTOR has no connection to it.
func (n Node) Word() Fact[bool] {
	if n.Blind {
		return Fact[bool]{Since: n.Online.Since, Confirmed: n.Online.Confirmed}
	}
	return n.Online
}

func (n *nodeEntry) node() Node {
	node := n.Node
	node.Blind = n.blind != 0
	return node
}

// fold makes a LINSTOR name comparable: LINSTOR compares names without regard to case.
func fold(name string) string { return strings.ToLower(name) }

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		resources:   map[string]*entry{},
		nodes:       map[string]*nodeEntry{},
		definitions: map[string]*definitionEntry{},
		groups:      map[string]level{},
		gone:        map[string]map[string]*replicaEntry{},
		announced:   map[Place]stamp{},
		unsettled:   map[string]bool{},
		subscribers: map[*func(string)]struct{}{},
	}
}

// Resource returns what is known of a resource definition, named in any case. It is false for one that
// LINSTOR has not listed so far, or no longer lists.
func (s *Store) Resource(name string) (Resource, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.resources[fold(name)]
	if !ok {
		return Resource{}, false
	}
	return s.snapshot(e), true
}

// Names returns the display names of all known resource definitions, sorted.
func (s *Store) Names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := make([]string, 0, len(s.resources))
	for _, e := range s.resources {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names
}

// Nodes returns all nodes that LINSTOR lists, sorted by name.
func (s *Store) Nodes() []Node {
	s.mu.RLock()
	defer s.mu.RUnlock()
	nodes := make([]Node, 0, len(s.nodes))
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		nodes = append(nodes, s.nodes[name].node())
	}
	return nodes
}

// Node returns the named node, in any case.
func (s *Store) Node(name string) (Node, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.nodes[fold(name)]
	if !ok {
		return Node{}, false
	}
	return n.node(), true
}

// Counts returns how many replicas LINSTOR lists, and of how many it has any state.
func (s *Store) Counts() (replicas, reporting int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.resources {
		replicas += len(e.replicas)
		for i := range e.replicas {
			if e.replicas[i].Reports.Value {
				reporting++
			}
		}
	}
	return replicas, reporting
}

// Subscribe calls changed with a resource definition's display name whenever a value of it has changed:
// a fact or whether it is known, the replicas, their flags or quorum; never for a mere confirmation. It
// is called without any lock, from any goroutine, and should return soon. The returned function ends
// the subscription.
func (s *Store) Subscribe(changed func(resource string)) (unsubscribe func()) {
	key := &changed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[key] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, key)
	}
}

// notify must be called without the lock.
func (s *Store) notify(names ...string) {
	if len(names) == 0 {
		return
	}
	s.mu.RLock()
	subscribers := slices.Collect(maps.Keys(s.subscribers))
	s.mu.RUnlock()
	for _, name := range names {
		for _, changed := range subscribers {
			(*changed)(name)
		}
	}
}

// namesWhere returns the names of some resources. The lock must be held.
func (s *Store) namesWhere(match func(*entry) bool) []string {
	var names []string
	for _, e := range s.resources {
		if match(e) {
			names = append(names, e.name)
		}
	}
	return names
}

// snapshot composes the resource as it is handed out. The lock must be held.
func (s *Store) snapshot(e *entry) Resource {
	r := Resource{
		Name:      e.name,
		Known:     !e.set.Confirmed.IsZero(),
		Confirmed: e.set.Confirmed,
		SetSince:  e.set.Since,
		Replicas:  make([]Replica, 0, len(e.replicas)),
	}
	definition := s.definitions[fold(e.name)]
	r.DRBD = len(e.replicas) == 0 && definition != nil && definition.drbd
	for i := range e.replicas {
		replica := &e.replicas[i]
		r.DRBD = r.DRBD || replica.drbd
		r.Volumes = max(r.Volumes, int(replica.volumes))
		out := replica.replica()
		out.Unconfirmed = moment(replica.evidence.Since(&e.fence))
		out.Confirmed, out.Proven, out.Votes = replica.evidence.Confirmed(&e.fence), replica.evidence.Proven(), s.votes(e, replica)
		if node := s.nodes[out.Node]; node != nil {
			out.Online, out.OtherVersion = node.Online, node.OtherVersion
			out.Leaving = out.Leaving || node.Leaving
			out = node.doubted(out)
		}
		r.Replicas = append(r.Replicas, out)
	}
	r.Quorum, _, _ = s.quorum(definition)
	levels := s.levels(definition)
	r.FailsIO = cmp.Or(levels[0].onNoQuorum, levels[1].onNoQuorum, levels[2].onNoQuorum) == failsIO
	r.TwoPrimaries = isYes(cmp.Or(levels[0].twoPrimaries, levels[1].twoPrimaries, levels[2].twoPrimaries))
	r.InDoubt = e.inDoubt(definition)
	r.Left = e.left
	for _, node := range slices.Sorted(maps.Keys(s.gone[fold(e.name)])) {
		r.Replicas = append(r.Replicas, s.goneReplica(e, s.gone[fold(e.name)][node]))
	}
	return r
}

// quorum returns the quorum that LINSTOR wants of a definition, whether LINSTOR says of a level that a person has set it there, and whether a person
// has: a level without such a mark, above the definition, is a person's as well if it is in force. The lock must be held.
func (s *Store) quorum(d *definitionEntry) (value string, marked, byUser bool) {
	if d == nil {
		return "", false, false
	}
	l := s.levels(d)
	marked = l[0].byUser || l[1].byUser || l[2].byUser
	byUser = marked || l[0].value == "" && l[1].value+l[2].value != ""
	return effectiveQuorum(l[0], l[1], l[2]), marked, byUser
}

// levels returns the levels at which LINSTOR lets an option of DRBD be set for a definition, the highest first: itself, its group, the controller. The
// lock must be held.
func (s *Store) levels(d *definitionEntry) [3]level {
	if d == nil {
		return [3]level{2: s.controller}
	}
	group := level{since: 1} // none
	if d.group != "" {
		group = s.groups[d.group]
	}
	return [3]level{d.quorum, group, s.controller}
}

// inDoubt reports whether the definition was not read since replicas or their disks changed: LINSTOR adapts the quorum to them.
func (e *entry) inDoubt(d *definitionEntry) bool { return d == nil || d.read < e.reshaped }

// listedNames returns the display names of all resource definitions that LINSTOR lists or that have replicas.
func (s *Store) listedNames() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := map[string]string{}
	for key, e := range s.resources {
		names[key] = e.name
	}
	for key, d := range s.definitions {
		names[key] = d.name
	}
	return slices.Sorted(maps.Values(names))
}
