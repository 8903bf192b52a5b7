package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// steps is one pod with a volume that is attached to A, and the reconciler whose steps are taken one by one. in and d
// are what was decided on them.
type steps struct {
	*testing.T
	ctx      context.Context //nolint:containedctx // of the test
	api      client.Client
	model    *apimodel.Model
	view     *apimodel.View
	r        *NodeReconciler
	taints   *taints
	state    *nodeState
	leaves   *EvacuationReconciler
	linstors *Recovery
	events   *eventLog
	pv       *corev1.PersistentVolume
	in       failover.Input
	d        failover.Decision
	// unlisted is set where LINSTOR does not know A any more, unheard where it does not hear it, away where it cannot be asked.
	unlisted, unheard, away bool
	// closed is set where A may not be promoted by what LINSTOR said last.
	closed bool
}

// newSteps returns the steps, in a bubble of synctest: however busy the machine is, nothing becomes old that a test does not let become old.
func newSteps(t *testing.T) *steps {
	t.Helper()
	s := &steps{T: t, ctx: ctrl.LoggerInto(t.Context(), logr.Discard()), model: apimodel.New(), events: &eventLog{}}
	s.api = s.model.Client("test")
	cfg := defaults()
	cfg.Metrics = metrics.New()
	view := s.model.View(0, func(client.Object) bool { return true })
	s.view = view
	s.must(cluster.AddIndexes(s.ctx, view, cfg.Driver))
	controller := s.model.Client(controllerActor + "one")
	cfg.Recorder = s.events
	parts := assemble(cfg, cluster.NewKubelets(cfg.Clock, cfg.Driver, nil), nil, controller, view, controller)
	s.must(parts.agents.look(s.ctx))
	s.r, s.taints, s.leaves, s.linstors = parts.node, parts.node.taints, parts.evacuation, parts.recovery
	s.state, s.taints.inputs.Linstor, s.r.halt.linstor = s.r.stateOf(nodeA), wellOn{}, noLinstor{}

	s.pv = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	s.pv.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-db")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db"}}
	claim.Spec.VolumeName = "db"
	s.must(s.api.Create(s.ctx, claim))
	bind(s.pv, "default", "data-db")
	s.pv.Spec.ClaimRef.UID = claim.UID
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0"}}
	pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db"}}
	va.Spec.Attacher, va.Spec.NodeName, va.Spec.Source.PersistentVolumeName = virtual.Driver, nodeA, &s.pv.Name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeA}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{inUseName("pvc-db"), inUseName("pvc-other")}
	for _, o := range []client.Object{s.pv, pod, va, node} {
		s.must(s.api.Create(s.ctx, o))
	}
	s.d = failover.Decision{Verdict: failover.Lost, Reason: failover.NodeUnreachable, State: failover.Unreachable, Message: "gone"}
	s.in = failover.Input{
		Now: time.Now(), Settings: cfg.Settings, Volume: failover.Volume{Name: "db"}, Node: failover.Node{Name: nodeA},
		Pods:       []failover.Pod{{Namespace: "default", Name: "db-0", UID: pod.UID}},
		Attachment: &failover.Attachment{Name: "csi-db", UID: va.UID, Attached: true},
	}
	return s
}

func (s *steps) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// volume is what a round knows of it.
func (s *steps) volume() *volume {
	attachments, err := s.r.attachments.Of(s.ctx, s.pv.Name)
	s.must(err)
	v := &volume{
		pv: s.pv, attachments: attachments, state: s.state.volume("db"), in: s.in, d: s.d, resources: []string{"pvc-db"}, listed: time.Now(),
	}
	if pod := s.pod(); pod != nil {
		v.live = []corev1.Pod{*pod}
	}
	return v
}

// tryRemove deletes the pod.
func (s *steps) tryRemove(how failover.Removal) error {
	s.Helper()
	v := s.volume()
	facts := s.in.Pods[0]
	pod := &v.live[0]
	pod.UID = facts.UID
	d := deletion{PodRemoval: failover.PodRemoval{Pod: facts, Volumes: []int{0}, How: how}, by: v, users: []*volume{v}, pod: pod}
	if how == failover.RemoveGracefully {
		d.grace = 10
	}
	due := s.r.setDisrupted(s.ctx, s.state, []deletion{d})
	if len(due) == 0 {
		return nil
	}
	deleted, err := s.r.deletePod(s.ctx, due[0])
	switch {
	case deleted:
		s.r.reporter.podDeleted(s.ctx, due[0])
	case due[0].conditionSet:
		s.r.takeBackDisrupted(s.ctx, []*corev1.Pod{due[0].pod})
	}
	return err
}

