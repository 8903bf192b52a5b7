package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// lists is a LINSTOR that can not be asked, and remembers that all nodes are ONLINE and that one resource is well on A.
type lists struct {
	wellOn
	resource string
}

func (l lists) Resource(name string) (linstor.Resource, bool) {
	if name != l.resource {
		return linstor.Resource{}, false
	}
	return l.wellOn.Resource(name)
}

func (lists) Refresh(context.Context, string) (linstor.Resource, error) {
	return linstor.Resource{}, errors.New("no")
}

func (lists) Node(name string) (linstor.Node, bool) {
	return linstor.Node{Name: name, Online: linstor.Fact[bool]{Value: true, Known: true, Confirmed: time.Now()}}, true
}

// tainted gives A a taint of that effect, none where that is empty, and the mark of one whose cause is a resource.
func (s *steps) tainted(effect corev1.TaintEffect, cause string, left time.Duration) {
	s.Helper()
	mark, err := json.Marshal(keepAwayMark{Effect: corev1.TaintEffectNoSchedule, Resources: []string{cause}, Expires: time.Now().Add(left)})
	s.must(err)
	node := s.node()
	node.Annotations = map[string]string{cluster.AnnotationKeepAway: string(mark)}
	if effect != "" {
		setTaint(node, effect)
	}
	s.must(s.api.Update(s.ctx, node))
}

func TestWhenATaintEnds(t *testing.T) {
	t.Parallel()
	const hard = corev1.TaintEffectNoSchedule
	byKubernetes := func(s *steps) {
		node := s.node()
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: hard})
		s.must(s.api.Update(s.ctx, node))
	}
	for name, tc := range map[string]struct {
		change func(*steps)
		effect corev1.TaintEffect
		marked bool
		writes int
	}{
		"when its cause is gone": {change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour) }, writes: 1},
		"when LINSTOR no longer lists its cause": {
			change: func(s *steps) { s.tainted(hard, "pvc-gone", time.Hour) }, writes: 1,
		},
		"not while a volume is being moved off the node": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.setMark("begun") }, effect: hard, marked: true,
		},
		"nor while its attachment there is being deleted": {
			change: func(s *steps) {
				s.tainted(hard, "pvc-db", time.Hour)
				va := s.attachment()
				va.Finalizers = []string{"external-attacher/driver"}
				s.must(s.api.Update(s.ctx, va))
				s.must(s.api.Delete(s.ctx, va))
			}, effect: hard, marked: true,
		},
		"nor while its pods are being removed, whose mark the cache does not show yet": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.r.reporter.reports.begins("db", s.in) }, effect: hard, marked: true,
		},
		"when it expires all the same": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", -time.Second); s.setMark("begun") }, writes: 1,
		},
		"not where somebody else has set it": {
			change: func(s *steps) {
				node := s.node()
				setTaint(node, hard)
				s.must(s.api.Update(s.ctx, node))
			}, effect: hard,
		},
		"when Kubernetes has taken over, but for the mark": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.setMark("begun"); byKubernetes(s) }, marked: true, writes: 1,
		},
		"and nothing is written while Kubernetes keeps pods away": {
			change: func(s *steps) { s.tainted("", "pvc-db", time.Hour); s.setMark("begun"); byKubernetes(s) }, marked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSteps(t)
			tc.change(s)
			writes := s.nodeRequests(apimodel.VerbPatch)
			s.taints.linstor, s.taints.keepAway.inputs.Linstor = lists{resource: "pvc-db"}, lists{resource: "pvc-db"}
			if _, err := s.taints.Reconcile(s.ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: nodeA}}); err != nil {
				t.Fatal(err)
			}
			if _, marked := markOf(s.node()); s.effect() != tc.effect || marked != tc.marked || *writes != tc.writes {
				t.Errorf("the effect is %q, marked %t, %d writes, want %q, %t, %d", s.effect(), marked, *writes, tc.effect, tc.marked, tc.writes)
			}
		})
	}
}

// The list of taints is written as a whole: a taint that somebody else sets meanwhile must not go with it.
func TestATaintThatComesMeanwhileStays(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.r.keepAway.inputs.Linstor = wellOn{}
	done := false
	s.model.Fail(func(r apimodel.Request) error {
		if r.Actor != "test" && r.Kind == "Node" && r.Verb == apimodel.VerbPatch && !done {
			done = true
			node := s.node()
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoExecute})
			s.must(s.api.Update(s.ctx, node))
		}
		return nil
	})
	s.ensure("pvc-db", s.d.State, 0)
	if node := s.node(); !cluster.HasTaint(node, "theirs", "") || !cluster.HasTaint(node, cluster.TaintLostQuorum, "") {
		t.Errorf("taints: %v", node.Spec.Taints)
	}
}

func TestWhichChangesOfANodeAreLookedAt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"its status":              {func(n *corev1.Node) { n.Status.VolumesInUse = nil }, false},
		"its labels":              {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false},
		"its taints":              {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "other"}) }, true},
		"the effect of our taint": {func(n *corev1.Node) { n.Spec.Taints[0].Effect = corev1.TaintEffectPreferNoSchedule }, true},
		"the mark of its taint":   {func(n *corev1.Node) { n.Annotations[cluster.AnnotationKeepAway] = "{}" }, true},
		"its taints, where none is ours": {
			func(n *corev1.Node) { n.Annotations, n.Spec.Taints = nil, nil }, false,
		},
	} {
		node := &corev1.Node{}
		node.Annotations = map[string]string{cluster.AnnotationKeepAway: "{\"reason\":\"QuorumLost\"}"}
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{"a"}
		setTaint(node, corev1.TaintEffectNoSchedule)
		after := node.DeepCopy()
		tc.change(after)
		if got := concernsTaint(node, after); got != tc.want {
			t.Errorf("%s: looked at: %t", name, got)
		}
	}
}
