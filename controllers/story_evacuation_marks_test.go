package controllers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
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
