package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// lists is a LINSTOR that can not be asked, and remembers that all nodes are ONLINE and that one resource is well on A.
type lists struct {
	wellOn
	resource string
	// unlisted is set where LINSTOR does not know the node any more.
	unlisted bool
	// unheard is set where LINSTOR does not know whether the node is ONLINE.
	unheard bool
	// closed is set where A may not be promoted, by what LINSTOR said last.
	closed bool
	// answers is set where it can be asked all the same, and has no resource.
	answers bool
}

func (l lists) Resource(name string) (linstor.Resource, bool) {
	if name != l.resource {
		return linstor.Resource{}, false
	}
	r, ok := l.wellOn.Resource(name)
	if l.closed {
		r.Replicas[0].Score.Value = 0
	}
	return r, ok
}

func (l lists) Refresh(context.Context, string, time.Duration) (linstor.Resource, error) {
	if l.answers {
		return linstor.Resource{}, linstor.ErrNotFound
	}
	return linstor.Resource{}, errors.New("no")
}

func (l lists) Node(name string) (linstor.Node, bool) {
	if l.unlisted {
		return linstor.Node{}, false
	}
	if l.unheard {
		return linstor.Node{Name: name}, true
	}
	return linstor.Node{Name: name, Online: linstor.Fact[bool]{Value: true, Known: true, Confirmed: time.Now()}}, true
}

// tainted gives A a taint of that effect, none where that is empty, and the mark of one whose causes are resources, with spaces in between.
func (s *steps) tainted(effect corev1.TaintEffect, causes string, left time.Duration) {
	s.Helper()
	mark, err := json.Marshal(taintNote{
		Effect: corev1.TaintEffectNoSchedule, Resources: strings.Fields(causes), Expires: time.Now().Add(left),
	})
	s.must(err)
	node := s.node()
	node.Annotations = map[string]string{cluster.AnnotationKeepAway: string(mark)}
	if effect != "" {
		setTaint(node, cluster.TaintLostQuorum, effect)
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
		"when its cause is gone by what LINSTOR said a moment ago, and it cannot be asked now": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.away = true }, writes: 1,
		},
		"not while its cause lasts by that": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.closed, s.away = true, true }, effect: hard, marked: true,
		},
		"when LINSTOR no longer lists its cause": {
			change: func(s *steps) { s.tainted(hard, "pvc-gone", time.Hour) }, writes: 1,
		},
		"not while a volume is being moved off the node": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", time.Hour); s.setMark("begun") }, effect: hard, marked: true,
		},
		"nor while another one is that was lost later": {
			change: func(s *steps) { s.tainted(hard, "pvc-gone", time.Hour); s.setMark("begun") }, effect: hard, marked: true,
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
		"but while one of another volume hangs in its deletion": {
			change: func(s *steps) {
				s.tainted(hard, "pvc-gone", time.Hour)
				va := s.attachment()
				va.Finalizers = []string{"external-attacher/driver"}
				s.must(s.api.Update(s.ctx, va))
				s.must(s.api.Delete(s.ctx, va))
			}, writes: 1,
		},
		"not while one of another volume is being deleted, where more causes may have been than are noted": {
			change: func(s *steps) {
				s.tainted(hard, strings.Repeat("pvc-gone ", taintResources), time.Hour)
				va := s.attachment()
				va.Finalizers = []string{"external-attacher/driver"}
				s.must(s.api.Update(s.ctx, va))
				s.must(s.api.Delete(s.ctx, va))
			}, effect: hard, marked: true,
		},
		"and while the mark of a volume is left that is gone": {
			change: func(s *steps) {
				s.tainted(hard, "pvc-db", time.Hour)
				s.setMark("begun")
				s.must(s.api.Delete(s.ctx, s.pv.DeepCopy()))
			}, writes: 1,
		},
		"nor while its pods are being removed, whose mark the cache does not show yet": {
			change: func(s *steps) {
				s.tainted(hard, "pvc-db", time.Hour)
				s.state.volume("db").progress.begun = s.in.Attachment.UID
			}, effect: hard, marked: true,
		},
		"nor when it expires meanwhile: it is renewed": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", -time.Second); s.setMark("begun") }, effect: hard, marked: true, writes: 1,
		},
		"not while LINSTOR does not list the node, but it is not renewed": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", taintExpiry/4); s.unlisted = true }, effect: hard, marked: true,
		},
		"not while LINSTOR cannot be asked, and it is renewed": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", taintExpiry/4); s.unlisted, s.away = true, true }, effect: hard, marked: true, writes: 1,
		},
		"not while LINSTOR does not list the node, where no cause is known, and it is renewed": {
			change: func(s *steps) { s.tainted(hard, "", taintExpiry/4); s.unlisted = true }, effect: hard, marked: true, writes: 1,
		},
		"when the node is well, where no cause is known": {
			change: func(s *steps) { s.tainted(hard, "", time.Hour) }, writes: 1,
		},
		"not while LINSTOR lists the node and does not hear it, and it is renewed": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", taintExpiry/4); s.unheard = true }, effect: hard, marked: true, writes: 1,
		},
		"while LINSTOR does not list the node, when it expires": {
			change: func(s *steps) { s.tainted(hard, "pvc-db", -time.Second); s.unlisted = true }, writes: 1,
		},
		"and it does not come again where taints are switched off": {
			change: func(s *steps) {
				s.tainted("", "pvc-db", time.Hour)
				s.setMark("begun")
				s.taints.disabled = true
			}, marked: true,
		},
		"not where somebody else has set it": {
			change: func(s *steps) {
				node := s.node()
				setTaint(node, cluster.TaintLostQuorum, hard)
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
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.change(s)
				writes := s.nodeRequests(apimodel.VerbPatch)
				l := lists{resource: "pvc-db", unlisted: s.unlisted, unheard: s.unheard, closed: s.closed, answers: !s.away}
				s.taints.linstor, s.taints.inputs.Linstor = l, l
				s.taints.tidy(s.ctx, nodeA, s.state)
				if _, marked := noteOf(s.node()); s.effect() != tc.effect || marked != tc.marked || *writes != tc.writes {
					t.Errorf("the effect is %q, marked %t, %d writes, want %q, %t, %d", s.effect(), marked, *writes, tc.effect, tc.marked, tc.writes)
				}
			})
		})
	}
}

