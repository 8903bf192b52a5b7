package controllers

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// slowToChange lets LINSTOR take two seconds for each change of the properties of a resource definition.
func (e *evacuating) slowToChange() {
	e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/resource-definitions/") {
			hold(r, 2*time.Second)
		}
		return e.note(w, r)
	})
}

// Two nodes leave at once, and both have a disk of one volume: each of them marks it, and each takes its own mark off.
func TestStoryOfTwoMarks(t *testing.T) {
	cfg := defaults()
	cfg.Evacuation = &evacuation.Settings{MaxNodes: 2, MaxCopies: 4}
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, cfg, func(e *evacuating, _ *process) {
		e.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB}, "" })
		e.pass(2 * time.Minute)
		e.slowToChange()
		e.taint(nodeA, "last-copies")
		e.taint(nodeB, "last-copies")
		e.safe(nodeA, 5*time.Minute)
		e.safe(nodeB, 5*time.Minute)
		if props := e.props("pvc-db"); props[evacuation.PropMark] != nodeA+","+nodeB || props[evacuation.PropBalance] != "false" {
			t.Errorf("the volume has %v", props)
		}
		e.untaint(nodeA)
		e.returned(nodeA, "pvc-db: "+nodeB)
		if props := e.props("pvc-db"); props[evacuation.PropMark] != nodeB || props[evacuation.PropBalance] != "false" {
			t.Errorf("once A has returned the volume has %v", props)
		}
		e.untaint(nodeB)
		e.returned(nodeB)
	})
}

// They return at once, too.
func TestStoryOfTwoMarksThatGoAtOnce(t *testing.T) {
	cfg := defaults()
	cfg.Evacuation = &evacuation.Settings{MaxNodes: 2, MaxCopies: 4}
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, cfg, func(e *evacuating, _ *process) {
		e.volume("db", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB}, "" })
		e.pass(2 * time.Minute)
		e.taint(nodeA, "last-copies")
		e.taint(nodeB, "last-copies")
		e.safe(nodeA, 5*time.Minute)
		e.safe(nodeB, 5*time.Minute)
		e.slowToChange()
		e.untaint(nodeA)
		e.untaint(nodeB)
		e.returned(nodeA, "pvc-db: "+nodeB)
		e.returned(nodeB)
	})
}

// LINSTOR takes its time for the mark. By then the only node that could have a copy may leave as well, or this one may stay.
func TestStoryOfAMarkThatTakesTime(t *testing.T) {
	for name, meanwhile := range map[string]func(*evacuating){
		"the target is to leave": func(e *evacuating) { e.taint(nodeC, "last-copies") },
		"the node stays":         func(e *evacuating) { e.untaint(nodeA) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			cfg.Evacuation = &evacuation.Settings{MaxNodes: 2, MaxCopies: 4}
			inEvacuationOf(t, evacuationIn{nodes: []string{nodeC}}, cfg, func(e *evacuating, _ *process) {
				e.Linstor.SetPlacement("DfltRscGrp", linstorsim.Placement{NodeNames: []string{nodeA, nodeC}})
				e.volume("cold", onlyOnA)
				e.pass(time.Minute)
				var began atomic.Bool
				e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/resource-definitions/") {
						began.Store(true)
						hold(r, 5*time.Second)
					}
					return e.note(w, r)
				})
				e.taint(nodeA, "last-copies")
				e.until(time.Minute, "the mark is being set", began.Load)
				meanwhile(e)
				e.pass(time.Minute)
				if n := e.told(evacuation.Autoplace, ""); n > 0 {
					t.Errorf("LINSTOR was asked for %d copies", n)
				}
			})
		})
	}
}

// marked makes a volume that exists on A only, and has it copied for A.
func (e *evacuating) marked() {
	e.Helper()
	e.volume("local", onlyOnA)
	e.pass(2 * time.Minute)
	e.taint(nodeA, "last-copies")
	e.until(time.Minute, "the volume is marked", func() bool { return e.props("pvc-local")[evacuation.PropMark] == nodeA })
}

// deleteNode deletes the Node object.
func (e *evacuating) deleteNode(name string) {
	e.Helper()
	e.must(e.API.Client(virtual.ActorUser).Delete(e.ctx, e.node(name)))
}

// unmarked waits until a volume has neither a mark nor what we have set of its balancing.
func (e *evacuating) unmarked(resource string, within time.Duration) {
	e.Helper()
	e.until(within, resource+" has no mark", func() bool {
		props := e.props(resource)
		return props[evacuation.PropMark] == "" && props[evacuation.PropBalance] == ""
	})
}

