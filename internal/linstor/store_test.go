package linstor

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// storeTest drives a store along a time line.
type storeTest struct {
	*Store
	t0      time.Time
	changed []string
}

func newStoreTest() *storeTest {
	s := &storeTest{Store: NewStore(), t0: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s.Subscribe(func(resource string) { s.changed = append(s.changed, resource) })
	return s
}

func (s *storeTest) at(seconds float64) time.Time {
	return s.t0.Add(time.Duration(seconds * float64(time.Second)))
}

// read is an instant read at the given second.
func (s *storeTest) read(seconds float64) span { return instant(s.at(seconds)) }

// settings makes all levels of quorum known: majority by the definition, nodes ONLINE.
func (s *storeTest) settings(seconds float64, quorum string, nodes ...string) {
	s.applyControllerProps(nil, s.read(seconds))
	s.applyGroups([]client.Group{{Name: "DfltRscGrp"}}, s.read(seconds))
	s.applyDefinitions([]client.Definition{definition("R", quorum)}, s.read(seconds))
	s.online(seconds, nodes...)
}

func (s *storeTest) online(seconds float64, nodes ...string) {
	list := make([]client.Node, 0, len(nodes))
	for _, node := range nodes {
		list = append(list, client.Node{Name: node, ConnectionStatus: client.StatusOnline})
	}
	s.applyNodes(list, s.read(seconds))
}

func (s *storeTest) replica(t *testing.T, node string) Replica {
	t.Helper()
	r, _ := s.Resource("r")
	replica, ok := r.Replica(node)
	if !ok {
		t.Fatalf("no replica on %s in %+v", node, r)
	}
	return replica
}

// nodesOf returns the nodes of the replicas that LINSTOR lists.
func (s *storeTest) nodesOf(name string) []string {
	r, _ := s.Resource(name)
	nodes := make([]string, 0, len(r.Replicas))
	for _, replica := range r.Replicas {
		if !replica.Gone {
			nodes = append(nodes, replica.Node)
		}
	}
	return nodes
}

func TestStoreKeepsAClockThroughConfirmations(t *testing.T) {
	s := newStoreTest()
	list := []client.Resource{resource("R", "a", true, 0, false)}
	for second := range 5 {
		s.applyResources("R", list, s.read(float64(second)))
	}
	if got := s.replica(t, "a").Score; !got.Since.Equal(s.at(0)) || !got.Confirmed.Equal(s.at(4)) {
		t.Errorf("score: %+v", got)
	}
	r, _ := s.Resource("R")
	if !r.SetSince.Equal(s.at(0)) || !r.Confirmed.Equal(s.at(4)) {
		t.Errorf("set since %v, confirmed %v", r.SetSince, r.Confirmed)
	}
	s.applyResources("R", list, s.read(14.5))
	if got := s.replica(t, "a").Score; !got.Since.Equal(s.at(14.5)) {
		t.Errorf("the gap did not restart the clock: %+v", got)
	}
	if r, _ := s.Resource("R"); !r.SetSince.Equal(s.at(14.5)) {
		t.Errorf("the gap did not restart the set's clock: %v", r.SetSince)
	}
	if diff := cmp.Diff([]string{"R"}, s.changed); diff != "" {
		t.Errorf("notifications: %s", diff)
	}
}

func TestStoreIgnoresAReadOlderThanWhatItHas(t *testing.T) {
	s := newStoreTest()
	s.applyResources("R", []client.Resource{resource("R", "a", false, 1, false)}, s.read(0))
	s.ApplyEvent(client.Event{Resource: "r", Node: "A", MayPromote: new(true)}, s.at(2))
	// This read began before the event and comes after it.
	s.applyResources("R", []client.Resource{resource("R", "a", false, 2, false)}, span{start: s.at(1), end: s.at(3)})
	if got := s.replica(t, "a"); !got.MayPromote.Value || got.Score.Value != 2 {
		t.Errorf("replica: %+v", got)
	}
	s.applyResources("R", nil, s.read(5))
	s.applyResources("R", []client.Resource{resource("R", "a", false, 3, false)}, s.read(4))
	if got := s.nodesOf("R"); len(got) != 0 {
		t.Errorf("an older list brought replicas back: %v", got)
	}
	s.applyView([]client.Resource{resource("R", "a", false, 3, false)}, s.read(4))
	if got := s.nodesOf("R"); len(got) != 0 {
		t.Errorf("an older view brought replicas back: %v", got)
	}
}

func TestStoreTellsWhatAnEventIsTo(t *testing.T) {
	s := newStoreTest()
	s.applyResources("R", []client.Resource{resource("R", "a", false, 1, false)}, s.read(0))
	for name, tc := range map[string]struct {
		event client.Event
		known bool
	}{
		"an unknown resource":     {client.Event{Resource: "X", Node: "a", MayPromote: new(true)}, false},
		"an unknown replica":      {client.Event{Resource: "R", Node: "x", MayPromote: new(true)}, false},
		"the value already known": {client.Event{Resource: "R", Node: "A", MayPromote: new(false)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if known, changed := s.ApplyEvent(tc.event, s.at(1)); known != tc.known || changed {
				t.Errorf("known: %v, changed: %v", known, changed)
			}
		})
	}
	if _, changed := s.ApplyEvent(client.Event{Resource: "R", Node: "a"}, s.at(2)); !changed || s.replica(t, "a").MayPromote.Known {
		t.Error("an absent value is news: unknown")
	}
	if diff := cmp.Diff([]string{"R"}, s.Names()); diff != "" {
		t.Errorf("events created something: %s", diff)
	}
	if diff := cmp.Diff([]string{"R", "R"}, s.changed); diff != "" {
		t.Errorf("notifications: %s", diff)
	}
}

func TestStoreTakesAViewForNoEvidenceOfAbsence(t *testing.T) {
	s := newStoreTest()
	one, two := resource("R", "a", true, 1, false), resource("R", "b", false, 1, false)
	gone, unlisted := resource("GONE", "a", true, 1, false), resource("NEW", "a", true, 1, false)
	s.applyDefinitions([]client.Definition{definition("R", ""), definition("EMPTY", ""), definition("GONE", "")}, s.read(0))
	s.applyView([]client.Resource{one, two, gone}, s.read(0))
	s.applyResources("NEW", []client.Resource{unlisted}, s.read(11))

	s.applyDefinitions([]client.Definition{definition("R", ""), definition("EMPTY", "")}, s.read(10))
	read := s.applyView([]client.Resource{one}, s.read(12))
	if diff := cmp.Diff([]string{"EMPTY", "GONE", "NEW", "R"}, slices.Sorted(slices.Values(read))); diff != "" {
		t.Errorf("to be read: %s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, s.nodesOf("R")); diff != "" {
		t.Errorf("the view alone removed a replica: %s", diff)
	}
	if diff := cmp.Diff([]string{"EMPTY", "GONE", "NEW", "R"}, s.Names()); diff != "" {
		t.Errorf("resources: %s", diff)
	}
	s.applyResources("R", []client.Resource{one}, s.read(13))
	if diff := cmp.Diff([]string{"a"}, s.nodesOf("R")); diff != "" {
		t.Errorf("the list did not remove the replica: %s", diff)
	}
	s.remove("r", s.read(12))
	s.remove("new", s.read(14))
	s.remove("gone", s.read(14))
	if diff := cmp.Diff([]string{"EMPTY", "R"}, s.Names()); diff != "" {
		t.Errorf("resources: %s", diff)
	}
}

func TestStoreMergesTheNode(t *testing.T) {
	s := newStoreTest()
	s.applyResources("R", []client.Resource{resource("R", "Node-A", false, 1, false)}, s.read(0))
	s.applyResources("OTHER", []client.Resource{resource("OTHER", "b", false, 1, false)}, s.read(0))
	if got := s.replica(t, "node-a").Online; got.Known {
		t.Errorf("online before any node list: %+v", got)
	}
	s.changed = nil
	for i, tc := range []struct {
		node   client.Node
		online Fact[bool]
		leaves bool
		tells  bool
	}{
		{client.Node{Name: "NODE-A", ConnectionStatus: "ONLINE"}, Fact[bool]{Value: true, Known: true}, false, true},
		{client.Node{Name: "NODE-A", ConnectionStatus: "ONLINE"}, Fact[bool]{Value: true, Known: true}, false, false},
		{client.Node{Name: "NODE-A", ConnectionStatus: "CONNECTED"}, Fact[bool]{Known: true}, false, true},
		{client.Node{Name: "NODE-A"}, Fact[bool]{}, false, true},
		{client.Node{Name: "NODE-A", Flags: []string{"DELETE", "EVICTED"}}, Fact[bool]{}, true, true},
		{client.Node{Name: "elsewhere"}, Fact[bool]{}, false, true},
	} {
		s.changed = nil
		s.applyNodes([]client.Node{tc.node}, s.read(float64(i+1)))
		got := s.replica(t, "node-a")
		if !same(got.Online, tc.online) || got.Leaving != tc.leaves {
			t.Errorf("step %d: online %+v, leaving %v", i, got.Online, got.Leaving)
		}
		if tells := slices.Equal(s.changed, []string{"R"}); tells != tc.tells || !tells && len(s.changed) > 0 {
			t.Errorf("step %d: notifications %v", i, s.changed)
		}
	}
	if got := len(s.Nodes()); got != 1 {
		t.Errorf("%d nodes, want the listed one", got)
	}
}

func TestStoreReadsFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		want  Replica
	}{
		"diskful":     {nil, Replica{}},
		"diskless":    {[]string{"DISKLESS", "DRBD_DISKLESS"}, Replica{Diskless: true}},
		"tie-breaker": {[]string{"DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER"}, Replica{Diskless: true}},
		"client":      {[]string{"DISKLESS", "DRBD_DISKLESS", "CLIENT"}, Replica{Diskless: true, Client: true}},
		"deleted":     {[]string{"DELETE"}, Replica{Leaving: true}},
		"deleting":    {[]string{"DELETE", "DRBD_DELETE"}, Replica{Leaving: true}},
		"evicted":     {[]string{"INACTIVE", "EVICTED"}, Replica{Leaving: true}},
		"inactive":    {[]string{"INACTIVE"}, Replica{Leaving: true}},
		"evacuating":  {[]string{"EVACUATE"}, Replica{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStoreTest()
			w := resource("R", "a", false, 1, false)
			for _, flag := range tc.flags {
				if flag == client.FlagClient {
					w.LayerObject.DRBD.Flags = []string{"INITIALIZED", flag}
				} else {
					w.Flags = append(w.Flags, flag)
				}
			}
			s.applyResources("R", []client.Resource{w}, s.read(0))
			got := s.replica(t, "a")
			if got.Diskless != tc.want.Diskless || got.Client != tc.want.Client || got.Leaving != tc.want.Leaving {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestStoreTellsOfEveryChangeOfQuorum(t *testing.T) {
	s := newStoreTest()
	s.applyResources("R", []client.Resource{resource("R", "a", false, 1, false)}, s.read(0))
	s.settings(1, "", "a")
	prop := func(value string) map[string]string { return map[string]string{client.PropQuorum: value} }
	for _, step := range []struct {
		name  string
		apply func(span)
		want  string
	}{
		{"controller", func(at span) { s.applyControllerProps(prop("majority"), at) }, "majority"},
		{"group", func(at span) { s.applyGroups([]client.Group{{Name: "dfltrscgrp", Props: prop("1")}}, at) }, "1"},
		{"all groups", func(at span) { s.applyGroups([]client.Group{{Name: "dfltrscgrp", Props: prop("all")}}, at) }, "all"},
		{"definition", func(at span) { s.applyDefinition(definition("r", "2"), at) }, "2"},
		{"all definitions", func(at span) { s.applyDefinitions([]client.Definition{definition("r", "3")}, at) }, "3"},
	} {
		s.changed = nil
		s.t0 = s.t0.Add(time.Minute)
		step.apply(s.read(0))
		r, _ := s.Resource("R")
		if told := slices.Compact(slices.Clone(s.changed)); r.Quorum != step.want || !slices.Equal(told, []string{"R"}) {
			t.Errorf("%s: quorum %q, notifications %v", step.name, r.Quorum, s.changed)
		}
	}
}

func TestSnapshotsDoNotChange(t *testing.T) {
	s := newStoreTest()
	w := resource("R", "a", true, 1, false)
	w.LayerObject.DRBD.Connections = map[string]client.Connection{"b": {Connected: new(true), Message: "Connected"}}
	s.applyResources("R", []client.Resource{w}, s.read(0))
	before, _ := s.Resource("R")
	copied := maps.Clone(before.Replicas[0].Connections)

	w.LayerObject.DRBD.Connections = map[string]client.Connection{"b": {Connected: new(false), Message: "Connecting"}}
	s.applyResources("R", []client.Resource{w, resource("R", "0", false, 1, false)}, s.read(1))
	if len(before.Replicas) != 1 || before.Replicas[0].Node != "a" {
		t.Errorf("replicas changed: %+v", before.Replicas)
	}
	if diff := cmp.Diff(copied, before.Replicas[0].Connections); diff != "" {
		t.Error(diff)
	}
	if got := s.replica(t, "a").Connections["b"]; got.Value || !got.Since.Equal(s.at(1)) {
		t.Errorf("connection: %+v", got)
	}
}

func TestStoreCountsTheVolumesOfAResource(t *testing.T) {
	s := newStoreTest()
	one, two := resource("R", "a", true, 1, false), resource("R", "b", false, 1, false)
	two.LayerObject.DRBD.Volumes = make([]struct{}, 2)
	s.applyResources("R", []client.Resource{one, two}, s.read(0))
	if got, _ := s.Resource("R"); got.Volumes != 2 {
		t.Errorf("volumes = %d, want 2", got.Volumes)
	}
}

// Who has lost a connection and got it back tells by that how old a peer's word may be that still denies it.
func TestStoreRemembersWhoConnectedAnew(t *testing.T) {
	linked := func(node, peer string, connected bool) client.Resource {
		r := resource("R", node, false, 1, false)
		r.LayerObject.DRBD.Connections = map[string]client.Connection{peer: {Connected: new(connected)}}
		return r
	}
	s := newStoreTest()
	read := func(second float64, list ...client.Resource) { s.applyResources("R", list, s.read(second)) }

	read(0, linked("a", "B", true), linked("b", "a", true))
	if got := s.replica(t, "a"); len(got.Rejoined) > 0 || !got.Heard.Equal(s.at(0)) {
		t.Errorf("first reading: %+v", got)
	}
	read(1, linked("a", "B", false), linked("b", "a", false))
	read(2, linked("a", "B", true), linked("b", "a", false))
	if got := s.replica(t, "a"); !got.Rejoined["b"].Equal(s.at(2)) || !got.Heard.Equal(s.at(2)) {
		t.Errorf("after a reconnect: %+v", got)
	}
	read(3, silent("R", "a"), linked("b", "a", false))
	if got := s.replica(t, "a"); !got.Rejoined["b"].Equal(s.at(2)) || !got.Heard.Equal(s.at(2)) {
		t.Errorf("after LINSTOR lost sight of the node: %+v", got)
	}
	if got := s.replica(t, "b"); !got.Heard.Equal(s.at(1)) {
		t.Errorf("the peer was heard at %v without news", got.Heard)
	}
	read(4, linked("a", "B", false), linked("b", "a", true))
	if got := s.replica(t, "a"); len(got.Rejoined) > 0 {
		t.Errorf("after the connection was lost again: %+v", got)
	}
	if got := s.replica(t, "b"); !got.Heard.Equal(s.at(4)) {
		t.Errorf("the peer's news came at %v", got.Heard)
	}
}

// Events tell that a replica has spoken, although it says in the end what the last list said too.
func TestStoreHearsAReplicaThatSaysTheSameAgain(t *testing.T) {
	s := newStoreTest()
	read := func(second float64) {
		s.applyResources("R", []client.Resource{resource("R", "a", false, 1, true), resource("R", "b", false, 1, true)}, s.read(second))
	}
	read(0)
	s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(true)}, s.at(1))
	read(2)
	if got := s.replica(t, "a"); !got.Heard.Equal(s.at(0)) {
		t.Errorf("heard at %v although the event repeated what was known", got.Heard)
	}
	s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(false)}, s.at(3))
	s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(true)}, s.at(4))
	read(5)
	if a, b := s.replica(t, "a"), s.replica(t, "b"); !a.Heard.Equal(s.at(5)) || !b.Heard.Equal(s.at(0)) {
		t.Errorf("heard at %v and the peer at %v, want the list after the events and the first list", a.Heard, b.Heard)
	}
	read(6)
	if got := s.replica(t, "a"); !got.Heard.Equal(s.at(5)) {
		t.Errorf("heard at %v by a list that brought nothing", got.Heard)
	}
}

// Each event that changes something is asked for once, by a decision that began after it came.
func TestStoreTellsWhichEventsWaitForADecision(t *testing.T) {
	s := newStoreTest()
	s.applyResources("R", []client.Resource{resource("R", "a", false, 1, false)}, s.read(0))
	for second, mayPromote := range []bool{false, true, true, false} {
		s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(mayPromote)}, s.at(float64(second)))
	}
	if diff := cmp.Diff([]time.Time{s.at(1)}, s.Undecided("r", s.at(2))); diff != "" {
		t.Errorf("before the last one: %s", diff)
	}
	if diff := cmp.Diff([]time.Time{s.at(3)}, s.Undecided("r", s.at(4))); diff != "" {
		t.Errorf("afterwards: %s", diff)
	}
	if again := s.Undecided("r", s.at(5)); len(again) > 0 {
		t.Errorf("events were told twice: %v", again)
	}
	for second := range 100 {
		s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(second%2 == 0)}, s.at(float64(10+second)))
	}
	if got := len(s.Undecided("r", s.at(1000))); got != maxUndecided {
		t.Errorf("%d events were kept of a resource that nobody decides on, want %d", got, maxUndecided)
	}
}
