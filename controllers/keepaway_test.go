package controllers

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// wellOn is a LINSTOR whose every resource is Primary on A and well.
type wellOn struct{ noLinstor }

func (wellOn) Resource(name string) (linstor.Resource, bool) {
	now := time.Now()
	return linstor.Resource{Name: name, Known: true, DRBD: true, Volumes: 1, Confirmed: now, Replicas: []linstor.Replica{{
		Node: nodeA, Online: linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		Reports: linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		InUse:   linstor.Fact[bool]{Value: true, Known: true, Confirmed: now},
		Score:   linstor.Fact[int]{Value: 10102, Known: true, Confirmed: now},
	}}}, true
}

// nodeRequests counts what the controller asks of nodes.
func (s *steps) nodeRequests(verb apimodel.Verb) *int {
	n := new(int)
	s.model.Fail(func(r apimodel.Request) error {
		if r.Actor != "test" && r.Kind == "Node" && r.Verb == verb {
			*n++
		}
		return nil
	})
	return n
}

func (s *steps) node() *corev1.Node {
	s.Helper()
	var node corev1.Node
	if !s.exists(&node, nodeA) {
		s.Fatal("the node is gone")
	}
	return &node
}

func (s *steps) effect() corev1.TaintEffect {
	s.Helper()
	for _, taint := range s.node().Spec.Taints {
		if taint.Key == cluster.TaintLostQuorum {
			return taint.Effect
		}
	}
	return ""
}

// otherVolume adds a volume that is attached to A as well.
func (s *steps) otherVolume(name, driver string) {
	s.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.PersistentVolumeSource = csi(driver, "pvc-"+name)
	s.must(s.api.Create(s.ctx, pv))
	s.attach("csi-"+name, nodeA, func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = &name })
}

// ensure keeps pods away for the loss of a resource, some time after the others.
func (s *steps) ensure(resource string, state failover.State, later time.Duration) {
	s.Helper()
	s.must(s.tryEnsure(resource, state, later))
}

func (s *steps) tryEnsure(resource string, state failover.State, later time.Duration) error {
	v := s.volume()
	v.in.Now, v.in.Resource.Name, v.d.State = v.in.Now.Add(later), resource, state
	return s.taints.keepAway(s.ctx, nodeRead(s.T, s.model, nodeA), []*volume{v})
}

func TestTheTaintHasTheEffectThatTheOtherVolumesAllow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		state  failover.State
		want   corev1.TaintEffect
	}{
		"the only volume is lost": {func(*steps) {}, failover.PrimaryWithoutQuorum, corev1.TaintEffectNoSchedule},
		"another volume is well": {
			func(s *steps) { s.otherVolume("other", virtual.Driver) }, failover.PrimaryWithoutQuorum, corev1.TaintEffectPreferNoSchedule,
		},
		"a volume of another driver is attached": {
			func(s *steps) { s.otherVolume("other", "other.example.com") }, failover.PrimaryWithoutQuorum, corev1.TaintEffectNoSchedule,
		},
		"the node is gone": {
			func(s *steps) { s.otherVolume("other", virtual.Driver) }, failover.Unreachable, corev1.TaintEffectNoSchedule,
		},
		"LINSTOR can not reach the node, and its kubelet lives": {func(s *steps) {
			s.otherVolume("other", virtual.Driver)
			s.in.Node.LeaseKnown, s.in.Node.LeaseSilence = true, failover.ForceSilence-1
		}, failover.Unreachable, corev1.TaintEffectPreferNoSchedule},
		"LINSTOR can not reach the node, and its kubelet is silent": {func(s *steps) {
			s.otherVolume("other", virtual.Driver)
			s.in.Node.LeaseKnown, s.in.Node.LeaseSilence = true, failover.ForceSilence
		}, failover.Unreachable, corev1.TaintEffectNoSchedule},
		"Kubernetes keeps pods away itself": {func(s *steps) {
			node := s.node()
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
			s.must(s.api.Update(s.ctx, node))
		}, failover.Unreachable, ""},
		"Kubernetes evicts, and most pods tolerate that for a while": {func(s *steps) {
			node := s.node()
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
			s.must(s.api.Update(s.ctx, node))
		}, failover.Unreachable, corev1.TaintEffectNoSchedule},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.change(s)
				s.ensure("pvc-db", tc.state, 0)
				if got := s.effect(); got != tc.want {
					t.Errorf("the effect is %q, want %q", got, tc.want)
				}
				if _, ours := noteOf(s.node()); !ours {
					t.Error("the node has no mark")
				}
			})
		})
	}
}

func TestATaintHasManyCausesAndOneWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.otherVolume("other", virtual.Driver)
		for _, step := range []struct {
			what     string
			resource string
			state    failover.State
			later    time.Duration
			effect   corev1.TaintEffect
		}{
			{"the first cause", "pvc-db", failover.IOErrors, 0, corev1.TaintEffectPreferNoSchedule},
			{"the same a moment later", "pvc-db", failover.IOErrors, time.Second, corev1.TaintEffectPreferNoSchedule},
			{"a harder one a moment later", "pvc-db", failover.Unreachable, time.Second, corev1.TaintEffectNoSchedule},
			{"a softer one a moment later", "pvc-db", failover.IOErrors, time.Second, corev1.TaintEffectNoSchedule},
			{"a softer one later", "pvc-two", failover.IOErrors, 4 * time.Second, corev1.TaintEffectNoSchedule},
		} {
			s.ensure(step.resource, step.state, step.later)
			if s.effect() != step.effect {
				t.Errorf("%s: the node is %q, want %q", step.what, s.effect(), step.effect)
			}
		}
		mark, _ := noteOf(s.node())
		if want := []string{"pvc-db", "pvc-two"}; !slices.Equal(mark.Resources, want) || !mark.Since.Equal(s.in.Now.UTC()) {
			t.Errorf("causes %v since %s, want %v since %s", mark.Resources, mark.Since, want, s.in.Now.UTC())
		}
		writes := s.nodeRequests(apimodel.VerbPatch)
		s.ensure("pvc-db", failover.Unreachable, time.Minute)
		if *writes != 0 {
			t.Error("the node is written although nothing has changed")
		}
		s.ensure("pvc-db", failover.Unreachable, taintExpiry)
		if *writes != 1 {
			t.Errorf("the node is written %d times when its taint is about to expire, want once", *writes)
		}
	})
}

