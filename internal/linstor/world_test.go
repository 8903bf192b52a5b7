package linstor

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// beginAfter is that of the evidence.
const beginAfter = 10 * time.Second

// world is a LINSTOR with one resource, R, which a store reads along a time line. Each reading takes place in no time; w.now is in
// seconds.
type world struct {
	*storeTest
	t   *testing.T
	now float64
	// quorum is what LINSTOR wants, and byUser tells whether a person has set it.
	quorum   string
	byUser   bool
	replicas map[string]*inWorld
	// nodes has the connection status of the nodes that LINSTOR lists. silent are those whose Lease is.
	nodes  map[string]string
	silent map[string]bool
	// reports are the error reports of satellites.
	reports map[string][]client.ErrorReport
}

// inWorld is a replica as its node and LINSTOR show it.
type inWorld struct {
	diskless, inUse, leaving bool
	// quiet is set while LINSTOR has no state of it.
	quiet bool
	peers []string
}

// newWorld returns a world of connected replicas, of which the store knows nothing. "c/" has no disk.
func newWorld(t *testing.T, quorum string, replicas ...string) *world {
	t.Helper()
	w := &world{
		storeTest: newStoreTest(), t: t, quorum: quorum,
		replicas: map[string]*inWorld{}, nodes: map[string]string{}, silent: map[string]bool{}, reports: map[string][]client.ErrorReport{},
	}
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		w.nodes[node] = client.StatusOnline
	}
	w.applyControllerProps(nil, w.read(0))
	w.applyGroups([]client.Group{{Name: "DfltRscGrp"}}, w.read(0))
	for _, name := range replicas {
		w.add(name)
		w.meet(strings.TrimSuffix(name, "/"))
	}
	return w
}

// knownWorld is a world whose nodes are known to run what LINSTOR wants.
func knownWorld(t *testing.T, quorum string, replicas ...string) *world {
	t.Helper()
	w := newWorld(t, quorum, replicas...)
	w.first()
	w.live(12)
	for node := range w.replicas {
		if r := w.replica(t, node); !r.Confirmed && quorum != "off" {
			t.Fatalf("it is not known what %s runs", node)
		}
	}
	return w
}

// first is the first reading of everything.
func (w *world) first() {
	w.readNodes()
	w.applyDefinitions([]client.Definition{w.definition()}, w.read(w.now))
	if len(w.applyView(w.rows(), w.read(w.now))) > 0 {
		w.list()
	}
	w.applyDefinitions([]client.Definition{w.definition()}, w.read(w.now))
}

// emptyWorld is a world that is followed, in which R does not exist yet.
func emptyWorld(t *testing.T, quorum string) *world {
	t.Helper()
	w := newWorld(t, quorum)
	w.readNodes()
	w.applyDefinitions(nil, w.read(0))
	w.applyView(nil, w.read(0))
	w.live(20)
	return w
}

// add places a replica that knows no peer yet.
func (w *world) add(name string) {
	node := strings.TrimSuffix(name, "/")
	w.replicas[node] = &inWorld{diskless: node != name}
}

// meet has a node apply that LINSTOR lists its replica: it and the others, but for those without a disk among themselves, have
// connections.
func (w *world) meet(node string) {
	for other := range w.replicas {
		w.connect(node, other)
	}
}

func (w *world) connect(one, other string) {
	a, b := w.replicas[one], w.replicas[other]
	if one == other || a.diskless && b.diskless {
		return
	}
	w.disconnect(one, other)
	a.peers, b.peers = append(a.peers, other), append(b.peers, one)
}

// disconnect has two nodes show no connection to each other.
func (w *world) disconnect(one, other string) {
	without := func(r *inWorld, peer string) {
		if r != nil {
			r.peers = slices.DeleteFunc(r.peers, func(p string) bool { return p == peer })
		}
	}
	without(w.replicas[one], other)
	without(w.replicas[other], one)
}

// remove takes a replica down and off the list.
func (w *world) remove(node string) {
	for other := range w.replicas {
		w.disconnect(node, other)
	}
	delete(w.replicas, node)
}

// lose has a node die, or be cut off from everything. LINSTOR has noticed.
func (w *world) lose(node string) {
	w.nodes[node], w.silent[node] = "OFFLINE", true
	if r := w.replicas[node]; r != nil {
		r.quiet = true
	}
}

// restart has a node's satellite go away and come back ONLINE, which the store sees.
func (w *world) restart(node string) {
	r := w.replicas[node]
	w.nodes[node], r.quiet = "OFFLINE", true
	w.live(2)
	w.wait(1)
	w.nodes[node], r.quiet = client.StatusOnline, false
	w.readNodes()
	w.list()
}

