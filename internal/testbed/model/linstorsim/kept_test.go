package linstorsim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// Whatever happens to LINSTOR, the satellites and DRBD, in whatever order: what is answered is what would be answered if
// nothing were ever kept.
func TestKeptTextsAreThoseOfNow(t *testing.T) {
	const (
		seeds = 8
		steps = 150
	)
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWild(seed)
				w.play(t, steps, w.step)
			})
		})
	}
}

// play takes steps, and compares all answers after each of them.
func (w *wild) play(t *testing.T, steps int, step func() string) {
	t.Helper()
	defer w.cluster.Stop()
	defer w.server.Close()
	var done []string
	for range steps {
		done = append(done, step())
		synctest.Wait()
		for path, want := range w.rendered() {
			if got := w.get(path); got != want {
				t.Fatalf("GET %s\n%s\nshould be\n%s\nafter %q", path, got, want, done)
			}
		}
	}
}

// Also what changes in place makes a text anew, and nothing else does.
func TestATextIsKeptUntilWhatItIsMadeOfChanges(t *testing.T) {
	props, flags, v := map[string]string{"key": "value"}, []string{FlagDiskless}, &values{}
	changes := []struct {
		what   string
		change func()
	}{
		{"nothing", func() {}},
		{"the value of a property", func() { props["key"] = "other" }},
		{"a property more", func() { props["more"] = "value" }},
		{"another property of the same value", func() { delete(props, "more"); props["else"] = "value" }},
		{"a flag", func() { flags[0] = FlagInactive }},
		{"a flag more", func() { flags = append(flags, FlagDelete) }},
		{"a flag less", func() { flags = flags[:1] }},
		{"the same values, reported again", func() { v = &values{} }},
		{"no values", func() { v = nil }},
	}
	var k kept
	rendered := 0
	text := func() string {
		return string(k.of(props, flags, v, func() any {
			rendered++
			return rendered
		}))
	}
	text()
	for i, c := range changes {
		c.change()
		// The first change is none.
		if got, want := text(), strconv.Itoa(i+1); got != want || text() != want {
			t.Errorf("after %s text %s is answered, want %s", c.what, got, want)
		}
	}
}

// wild is a LINSTOR to which things happen at random, on nodes a to e, resources r1 to r4.
type wild struct {
	*rand.Rand

	cluster *drbd.Cluster
	server  *Server
	saved   *Snapshot
}

// newWild returns one with all nodes but e, and with resources r1 to r3.
func newWild(seed uint64) *wild {
	return newWildOver(seed, drbd.Options{ResyncDuration: time.Second}, Options{})
}

// newWildOver returns one with further options.
func newWildOver(seed uint64, below drbd.Options, options Options) *wild {
	cluster := drbd.NewCluster(below)
	// With thin pools a view may wait, and what it is compared with may change meanwhile.
	options.ThickPools, options.TieBreakers = true, seed%2 == 0
	options.CommitDelay, options.ValuesBeforeOnline = 300*time.Millisecond, 200*time.Millisecond
	options.PartialConnections = 100 * time.Millisecond
	w := &wild{rand.New(rand.NewPCG(seed, 0)), cluster, New(cluster, options), nil}
	for _, node := range []string{"a", "b", "c", "d"} {
		w.server.AddNode(node)
	}
	_ = w.server.CreateResource(ResourceSpec{Spec: drbd.Spec{Name: "r1", Replicas: []drbd.ReplicaSpec{
		{Node: "a"}, {Node: "b"}, {Node: "c", TieBreaker: true},
	}}})
	_ = w.server.CreateResource(ResourceSpec{Group: "other", Spec: drbd.Spec{Name: "r2", Volumes: 2, Replicas: []drbd.ReplicaSpec{
		{Node: "b"}, {Node: "c"}, {Node: "d"}, {Node: "a", Client: true},
	}}})
	_ = w.server.CreateResource(ResourceSpec{StorageOnly: true, Spec: drbd.Spec{Name: "r3", Replicas: []drbd.ReplicaSpec{{Node: "a"}}}})
	return w
}

// rendered is what the paths of all definitions and resources should be answered with, rendered now.
func (w *wild) rendered() map[string]string {
	const list = "/v1/resource-definitions"
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := map[string]string{}
	view, plain, withVolumes := []resourceJSON{}, []definitionJSON{}, []definitionJSON{}
	for _, key := range slices.Sorted(maps.Keys(s.definitions)) {
		d := s.definitions[key]
		resources := []resourceJSON{}
		for _, node := range slices.Sorted(maps.Keys(d.resources)) {
			rsc := d.resources[node]
			one := s.resource(d, rsc, false)
			paths[list+"/"+key+"/resources/"+node] = string(encode(one))
			resources = append(resources, one)
			if d.volumes > 0 {
				view = append(view, s.resource(d, rsc, true))
			}
		}
		paths[list+"/"+key+"/resources"] = string(encode(resources))
		paths[list+"/"+key] = string(encode(s.definition(d, false)))
		paths[list+"/"+key+"?with_volume_definitions=true"] = string(encode(s.definition(d, true)))
		plain, withVolumes = append(plain, s.definition(d, false)), append(withVolumes, s.definition(d, true))
	}
	paths["/v1/view/resources"] = string(encode(view))
	paths[list] = string(encode(plain))
	paths[list+"?with_volume_definitions=true"] = string(encode(withVolumes))
	return paths
}

