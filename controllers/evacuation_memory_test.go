package controllers

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/csidriver"
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

// What is attached has a replica there, unless it is mounted by NFS: LINSTOR that lists none has forgotten it.
func TestWhatIsAttachedMustHaveAReplica(t *testing.T) {
	t.Parallel()
	attached := func(s *steps) {
		va := s.attachment()
		va.Status.Attached = true
		s.must(s.api.Status().Update(s.ctx, va))
	}
	for name, c := range map[string]struct {
		change   func(*steps)
		replicas []string
		unlisted []string
	}{
		"attached":       {attached, []string{nodeB}, []string{"db"}},
		"with a replica": {attached, []string{nodeA, nodeB}, nil},
		"about to be":    {func(*steps) {}, []string{nodeB}, nil},
		"listed nowhere": {func(*steps) {}, nil, []string{"db"}},
		"about to be no more": {func(s *steps) {
			attached(s)
			va := s.attachment()
			va.Finalizers = []string{"external-attacher/driver"}
			s.must(s.api.Update(s.ctx, va))
			s.must(s.api.Delete(s.ctx, va))
		}, []string{nodeB}, nil},
		"mounted by NFS": {func(s *steps) {
			attached(s)
			s.pv.Spec.CSI.VolumeAttributes = map[string]string{csidriver.NFSExportKey: ""}
			s.must(s.api.Update(s.ctx, s.pv))
		}, []string{nodeB}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				c.change(s)
				var listed []evacuation.Volume
				if len(c.replicas) > 0 {
					listed = []evacuation.Volume{{Resource: "pvc-db"}}
				}
				for _, node := range c.replicas {
					listed[0].Replicas = append(listed[0].Replicas, evacuation.Replica{Node: node})
				}
				unlisted, err := s.leaves.reader.Unlisted(s.ctx, nodeA, listed, []string{"db"})
				if s.must(err); !slices.Equal(unlisted, c.unlisted) {
					t.Errorf("LINSTOR lacks %v, want %v", unlisted, c.unlisted)
				}
			})
		})
	}
}