func (w *world) rows() []client.Resource {
	list := []client.Resource{}
	for _, node := range slices.Sorted(maps.Keys(w.replicas)) {
		r := w.replicas[node]
		row := resource("R", node, r.inUse, 10102, false)
		if r.quiet {
			row = silent("R", node)
		} else {
			row.LayerObject.DRBD.Connections = map[string]client.Connection{}
			for _, peer := range r.peers {
				row.LayerObject.DRBD.Connections[peer] = client.Connection{Connected: new(true), Message: "Connected"}
			}
		}
		if r.diskless {
			row.Flags = append(row.Flags, client.FlagDiskless)
		}
		if r.leaving {
			row.Flags = append(row.Flags, client.FlagDelete)
		}
		list = append(list, row)
	}
	return list
}

func (w *world) definition() client.Definition {
	d := definition("R", w.quorum)
	if w.byUser {
		d.Props[client.PropQuorumSetBy] = setByUser
	}
	return d
}

func (w *world) list()   { w.applyResources("R", w.rows(), w.read(w.now)) }
func (w *world) define() { w.applyDefinition(w.definition(), w.read(w.now)) }

// look reads as a poll does: nodes, the list, and then the definition, where it is in doubt.
func (w *world) look() {
	w.readNodes()
	if _, known := w.Resource("R"); !known && len(w.replicas) == 0 {
		return
	}
	w.list()
	if w.settingsInDoubt("R") {
		w.define()
	}
}

func (w *world) readNodes() {
	list := make([]client.Node, 0, len(w.nodes))
	for _, node := range slices.Sorted(maps.Keys(w.nodes)) {
		list = append(list, client.Node{Name: node, Type: "SATELLITE", ConnectionStatus: w.nodes[node]})
	}
	w.applyNodes(list, w.read(w.now))
	for node, status := range w.nodes {
		if status == client.StatusOnline {
			at := w.read(w.now)
			w.applyReports(node, w.reports[node], at.start, at)
		}
	}
}

// wait lets time pass without any reading.
func (w *world) wait(seconds float64) { w.now = math.Round(1000*(w.now+seconds)) / 1000 }

// live lets time pass with a look each second. Leases are renewed.
func (w *world) live(seconds float64) {
	for rest := seconds; rest > 0; rest-- {
		w.wait(min(1, rest))
		for node := range w.nodes {
			if !w.silent[node] {
				w.Alive(node, w.at(w.now))
			}
		}
		w.look()
	}
}

// says has an event come of a replica.
func (w *world) says(node string) {
	ev := client.Event{Resource: "R", Node: node, MayPromote: new(false)}
	w.announce(ev, w.at(w.now))
	w.ApplyEvent(ev, w.at(w.now))
}

// absent is an event by which LINSTOR knows nothing of a replica any more, if only for a moment.
func (w *world) absent(node string) {
	w.ApplyEvent(client.Event{Resource: "R", Node: node}, w.at(w.now))
}

// set is a definition's setting of its quorum by a person.
func (w *world) set(quorum string) { w.quorum, w.byUser = quorum, true }

// adapt is LINSTOR's setting of the quorum by itself.
func (w *world) adapt(quorum string) { w.quorum, w.byUser = quorum, false }

// confirmed checks that a node is known to have applied the quorum that LINSTOR wants, and that this one fences.
func (w *world) confirmed(node string) { w.t.Helper(); w.isConfirmed(node, true) }

// unconfirmed checks that it is not.
func (w *world) unconfirmed(node string) { w.t.Helper(); w.isConfirmed(node, false) }

func (w *world) isConfirmed(node string, want bool) {
	w.t.Helper()
	if r := w.replica(w.t, node); r.Confirmed != want {
		w.t.Errorf("at %g s %s is confirmed: %t, want %t (votes %v)", w.now, node, r.Confirmed, want, r.Votes)
	}
}

// story is what happens in a world, with what nodes may run in between.
type story map[string]func(w *world)

// run tells each story of a world of its own.
func (s story) run(t *testing.T, begin func(t *testing.T) *world) {
	t.Helper()
	for name, tell := range s {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(begin(t))
		})
	}
}

// worldOf begins a story where it is known what the nodes run.
func worldOf(quorum string, replicas ...string) func(*testing.T) *world {
	return func(t *testing.T) *world {
		t.Helper()
		return knownWorld(t, quorum, replicas...)
	}
}
