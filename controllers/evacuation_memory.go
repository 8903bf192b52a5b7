package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// evacuees is what this process remembers of nodes that are evacuated. The zero value is empty.
type evacuees struct {
	mu    sync.Mutex
	nodes map[string]*evacuee
}

// evacuee is one of them. What others look at is under the lock of all; the rest is the node's reconciliation's, of which there is one at a time.
type evacuee struct {
	// uid is that of the Node object: another one of the same name is another node.
	uid types.UID
	// since is when it was first seen, which is its place; conditions are those that were written last. Others look at both, because
	// the cache may not have them yet.
	since      time.Time
	conditions evacuation.Conditions

	memory evacuation.Memory
	// asks is how often LINSTOR was told to evacuate the node, as its annotation said last.
	asks        int
	fingerprint string
	// snapshots are those on the node that were counted last.
	snapshots evacuation.Count
	// unreadSince is since when it could not be read what is so of the node; zero while it can.
	unreadSince time.Time
	// written is when the conditions were written last.
	written time.Time
	// told are the volumes of which it was told why they get no copy, pods are those that were told what they wait for. progressed is when progress
	// was told last.
	told       map[string]evacuation.Reason
	pods       map[toldPod]bool
	progressed time.Time
	// standsBack is set once it was said that another installation evacuates the node.
	standsBack bool
}

// toldPod is a pod that was told something.
type toldPod struct {
	pod    types.UID
	reason evacuation.Reason
}

// of returns what is remembered of a node, which takes its place now if it has none.
func (e *evacuees) of(node *corev1.Node, now time.Time) *evacuee {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nodes == nil {
		e.nodes = make(map[string]*evacuee)
	}
	known := e.nodes[node.Name]
	if known == nil || known.uid != node.UID {
		known = &evacuee{
			uid: node.UID, since: now, conditions: cluster.EvacuationConditions(node), told: make(map[string]evacuation.Reason), pods: make(map[toldPod]bool),
			progressed: now,
			memory:     evacuation.Memory{Refused: make(map[string]evacuation.Refusal), Failed: make(map[evacuation.Call]evacuation.Failure)},
		}
		e.nodes[node.Name] = known
	}
	if progress, ok := cluster.EvacuationProgress(node); ok && !progress.Since.IsZero() {
		known.since = progress.Since
	}
	return known
}

// forget forgets a node, and tells whether it was known.
func (e *evacuees) forget(node string) (known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known = e.nodes[node]
	delete(e.nodes, node)
	return known
}

// note remembers the conditions that a node has now.
func (e *evacuees) note(mind *evacuee, conditions evacuation.Conditions, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mind.conditions, mind.written = conditions, now
}

// overlay puts what is remembered over what the cache says of nodes.
func (e *evacuees) overlay(nodes []evacuation.Node) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range nodes {
		if known := e.nodes[nodes[i].Name]; known != nil && len(nodes[i].Evacuate) > 0 {
			nodes[i].Since, nodes[i].Conditions = known.since, known.conditions
		}
	}
}

// asked notes when this process has learned how often LINSTOR was told to evacuate the node.
func (m *evacuee) asked(progress evacuation.Progress, now time.Time) {
	if m.asks != progress.Asks {
		m.asks, m.memory.Asked = progress.Asks, now
	}
}

// outcome notes whether LINSTOR has done what it was told; words say why not, none that it has.
func (m *evacuee) outcome(call evacuation.Call, words string, now time.Time) {
	if words == "" {
		delete(m.memory.Failed, call)
		return
	}
	m.memory.Failed[call] = m.memory.Failed[call].Again(now, words)
}

// observe notes whether anything has changed on the node. Snapshots are not counted in each look.
func (m *evacuee) observe(fingerprint string, snapshots evacuation.Count, now time.Time) {
	counted := snapshots.Known && m.snapshots.Known && snapshots.N != m.snapshots.N
	if m.fingerprint != fingerprint || counted || m.memory.Unchanged.IsZero() {
		m.fingerprint, m.memory.Unchanged = fingerprint, now
	}
	if snapshots.Known {
		m.snapshots = snapshots
	}
}