func (s *steps) remove(how failover.Removal) {
	s.Helper()
	s.must(s.tryRemove(how))
}

// tryMark annotates the attachment.
func (s *steps) tryMark() error {
	s.Helper()
	return s.r.annotateOne(s.ctx, s.volume())
}

// unmark takes the annotation off if nothing is lost any more.
func (s *steps) unmark() {
	s.Helper()
	s.r.takeBackAnnotations(s.ctx, s.state, []*volume{s.volume()})
}

// exists reads an object, and tells whether it is there.
func (s *steps) exists(o client.Object, name string) bool {
	s.Helper()
	key := client.ObjectKey{Name: name}
	if _, ok := o.(*corev1.Pod); ok {
		key.Namespace = "default"
	}
	err := s.api.Get(s.ctx, key, o)
	s.must(client.IgnoreNotFound(err))
	return err == nil
}

func (s *steps) pod() *corev1.Pod {
	s.Helper()
	var pod corev1.Pod
	if !s.exists(&pod, "db-0") {
		return nil
	}
	return &pod
}

func (s *steps) attachment() *storagev1.VolumeAttachment {
	s.Helper()
	var va storagev1.VolumeAttachment
	if !s.exists(&va, "csi-db") {
		return nil
	}
	return &va
}

func (s *steps) marked() string { return s.attachment().Annotations[cluster.AnnotationFailOver] }

// setMark lets a fail-over have begun.
func (s *steps) setMark(mark string) {
	s.Helper()
	va := s.attachment()
	va.Annotations = map[string]string{cluster.AnnotationFailOver: mark}
	s.must(s.api.Update(s.ctx, va))
	s.in.Attachment.Marked, s.in.Attachment.Noted = true, true
}

// withoutPod lets the pod be gone.
func (s *steps) withoutPod() {
	s.Helper()
	s.must(s.api.Delete(s.ctx, s.pod(), client.GracePeriodSeconds(0)))
	s.in.Pods = nil
}

func (s *steps) released() bool {
	s.Helper()
	var node corev1.Node
	s.exists(&node, nodeA)
	return cmp.Equal(node.Status.VolumesInUse, []corev1.UniqueVolumeName{inUseName("pvc-other")})
}

const earlier = types.UID("the object of that name before this one")

// A step is for the object that was decided about, and never for the next one of its name.
func TestNoStepIsForAnotherObjectOfThatName(t *testing.T) {
	t.Parallel()
	t.Run("the removal of a pod", func(t *testing.T) {
		t.Parallel()
		for _, how := range []failover.Removal{failover.RemoveForce, failover.RemoveGracefully} {
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.in.Pods[0].UID = earlier
				s.remove(how)
				pod := s.pod()
				if pod == nil || pod.DeletionTimestamp != nil || len(pod.Status.Conditions) > 0 || pod.Status.Phase == corev1.PodFailed {
					t.Errorf("%s has touched the pod", how)
				}
				if got := s.events.reasons("Pod", "db-0"); len(got) > 0 {
					t.Errorf("%s is told of a pod that was not removed: %v", how, got)
				}
			})
		}
	})
	t.Run("the mark of an attachment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.in.Attachment.UID = earlier
			if err := s.tryMark(); err == nil {
				t.Error("who marks is not told that it did not happen")
			}
			if s.marked() != "" {
				t.Error("another attachment is marked")
			}
		})
	})
	t.Run("the end of a mark", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.setMark("theirs")
			s.in.Attachment.UID, s.in.Attachment.Noted, s.d.Verdict = earlier, true, failover.NotLost
			s.unmark()
			if s.marked() != "theirs" {
				t.Error("the mark of another attachment is gone")
			}
		})
	})
	t.Run("the deletion of an attachment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.in.Attachment.UID = earlier
			if done, err := s.r.deleteAttachment(s.ctx, s.state, s.volume()); done != "" || err != nil || s.attachment() == nil {
				t.Errorf("another attachment is gone: %q, %v", done, err)
			}
		})
	})
}