// The list of taints is written as a whole: a taint that somebody else sets meanwhile must not go with it.
func TestATaintThatComesMeanwhileStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
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
	})
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
		"its boot":                {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "next" }, true},
	} {
		node := &corev1.Node{}
		node.Annotations = map[string]string{cluster.AnnotationKeepAway: "{\"reason\":\"QuorumLost\"}"}
		node.Status.VolumesInUse = []corev1.UniqueVolumeName{"a"}
		setTaint(node, cluster.TaintLostQuorum, corev1.TaintEffectNoSchedule)
		after := node.DeepCopy()
		tc.change(after)
		if got := concernsNode(event.UpdateEvent{ObjectOld: node, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: looked at: %t", name, got)
		}
	}
}

// slowly is a LINSTOR that takes its time for each resource, all of which are well.
type slowly struct {
	lists
	takes time.Duration
}

func (l slowly) Refresh(_ context.Context, name string, _ time.Duration) (linstor.Resource, error) {
	r, _ := l.wellOn.Resource(name)
	<-time.After(l.takes)
	return r, nil
}

// Each of many causes counts as it is answered, although the first is old when the last one is.
func TestATaintWithManyCausesEndsWhereLinstorIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.tainted(corev1.TaintEffectNoSchedule, "", time.Hour)
		node := s.node()
		mark, _ := noteOf(node)
		mark.Resources = nil
		for i := range taintResources {
			mark.Resources = append(mark.Resources, fmt.Sprintf("pvc-%d", i))
		}
		text, err := json.Marshal(mark)
		s.must(err)
		node.Annotations[cluster.AnnotationKeepAway] = string(text)
		s.must(s.api.Update(s.ctx, node))
		l := slowly{takes: 3 * failover.ActAge / taintResources}
		s.taints.linstor, s.taints.inputs.Linstor = l, l
		s.taints.tidy(s.ctx, nodeA, s.state)
		if _, marked := noteOf(s.node()); marked || s.effect() != "" {
			t.Errorf("the effect is %q, marked %t", s.effect(), marked)
		}
	})
}

// silently is a LINSTOR that takes questions and does not answer them.
type silently struct{ lists }

func (silently) Refresh(ctx context.Context, _ string, _ time.Duration) (linstor.Resource, error) {
	<-ctx.Done()
	return linstor.Resource{}, ctx.Err()
}

func TestATaintIsRenewedWhileLinstorDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{
		"by the shipped --operations-timeout": 30 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.tainted(corev1.TaintEffectNoSchedule, "pvc-db", taintExpiry/4)
				l := silently{lists{resource: "pvc-db", unlisted: true}}
				s.taints.linstor, s.taints.inputs.Linstor = l, l
				ctx, cancel := context.WithTimeout(s.ctx, timeout)
				defer cancel()
				s.taints.tidy(ctx, nodeA, s.state)
				if mark, marked := noteOf(s.node()); !marked || time.Until(mark.Expires) < taintExpiry/2 || s.effect() == "" {
					t.Errorf("the effect is %q, marked %t, and expires %s", s.effect(), marked, mark.Expires)
				}
			})
		})
	}
}

// Whoever takes the label off a pod ends its fail-over. The cache has no pods without it.
func TestTheMarkOfAPodThatIsNotSelectedAnyMoreGoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*steps)
		stays  bool
	}{
		"it runs on": {func(*steps) {}, false},
		"it is being deleted": {func(s *steps) {
			pod := s.pod()
			pod.Finalizers = []string{"example.com/held"}
			s.must(s.api.Update(s.ctx, pod))
			s.must(s.api.Delete(s.ctx, pod))
		}, true},
		"it has gone":                       {func(s *steps) { s.must(s.api.Delete(s.ctx, s.pod())) }, true},
		"it has ended":                      {func(s *steps) { s.podIs(corev1.PodSucceeded) }, true},
		"it runs, and nobody uses its disk": {func(s *steps) { s.d.Reason = failover.VolumeStarting }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.setMark("begun")
				s.in.Pods, s.in.Attachment.Noted = nil, true
				s.d = failover.Decision{Verdict: failover.NotLost, Reason: failover.PrimaryHealthy}
				c.change(s)
				s.unmark()
				if stays := s.marked() != ""; stays != c.stays {
					t.Errorf("the mark stays: %t, want %t", stays, c.stays)
				}
			})
		})
	}
}

// podIs gives the pod a phase.
func (s *steps) podIs(phase corev1.PodPhase) {
	s.Helper()
	pod := s.pod()
	pod.Status.Phase = phase
	s.must(s.api.Status().Update(s.ctx, pod))
}