// get returns the answer to a request, whether or not the controller is down.
func (w *wild) get(path string) string {
	out := httptest.NewRecorder()
	w.server.mux.ServeHTTP(out, httptest.NewRequest(http.MethodGet, path, nil))
	return out.Body.String()
}

func (w *wild) one(of ...string) string { return of[w.IntN(len(of))] }

// step lets one thing happen and says what.
func (w *wild) step() string {
	s, c := w.server, w.cluster
	node, peer := w.one("a", "b", "c", "d", "e"), w.one("a", "b", "c", "d")
	rsc := w.one("r1", "r1", "r2", "r2", "r3", "r4")
	key := w.one("Aux/key", "StorPoolName", PropQuorum, PropAllowTwoPrimaries)
	value := w.one("", "1", "majority", "yes")
	flags := [][]string{nil, {FlagDiskless}, {FlagInactive}, {FlagDiskless, FlagDRBDDiskless, FlagTieBreaker}}[w.IntN(4)]
	readOnly := w.IntN(4) == 0
	deeds := map[string]func(){
		"AddNode": func() { s.AddNode(node) },
		"CreateResource": func() {
			_ = s.CreateResource(ResourceSpec{VolumeLess: readOnly, ExternalName: value, Spec: drbd.Spec{
				Name: rsc, Replicas: []drbd.ReplicaSpec{{Node: node}, {Node: peer}},
			}})
		},
		"MakeAvailable":         func() { _ = s.MakeAvailable(rsc, node) },
		"AddReplica":            func() { _ = s.AddReplica(rsc, drbd.ReplicaSpec{Node: node, Client: readOnly}) },
		"RemoveReplica":         func() { _ = s.RemoveReplica(rsc, node) },
		"DeleteResource":        func() { _ = s.DeleteResource(rsc) },
		"SetNodeFlags":          func() { s.SetNodeFlags(node, flags...) },
		"SetResourceFlags":      func() { s.SetResourceFlags(rsc, node, flags...) },
		"FlagReplica":           func() { s.FlagReplica(rsc, node, FlagInactive, readOnly) },
		"SetControllerProperty": func() { s.SetControllerProperty(key, value) },
		"SetNodeProperty":       func() { _ = s.SetNodeProperty(node, key, value) },
		"SetGroupProperty":      func() { s.SetGroupProperty(w.one(DefaultGroup, "other"), key, value) },
		"SetDefinitionProperty": func() { s.SetDefinitionProperty(rsc, key, value) },
		"SetResourceProperty":   func() { _ = s.SetResourceProperty(rsc, node, key, value) },
		"StopSatellite":         func() { s.StopSatellite(node) },
		"CutSatellite":          func() { s.CutSatellite(node) },
		"RestoreSatellite":      func() { s.RestoreSatellite(node) },
		"FreezeSatellite":       func() { s.FreezeSatellite(node) },
		"UnfreezeSatellite":     func() { s.UnfreezeSatellite(node) },
		"RestartEvents":         func() { s.RestartEvents(node) },
		"EndEvents":             func() { s.EndEvents(node) },
		"Place":                 func() { _ = s.Place(rsc, drbd.ReplicaSpec{Node: node}, drbd.ReplicaSpec{Node: peer, TieBreaker: true}) },
		"ToggleDisk":            func() { _ = s.ToggleDisk(rsc, node, readOnly) },
		"LoseNode":              func() { _ = s.LoseNode(node) },
		"Evict":                 func() { _ = s.Evict(node) },
		"Evacuate":              func() { _ = s.Evacuate(node) },
		"RestoreNode":           func() { _ = s.RestoreNode(node) },
		"Snapshot":              func() { w.saved = s.Snapshot() },
		"RestoreDatabase": func() {
			if w.saved != nil {
				s.RestoreDatabase(w.saved)
			}
		},
		"SetAdjustFault":   func() { s.SetAdjustFault(node, w.one("", rsc), AdjustFault(w.IntN(4))) },
		"Crash":            func() { s.Crash(node) },
		"Return":           func() { s.Return(node) },
		"Isolate":          func() { s.Isolate(node) },
		"Rejoin":           func() { s.Rejoin(node) },
		"Stop":             s.Stop,
		"Start":            s.Start,
		"Restart":          s.Restart,
		"Open":             func() { _ = c.Open(rsc, node, readOnly) },
		"Close":            func() { c.Close(rsc, node) },
		"SetDisk":          func() { _ = c.SetDisk(rsc, node, 0, w.one(drbd.Failed, drbd.Inconsistent, drbd.UpToDate)) },
		"CutLink":          func() { c.CutLink(node, peer) },
		"HealLink":         func() { c.HealLink(node, peer) },
		"CutResourceLink":  func() { c.CutResourceLink(rsc, node, peer) },
		"HealResourceLink": func() { c.HealResourceLink(rsc, node, peer) },
		"Reconnect":        func() { _ = c.Reconnect(rsc, node) },
		"Shutdown":         func() { c.Shutdown(node) },
		"time passes":      func() { time.Sleep(time.Duration(w.IntN(15_000)) * time.Millisecond) },
	}
	names := slices.Sorted(maps.Keys(deeds))
	// What breaks things must not come so often that nothing works any more.
	names = append(names, "time passes", "Start", "Start", "Return", "RestoreSatellite", "UnfreezeSatellite", "Rejoin", "Open", "Close", "AddNode", "RestoreNode")
	name := w.one(names...)
	deeds[name]()
	return fmt.Sprintf("%s %s %s %s %s=%s %v %t", name, rsc, node, peer, key, value, flags, readOnly)
}
