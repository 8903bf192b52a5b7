package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// lostOnA is a LINSTOR that has not reached A for a minute, while B and T are well and do not see A.
type lostOnA struct{ noLinstor }

func (lostOnA) Keep(string, time.Time) {}
func (lostOnA) Poll(string)            {}
func (lostOnA) Status() linstor.Status {
	return linstor.Status{Connected: true, Synced: true, LastConfirmed: time.Now()}
}
func (lostOnA) Node(name string) (linstor.Node, bool) { return linstor.Node{Name: name}, true }

func (lostOnA) Resource(name string) (linstor.Resource, bool) {
	now := time.Now()
	since := now.Add(-time.Minute)
	fact := func(value bool) linstor.Fact[bool] {
		return linstor.Fact[bool]{Value: value, Known: true, Since: since, Confirmed: now}
	}
	peer := func(node string, diskless bool) linstor.Replica {
		return linstor.Replica{
			Node: node, Diskless: diskless, Online: fact(true), Reports: fact(true), MayPromote: fact(!diskless), InUse: fact(false),
			Connections: map[string]linstor.Fact[bool]{nodeA: fact(false)}, Confirmed: true,
		}
	}
	return linstor.Resource{
		Name: name, Known: true, Confirmed: now, SetSince: since, DRBD: true, Volumes: 1, Quorum: "majority",
		Replicas: []linstor.Replica{
			{Node: nodeA, Online: fact(false), Reports: fact(false), Confirmed: true}, peer(nodeB, false), peer(nodeT, true),
		},
	}, true
}

func (l lostOnA) Refresh(_ context.Context, name string, _ time.Duration) (linstor.Resource, error) {
	r, _ := l.Resource(name)
	return r, nil
}

// newLost returns steps of which the volume is lost, for long enough.
func newLost(t *testing.T) *steps {
	t.Helper()
	s := newSteps(t)
	l := lostOnA{}
	s.r.linstor, s.r.inputs.Linstor, s.taints.linstor, s.taints.inputs.Linstor, s.r.reporter.linstor = l, l, l, l, l
	s.r.halt.linstor = wellAll{l}
	pod := s.pod()
	pod.Labels, pod.Status.Phase = selected, corev1.PodRunning
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}}
	s.must(s.api.Update(s.ctx, pod))
	s.in.Pods[0].Selected, s.in.Pods[0].Owned, s.in.Pods[0].HasRun = true, true, true
	s.in.Resource.Name = "pvc-db"
	<-time.After(10 * time.Second)
	return s
}

// wellAll is lostOnA for the guard, which sees no suspect view in one node of three.
type wellAll struct{ lostOnA }

func (wellAll) Nodes() []linstor.Node {
	var nodes []linstor.Node
	for _, name := range []string{nodeA, nodeB, nodeT} {
		nodes = append(nodes, linstor.Node{Name: name, Satellite: true, Online: linstor.Fact[bool]{Known: true, Value: name != nodeA, Confirmed: time.Now()}})
	}
	return nodes
}

// lost is the volume as it is lost now.
func (s *steps) lost() *volume {
	s.Helper()
	v := s.volume()
	if _, plan := s.r.decideAgain(s.ctx, s.state, []*volume{v}); plan.Volumes[0].Verdict != failover.Lost {
		s.Fatalf("the volume should be lost: %+v", plan.Volumes[0].Decision)
	}
	return v
}

// confirmed has the pods of a volume as those with confirmed claims.
func confirmed(v *volume) map[types.UID]bool {
	pods := make(map[types.UID]bool)
	for i := range v.live {
		pods[v.live[i].UID] = true
	}
	return pods
}

