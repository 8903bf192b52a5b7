package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// A Node object that takes the place of another one of its name is another node, of which nothing is remembered.
func TestANodeOfTheSameNameIsAnother(t *testing.T) {
	t.Parallel()
	var all evacuees
	now := time.Now()
	old := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "1"}}, now)
	old.told["pvc-db"] = "Copying"
	if again := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "1"}}, now.Add(time.Hour)); again != old {
		t.Error("the node is not remembered")
	}
	other := all.of(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA, UID: "2"}}, now.Add(time.Hour))
	if other == old || !other.since.Equal(now.Add(time.Hour)) || len(other.told) > 0 {
		t.Errorf("the other node is %+v", other)
	}
	if !all.forget(nodeA) || all.forget(nodeA) {
		t.Error("it is not forgotten, or twice")
	}
}

// Nothing has changed as long as all that was seen is the same. Snapshots are not counted in each look.
func TestSinceWhenNothingHasChanged(t *testing.T) {
	t.Parallel()
	count := func(n int) evacuation.Count { return evacuation.Count{Known: true, N: n} }
	for name, c := range map[string]struct {
		fingerprint string
		snapshots   evacuation.Count
		changes     bool
	}{
		"the same":                        {"a", count(1), false},
		"the same, and none were counted": {"a", evacuation.Count{}, false},
		"another snapshot":                {"a", count(2), true},
		"a replica":                       {"b", count(1), true},
	} {
		begin := time.Now()
		var m evacuee
		m.observe("a", count(1), begin)
		m.observe("a", evacuation.Count{}, begin.Add(time.Second))
		m.observe(c.fingerprint, c.snapshots, begin.Add(time.Minute))
		if changes := m.memory.Unchanged.After(begin); changes != c.changes {
			t.Errorf("%s: changes %t, want %t", name, changes, c.changes)
		}
	}
}
