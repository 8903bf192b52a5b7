package linstor

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// FuzzResources reads anything at all as LINSTOR's list of resources. Whatever LINSTOR leaves out of an answer is
// unknown then, and its absence changes nothing else.
func FuzzResources(f *testing.F) { f.Fuzz(leavesOut) }

// leavesOut checks that whatever a list of resources leaves out is unknown then, and that its absence changes nothing else.
func leavesOut(t *testing.T, document []byte) {
	t.Helper()
	// The keys whose absence means that LINSTOR does not know, and how a replica looks without them.
	without := map[string]func(*Replica){
		"may_promote":     func(r *Replica) { r.MayPromote = unknownAt[bool]() },
		"promotion_score": func(r *Replica) { r.Score = unknownAt[int]() },
		"in_use":          func(r *Replica) { r.InUse = unknownAt[bool]() },
		"connections":     func(r *Replica) { r.Connections = map[string]Fact[bool]{} },
		"connected": func(r *Replica) {
			r.Connections = maps.Clone(r.Connections)
			for peer := range r.Connections {
				r.Connections[peer] = unknownAt[bool]()
			}
		},
	}
	store := NewStore()
	if list, err := decodedList[client.Resource](document); err == nil {
		store.applyView(list, newStoreTest().read(1))
	}
	// A key that comes twice has no meaning: from here on each comes once.
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if decoder.Decode(&tree) != nil {
		return
	}
	all, ok := replicasIn(t, tree)
	if !ok || peersAlike(t, tree) {
		return // LINSTOR has no two nodes whose names differ by case only
	}
	for key, forget := range without {
		got, ok := replicasIn(t, withoutKey(tree, key))
		if !ok {
			t.Fatalf("the list can not be read without %q", key)
		}
		var want []Replica
		for i, r := range all {
			forget(&r)
			r.Reports, r.LastInUse, r.Heard = got[i].Reports, got[i].LastInUse, got[i].Heard // they follow from the others
			want = append(want, r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("without %q (-want +got):\n%s", key, diff)
		}
	}
}

// FuzzNodes reads anything at all as LINSTOR's list of nodes: only a node whose connection status is ONLINE is.
func FuzzNodes(f *testing.F) {
	f.Fuzz(func(t *testing.T, document []byte) {
		var list []client.Node
		if json.Unmarshal(document, &list) != nil {
			return
		}
		store := NewStore()
		store.applyNodes(list, newStoreTest().read(1))
		last := map[string]client.Node{}
		for _, w := range list {
			last[fold(w.Name)] = w
		}
		for name, w := range last {
			node, ok := store.Node(name)
			if !ok {
				t.Fatalf("node %q is not there", name)
			}
			if known := w.ConnectionStatus != ""; node.Online.Known != known {
				t.Errorf("node %q with the status %q: known is %t", name, w.ConnectionStatus, node.Online.Known)
			}
			if online := w.ConnectionStatus == "ONLINE"; isTrue(node.Online) != online {
				t.Errorf("node %q with the status %q: ONLINE is %t", name, w.ConnectionStatus, isTrue(node.Online))
			}
		}
	})
}

// FuzzQuorum sets the quorum on some levels, of which some have not been read: the value that LINSTOR wants is that of the first
// of definition, group and controller that has one, and nobody knows it while one of them may still bring another. On a resource or a
// node LINSTOR lets nobody set it.
func FuzzQuorum(f *testing.F) {
	f.Fuzz(func(t *testing.T, resource, definition, group, node, controller string, read uint8) {
		props := func(value string) map[string]string {
			if value == "" {
				return nil
			}
			return map[string]string{client.PropQuorum: value}
		}
		const definitions, groups, nodes, controllers, levels = 1, 2, 4, 8, 11 // what has been read
		s := newStoreTest()
		if read&definitions != 0 {
			s.applyDefinitions([]client.Definition{{Name: "R", ResourceGroupName: "G", Props: props(definition)}}, s.read(1))
		}
		if read&groups != 0 {
			s.applyGroups([]client.Group{{Name: "G", Props: props(group)}}, s.read(1))
		}
		if read&nodes != 0 {
			s.applyNodes([]client.Node{{Name: "N", Props: props(node)}}, s.read(1))
		}
		if read&controllers != 0 {
			s.applyControllerProps(props(controller), s.read(1))
		}
		s.applyResources("R", []client.Resource{{Name: "R", NodeName: "N", Props: props(resource)}}, s.read(2))

		want := ""
		if read&levels == levels {
			want = "off"
			for _, value := range []string{controller, group, definition} {
				if value != "" {
					want = value
				}
			}
		}
		if r, _ := s.Resource("r"); r.Quorum != want {
			t.Errorf("the quorum that LINSTOR wants is %q, want %q", r.Quorum, want)
		}
	})
}

// unknownAt is what LINSTOR left out of the list that replicasIn reads.
func unknownAt[T comparable]() Fact[T] {
	at := newStoreTest().at(1)
	return Fact[T]{Since: at, Confirmed: at}
}

// replicasIn returns the replicas of a list, if it is one, each as a store sees it that knows nothing else.
func replicasIn(t *testing.T, tree any) ([]Replica, bool) {
	t.Helper()
	document, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	list, err := decodedList[client.Resource](document)
	if err != nil {
		return nil, false
	}
	s := newStoreTest()
	var replicas []Replica
	for _, w := range list {
		entry := &replicaEntry{}
		s.take(entry, w, s.read(1))
		replicas = append(replicas, entry.replica())
	}
	return replicas, true
}

func decodedList[T any](document []byte) ([]T, error) {
	var list []T
	err := client.DecodeList(bytes.NewReader(document), func(T) string { return "any" }, func(element T) { list = append(list, element) })
	return list, err
}

// peersAlike tells whether a replica has two peers whose names differ by case only.
func peersAlike(t *testing.T, tree any) bool {
	t.Helper()
	document, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	list, err := decodedList[client.Resource](document)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		folded := map[string]bool{}
		for peer := range w.Values().Connections {
			folded[fold(peer)] = true
		}
		if len(folded) < len(w.Values().Connections) {
			return true
		}
	}
	return false
}

// withoutKey returns the tree without the members of that name, in any case, as encoding/json compares them.
func withoutKey(tree any, key string) any {
	switch node := tree.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, value := range node {
			if !strings.EqualFold(name, key) {
				kept[name] = withoutKey(value, key)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(node))
		for i, value := range node {
			kept[i] = withoutKey(value, key)
		}
		return kept
	default:
		return tree
	}
}