func TestDetaching(t *testing.T) {
	t.Parallel()
	comes := func(s *steps) {
		s.model.Fail(func(r apimodel.Request) error {
			if r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
				s.add("db-1", nodeA)
			}
			return nil
		})
	}
	for name, tc := range map[string]struct {
		change             func(*steps)
		attached, released bool
	}{
		"takes the volume off the node":                           {func(*steps) {}, false, true},
		"leaves the node's list alone where that is switched off": {func(s *steps) { s.r.fastDetach = false }, false, false},
		"leaves an attachment alone that is being deleted":        {func(s *steps) { s.in.Attachment.Deleting = true }, true, true},
		"keeps the attachment under a pod that comes meanwhile":   {comes, true, true},
		"keeps it while the pods cannot be listed":                {func(s *steps) { s.r.live.Reader = noPodLists{s.r.live.Reader} }, true, true},
		"keeps it where the API rejects that": {func(s *steps) {
			s.model.Fail(func(r apimodel.Request) error {
				if r.Verb == apimodel.VerbDelete {
					return errors.New("no")
				}
				return nil
			})
		}, true, true},
		"does nothing for another attachment of that name": {func(s *steps) { s.in.Attachment.UID = earlier }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newLost(t)
				s.setMark("begun")
				s.withoutPod()
				tc.change(s)
				s.r.detach(s.ctx, s.state, []*volume{s.lost()}, nodeRead(t, s.model, nodeA))
				if attached := s.attachment() != nil; attached != tc.attached || s.released() != tc.released {
					t.Errorf("attached %t, released %t, want %t and %t", attached, s.released(), tc.attached, tc.released)
				}
			})
		})
	}
}

// noPodLists is an API by which no pods can be listed.
type noPodLists struct{ client.Reader }

func (f noPodLists) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return errors.New("no")
	}
	return f.Reader.List(ctx, list, options...)
}

// Nothing follows a step that could not be taken.
func TestAPodStaysWhereAStepBeforeHasFailed(t *testing.T) {
	t.Parallel()
	fails := func(verb apimodel.Verb, kind string) func(*steps) {
		return func(s *steps) {
			s.model.Fail(func(r apimodel.Request) error {
				if r.Actor != "test" && r.Verb == verb && r.Kind == kind {
					return errors.New("no")
				}
				return nil
			})
		}
	}
	for name, tc := range map[string]struct {
		change func(*steps)
		gone   bool
	}{
		"none has failed":                 {func(*steps) {}, true},
		"the taint":                       {fails(apimodel.VerbPatch, "Node"), false},
		"the annotation":                  {fails(apimodel.VerbPatch, "VolumeAttachment"), false},
		"the deletion":                    {fails(apimodel.VerbDelete, "Pod"), false},
		"the attachment has been deleted": {func(s *steps) { s.must(s.api.Delete(s.ctx, s.attachment())) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newLost(t)
				v := s.lost()
				tc.change(s)
				s.r.write(s.ctx, s.state, []*volume{v}, liveReads{nodeRead(t, s.model, nodeA), confirmed(v)})
				pod := s.pod()
				if gone := pod == nil || pod.DeletionTimestamp != nil; gone != tc.gone {
					t.Errorf("the pod is gone: %t, want %t (%v, %+v)", gone, tc.gone, v.err, v.d)
				}
			})
		})
	}
}

// An annotation tells a later leader to detach the volume: a pod of two volumes of which one has none would leave that one behind.
func TestAPodGoesOnlyWhenAllItsLostVolumesAreAnnotated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLost(t)
		annotated, not := s.lost(), s.lost()
		noted := *annotated.in.Attachment
		noted.Noted = true
		annotated.in.Attachment = &noted
		not.err = errors.New("no answer")
		both := []*volume{annotated, not}
		s.r.deletePods(s.ctx, s.state, removal{both, both, confirmed(annotated)})
		if pod := s.pod(); pod == nil || pod.DeletionTimestamp != nil {
			t.Error("the pod is gone, and one of its volumes has no annotation")
		}
	})
}

// The annotation may not have reached the cache when the pod has left it, and nothing else tells that a fail-over has begun.
func TestAFailOverHasBegunOnceADeletionMayHaveHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLost(t)
		v := s.lost()
		s.view.Pause()
		s.r.client = unansweredDeletions{s.r.client}
		s.r.write(s.ctx, s.state, []*volume{v}, liveReads{nodeRead(t, s.model, nodeA), confirmed(v)})
		if pod := s.pod(); v.err == nil || pod != nil && pod.DeletionTimestamp == nil {
			t.Fatalf("the pod should be deleted, and nobody know of it: %v", v.err)
		}
		if v.state.progress.begun != s.attachment().UID {
			t.Error("nobody would detach the volume")
		}
	})
}

// unansweredDeletions is a client whose deletions happen and are not answered.
type unansweredDeletions struct{ client.Client }

func (c unansweredDeletions) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return errors.Join(errors.New("the connection is gone"), c.Client.Delete(ctx, o, opts...))
}