// Force asks nobody. A pod whose object outlives that is said to have ended; otherwise the kubelet has its time and says so itself.
func TestHowAPodIsRemoved(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		how        failover.Removal
		finalizers bool
		grace      int64
		phase      corev1.PodPhase
		condition  bool
	}{
		"by force":                           {failover.RemoveForce, false, 0, "", false},
		"by force, where finalizers keep it": {failover.RemoveForce, true, 0, corev1.PodFailed, true},
		"in peace":                           {failover.RemoveGracefully, true, 10, corev1.PodPending, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				var deleted []apimodel.Change
				s.model.OnChange(func(c apimodel.Change) {
					if c.Verb == apimodel.VerbDelete && c.Kind == "Pod" {
						deleted = append(deleted, c)
					}
				})
				if s.in.Pods[0].Finalizers = tc.finalizers; tc.finalizers {
					pod := s.pod()
					pod.Finalizers = []string{"example.com/held"}
					s.must(s.api.Update(s.ctx, pod))
				}
				s.remove(tc.how)
				if len(deleted) != 1 {
					t.Fatalf("deleted: %+v", deleted)
				}
				if grace := deleted[0].GracePeriodSeconds; grace == nil || *grace != tc.grace {
					t.Errorf("the grace is %v, want %d", grace, tc.grace)
				}
				pod := s.pod()
				if pod == nil && tc.finalizers || pod != nil && (pod.Status.Phase != tc.phase || cluster.Disrupted(pod) != tc.condition) {
					t.Errorf("%+v; want the phase %s", pod, tc.phase)
				}
				if !s.events.has(EventForceDeleted, "Pod", "db-0") {
					t.Error("nobody is told")
				}
			})
		})
	}
}

// What has changed since the live list is left to the next reconcile. A rejected deletion leaves no condition behind.
func TestAPodThatHasChangedSinceStays(t *testing.T) {
	t.Parallel()
	for _, how := range []failover.Removal{failover.RemoveForce, failover.RemoveGracefully} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			v := s.volume()
			pod := s.pod()
			pod.Labels = map[string]string{"new": "label"}
			s.must(s.api.Update(s.ctx, pod))
			d := deletion{PodRemoval: failover.PodRemoval{Pod: s.in.Pods[0], How: how}, by: v, users: []*volume{v}, pod: &v.live[0]}
			deleted := false
			if due := s.r.setDisrupted(s.ctx, s.state, []deletion{d}); len(due) > 0 {
				var err error
				deleted, err = s.r.deletePod(s.ctx, due[0])
				s.must(err)
			}
			if deleted || s.pod() == nil || cluster.Disrupted(s.pod()) {
				t.Errorf("%s: deleted %t, %+v", how, deleted, s.pod())
			}
		})
	}
}

func TestARemovalThatFailsIsTold(t *testing.T) {
	t.Parallel()
	for _, how := range []failover.Removal{failover.RemoveForce, failover.RemoveGracefully} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.model.Fail(func(r apimodel.Request) error {
				if r.Verb == apimodel.VerbDelete {
					return errors.New("no")
				}
				return nil
			})
			if err := s.tryRemove(how); err == nil || s.events.has(EventForceDeleted, "Pod", "db-0") || cluster.Disrupted(s.pod()) {
				t.Errorf("%s: %v, events %v, %+v", how, err, s.events.reasons("Pod", "db-0"), s.pod().Status)
			}
		})
	}
}

func TestWhenAMarkEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		stays  bool
	}{
		"when nothing is lost any more":    {func(*steps) {}, false},
		"not while something is lost":      {func(s *steps) { s.d.Verdict = failover.Blocked }, true},
		"not while that is not known":      {func(s *steps) { s.d.Verdict = failover.Undecided }, true},
		"not while nobody uses the volume": {func(s *steps) { s.in.Pods = nil }, true},
		"not while a pod is on its way out": {func(s *steps) {
			s.in.Pods = append(s.in.Pods, failover.Pod{Terminating: true})
		}, true},
		"not while the attachment is being deleted": {func(s *steps) { s.in.Attachment.Deleting = true }, true},
		"not where there is none":                   {func(s *steps) { s.in.Attachment.Noted = false }, true},
		"not where there is no attachment":          {func(s *steps) { s.in.Attachment = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.setMark("begun")
				s.d.Verdict = failover.NotLost
				tc.change(s)
				s.unmark()
				if stays := s.marked() != ""; stays != tc.stays {
					t.Errorf("the mark stays: %t, want %t", stays, tc.stays)
				}
			})
		})
	}
}
