package linstor

import (
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

// What a list changes of a replica is told, whichever way the list comes, and what it only confirms is not.
func TestStoreTellsOfEveryChangeOfAReplica(t *testing.T) {
	connected := func(to bool) map[string]client.Connection {
		return map[string]client.Connection{"node-a": {Connected: new(to)}}
	}
	for name, change := range map[string]func(*client.Resource){
		"another spelling":        func(w *client.Resource) { w.Name = "pvc-1" },
		"no layer of DRBD":        func(w *client.Resource) { w.LayerObject.Type = "STORAGE" },
		"a second volume":         func(w *client.Resource) { w.LayerObject.DRBD.Volumes = make([]struct{}, 2) },
		"no disk":                 func(w *client.Resource) { w.Flags = []string{client.FlagDiskless} },
		"on its way out":          func(w *client.Resource) { w.Flags = []string{client.FlagDelete} },
		"may promote":             func(w *client.Resource) { w.LayerObject.DRBD.MayPromote = new(true) },
		"nothing of may promote":  func(w *client.Resource) { w.LayerObject.DRBD.MayPromote = nil },
		"in use":                  func(w *client.Resource) { w.State = &client.State{InUse: new(true)} },
		"nothing of its use":      func(w *client.Resource) { w.State = nil },
		"another score":           func(w *client.Resource) { w.LayerObject.DRBD.PromotionScore = new(0) },
		"no score":                func(w *client.Resource) { w.LayerObject.DRBD.PromotionScore = nil },
		"a connection that ended": func(w *client.Resource) { w.LayerObject.DRBD.Connections = connected(false) },
		"another connection": func(w *client.Resource) {
			w.LayerObject.DRBD.Connections = map[string]client.Connection{"node-c": {Connected: new(true)}}
		},
		"no connection":  func(w *client.Resource) { w.LayerObject.DRBD.Connections = nil },
		"nothing at all": func(w *client.Resource) { *w = silent("PVC-1", "node-b") },
		"another node":   func(w *client.Resource) { w.NodeName = "node-c" },
	} {
		for way, apply := range map[string]func(*Store, []client.Resource, span){
			"one by one": func(s *Store, list []client.Resource, at span) { s.applyResources("PVC-1", list, at) },
			"by a view":  func(s *Store, list []client.Resource, at span) { s.applyView(list, at) },
		} {
			if name == "another node" && way == "by a view" {
				continue // what a view lacks is read one by one
			}
			t.Run(name+" "+way, func(t *testing.T) {
				s := newStoreTest()
				s.settings(0, "majority", "node-a", "node-b", "node-c")
				list := func(change func(*client.Resource)) []client.Resource {
					b := resource("PVC-1", "node-b", false, 10102, false)
					b.LayerObject.DRBD.Connections = connected(true)
					change(&b)
					return []client.Resource{resource("PVC-1", "node-a", true, 10102, false), b}
				}
				same := func(*client.Resource) {}
				apply(s.Store, list(same), s.read(1))
				s.changed = nil
				apply(s.Store, list(same), s.read(2))
				if len(s.changed) > 0 {
					t.Errorf("told of a mere confirmation: %v", s.changed)
				}
				apply(s.Store, list(change), s.read(3))
				if len(s.changed) != 1 {
					t.Errorf("told of %v, want the one resource", s.changed)
				}
				s.changed = nil
				apply(s.Store, list(change), s.read(4))
				if len(s.changed) > 0 {
					t.Errorf("told again: %v", s.changed)
				}
			})
		}
	}
}

func TestStoreTellsOfARowThatLacksNothingButBringsAReplica(t *testing.T) {
	s := newStoreTest()
	s.settings(0, "majority", "node-a", "node-b")
	s.applyView([]client.Resource{resource("PVC-1", "node-a", true, 10102, false)}, s.read(1))
	s.changed = nil
	s.applyView([]client.Resource{resource("PVC-1", "node-a", true, 10102, false), resource("PVC-1", "node-b", false, 10102, false)}, s.read(2))
	if len(s.changed) != 1 {
		t.Errorf("told of %v, want the one resource", s.changed)
	}
}

func TestStoreTellsOfAReplicaThatMovedOrBeganToReport(t *testing.T) {
	s := newStoreTest()
	for second, list := range [][]client.Resource{
		{silent("PVC-1", "node-a")},
		{silent("PVC-1", "node-b")},
		{{Name: "PVC-1", NodeName: "node-b", LayerObject: silent("PVC-1", "node-b").LayerObject, State: &client.State{}}},
	} {
		s.changed = nil
		s.applyResources("PVC-1", list, s.read(float64(second)))
		if len(s.changed) != 1 {
			t.Errorf("list %d: told of %v, want the one resource", second, s.changed)
		}
	}
}

func TestStoreTellsThatANodeMayRunSomethingElse(t *testing.T) {
	s := newStoreTest()
	list := []client.Resource{resource("R", "node-a", true, 10102, false)}
	s.settings(0, "majority", "node-a")
	s.applyResources("R", list, s.read(1))
	s.changed = nil
	s.applyDefinition(definition("R", "majority"), s.read(2))
	if len(s.changed) != 1 {
		t.Errorf("told of %v once the definition was read after the list; want the one resource", s.changed)
	}
	s.changed = nil
	s.Alive("node-a", s.at(12))
	s.online(13, "node-a")
	if !s.replica(t, "node-a").Confirmed || len(s.changed) != 1 {
		t.Errorf("told of %v when the first setting was borne out, want the one resource", s.changed)
	}
	s.changed = nil
	s.online(14, "node-a")
	s.applyDefinition(definition("R", "majority"), s.read(15))
	if len(s.changed) > 0 {
		t.Errorf("told of a mere confirmation: %v", s.changed)
	}
}