// The Node object is deleted while the node is evacuated: what it has left on resource definitions is taken off.
func TestStoryOfANodeThatIsDeletedMeanwhile(t *testing.T) {
	for name, deleted := range map[string]func(*evacuating, *process){
		"while a process leads": func(e *evacuating, _ *process) { e.deleteNode(nodeA) },
		"while none does": func(e *evacuating, p *process) {
			p.stops()
			e.deleteNode(nodeA)
			e.pass(time.Minute)
			e.next.leads()
		},
		"and its annotation was taken off by hand": func(e *evacuating, _ *process) {
			e.editNode(nodeA, func(n *corev1.Node) {
				n.Spec.Taints, n.Annotations, n.Status.Conditions = nil, nil, nil
			})
			e.deleteNode(nodeA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inEvacuation(t, defaults(), func(e *evacuating, p *process) {
				e.marked()
				deleted(e, p)
				e.unmarked("pvc-local", 2*time.Minute)
				calls := len(e.calls)
				e.pass(10 * time.Minute)
				if n := len(e.calls); n > calls || e.told(evacuation.Restore, "") > 0 || e.told(evacuation.Evacuate, "") > 0 {
					t.Errorf("LINSTOR was told %v", e.calls)
				}
			})
		})
	}
}

// What another node needs stays, and so does what a person has set.
func TestStoryOfMarksThatStay(t *testing.T) {
	cfg := defaults()
	cfg.Evacuation = &evacuation.Settings{MaxNodes: 2, MaxCopies: 4}
	inEvacuationOf(t, evacuationIn{nodes: []string{nodeC, "node-d"}}, cfg, func(e *evacuating, _ *process) {
		e.volume("local", onlyOnA)
		e.volume("shared", func(v *virtual.Volume) { v.Diskful, v.TieBreaker = []string{nodeA, nodeB}, "" })
		e.volume("theirs")
		e.Linstor.SetDefinitionProperty("pvc-theirs", evacuation.PropBalance, "false")
		e.pass(2 * time.Minute)
		e.slowToChange()
		e.taint(nodeA, "last-copies")
		e.taint(nodeB, "last-copies")
		e.until(time.Minute, "the shared volume is marked twice", func() bool { return e.props("pvc-shared")[evacuation.PropMark] == nodeA+","+nodeB })
		e.until(time.Minute, "the other one is", func() bool { return e.props("pvc-local")[evacuation.PropMark] == nodeA })
		e.deleteNode(nodeA)
		e.unmarked("pvc-local", 2*time.Minute)
		e.pass(5 * time.Minute)
		if props := e.props("pvc-shared"); props[evacuation.PropMark] != nodeB || props[evacuation.PropBalance] != "false" {
			t.Errorf("the shared volume has %v", props)
		}
		if props := e.props("pvc-theirs"); props[evacuation.PropBalance] != "false" {
			t.Errorf("what a person has set is gone: %v", props)
		}
		e.untaint(nodeB)
		e.returned(nodeB)
	})
}

// A node that is evacuated and that LINSTOR does not know may be one that it knows by another name: no mark is taken off for the time being.
func TestStoryOfMarksOfAnUnknownName(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.marked()
		e.must(e.API.Client(virtual.ActorUser).Create(e.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}))
		e.taint("stranger", "last-copies")
		e.pass(30 * time.Second)
		e.deleteNode(nodeA)
		e.pass(5 * time.Minute)
		if props := e.props("pvc-local"); props[evacuation.PropMark] != nodeA {
			t.Errorf("the volume has %v", props)
		}
		e.untaint("stranger")
		e.unmarked("pvc-local", 10*time.Minute)
	})
}

// Marks that LINSTOR does not take off are tried later and later.
func TestStoryOfMarksThatCannotBeTakenOff(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.marked()
		e.pass(time.Minute)
		ends := e.refuses(http.MethodPut, "/pvc-local")
		before := e.told(evacuation.Properties, "")
		e.deleteNode(nodeA)
		e.pass(20 * time.Minute)
		if n := e.told(evacuation.Properties, "") - before; n != 6 {
			t.Errorf("LINSTOR was told %d times in 20 minutes, want at once and after 10 s, 1, 2, 5 and 10 min", n)
		}
		ends()
		e.unmarked("pvc-local", 11*time.Minute)
	})
}

// Somebody gives LINSTOR a database of a time when a node was evacuated: marks that come back with it are taken off, too.
func TestStoryOfMarksOfAnOldDatabase(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.marked()
		e.pass(time.Minute)
		backup := e.Linstor.Snapshot()
		e.untaint(nodeA)
		e.returned(nodeA)
		e.pass(time.Minute)
		e.Linstor.RestoreDatabase(backup)
		e.pass(time.Minute)
		e.unmarked("pvc-local", time.Minute)
	})
}