// Of a hundred volumes that are lost at once, enough are noted by one write, and then nobody writes.
func TestManyLossesOfANodeAreNotedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		writes := s.nodeRequests(apimodel.VerbPatch)
		var lost []*volume
		for i := range 100 {
			v := s.volume()
			v.in.Resource.Name, v.d.State = fmt.Sprint("pvc-", i), failover.Unreachable
			lost = append(lost, v)
		}
		s.must(s.taints.keepAway(s.ctx, nodeRead(s.T, s.model, nodeA), lost))
		mark, _ := noteOf(s.node())
		if len(mark.Resources) != taintResources || *writes != 1 || s.effect() != corev1.TaintEffectNoSchedule {
			t.Errorf("%d causes by %d writes, taint %q; want %d by one, and NoSchedule", len(mark.Resources), *writes, s.effect(), taintResources)
		}
		s.ensure("pvc-late", failover.Unreachable, time.Minute)
		if *writes != 1 {
			t.Error("a node is written that has its taint")
		}
		s.ensure("pvc-late", failover.Unreachable, taintExpiry)
		if *writes != 2 {
			t.Errorf("a taint that is about to expire is written %d times, want once", *writes-1)
		}
	})
}

func TestMarksOfTaints(t *testing.T) {
	t.Parallel()
	expires := start.Add(taintExpiry)
	mark := func(effect corev1.TaintEffect, expires time.Time, resources ...string) taintNote {
		return taintNote{Effect: effect, Resources: resources, Expires: expires}
	}
	const hard, soft = corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule
	many := make([]string, taintResources)
	for i := range many {
		many[i] = "pvc-" + string(rune('a'+i))
	}
	for name, tc := range map[string]struct{ old, cause, want taintNote }{
		"the same cause": {mark(soft, expires, "a"), mark(soft, expires, "a"), mark(soft, expires, "a")},
		"a further one":  {mark(soft, expires, "a"), mark(soft, expires, "b"), mark(soft, expires, "a", "b")},
		"a harder one":   {mark(soft, expires, "a"), mark(hard, expires, "a"), mark(hard, expires, "a")},
		"a softer one":   {mark(hard, expires, "a"), mark(soft, expires, "a"), mark(hard, expires, "a")},
		"one too many":   {mark(soft, expires, many...), mark(soft, expires, "z"), mark(soft, expires, many...)},
		"one within the first half of the time": {
			mark(soft, expires, "a"), mark(soft, expires.Add(taintExpiry/2), "a"), mark(soft, expires, "a"),
		},
		"one within the second half of the time": {
			mark(soft, expires, "a"), mark(soft, expires.Add(taintExpiry/2+1), "a"), mark(soft, expires.Add(taintExpiry/2+1), "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.old.with(tc.cause); !got.equal(tc.want) {
				t.Errorf("with = %+v, want %+v", got, tc.want)
			}
		})
	}
	for name, other := range map[string]taintNote{
		"effect": mark(hard, expires, "a"), "expiry": mark(soft, expires.Add(1), "a"), "causes": mark(soft, expires, "b"),
	} {
		if mark(soft, expires, "a").equal(other) {
			t.Errorf("marks that differ in their %s are taken for equal", name)
		}
	}
}

// Kubernetes writes a lost node for each volume that it detaches from there.
func TestAFurtherCauseOfATaintCanWait(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{}, nodeA, errors.New("changed"))
	tainted := func(s *steps) { s.ensure("pvc-db", failover.Unreachable, 0) }
	byKubernetes := func(s *steps) {
		node := s.node()
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
		s.must(s.api.Update(s.ctx, node))
	}
	for name, tc := range map[string]struct {
		before  func(*steps)
		rejects error
		failed  bool
	}{
		"where the node is written by others": {tainted, conflict, false},
		"where Kubernetes keeps pods away by now": {
			func(s *steps) { s.tainted("", "pvc-db", time.Hour); byKubernetes(s) }, conflict, false,
		},
		"but not the first one":                           {func(*steps) {}, conflict, true},
		"not the first one while Kubernetes does it, too": {byKubernetes, conflict, true},
		"not where there is only a softer taint": {
			func(s *steps) { s.tainted(corev1.TaintEffectPreferNoSchedule, "pvc-db", time.Hour) }, conflict, true,
		},
		"and not where the taint could not be written for good": {tainted, apierrors.NewInternalError(errors.New("broken")), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.before(s)
				s.model.Fail(func(r apimodel.Request) error {
					if r.Actor != "test" && r.Kind == "Node" && r.Verb == apimodel.VerbPatch {
						return tc.rejects
					}
					return nil
				})
				if err := s.tryEnsure("pvc-other", failover.Unreachable, time.Minute); (err != nil) != tc.failed {
					t.Errorf("error: %v", err)
				}
			})
		})
	}
}
