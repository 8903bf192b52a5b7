package controllers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
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
	r        *FailoverReconciler
	decide   *VolumeReconciler
	taints   *KeepAwayReconciler
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
	parts := assemble(cfg, cluster.NewKubelets(cfg.Clock, cfg.Driver, nil), controller, view, controller)
	s.must(parts.agents.look(s.ctx))
	s.r, s.decide, s.taints, s.leaves, s.linstors = parts.failover, parts.volume, parts.keepAway, parts.evacuation, parts.recovery

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
		Now: time.Now(), Asked: time.Now(), Settings: cfg.Settings, Volume: failover.Volume{Name: "db"}, Node: failover.Node{Name: nodeA},
		Pods:       []failover.Pod{{Namespace: "default", Name: "db-0", UID: pod.UID, Created: time.Now()}},
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
	return &volume{pv: s.pv, in: s.in, d: s.d, resources: []string{"pvc-db"}}
}

// failureOf is why a step could not be taken.
func failureOf(v *volume) error {
	if v.late {
		return sendby.ErrLate
	}
	return v.err
}

// tryRemove removes the pod.
func (s *steps) tryRemove(how failover.Removal) error {
	s.Helper()
	v := s.volume()
	s.r.removeAll(s.ctx, []*volume{v}, []failover.PodRemoval{{Pod: s.in.Pods[0], Volumes: []int{0}, How: how}})
	return failureOf(v)
}

func (s *steps) remove(how failover.Removal) {
	s.Helper()
	s.must(s.tryRemove(how))
}

// tryMark marks the attachment.
func (s *steps) tryMark() error {
	s.Helper()
	v := s.volume()
	s.r.markAll(s.ctx, []*volume{v})
	s.in = v.in
	return failureOf(v)
}

func (s *steps) mark() {
	s.Helper()
	s.must(s.tryMark())
}

// tryDetach takes the volume off the node.
func (s *steps) tryDetach() error {
	s.Helper()
	v := s.volume()
	s.r.detachAll(s.ctx, nodeA, []*volume{v})
	return failureOf(v)
}

func (s *steps) detach() {
	s.Helper()
	s.must(s.tryDetach())
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
			s.must(s.decide.unmark(s.ctx, s.pv, s.in, s.d))
			if s.marked() != "theirs" {
				t.Error("the mark of another attachment is gone")
			}
		})
	})
	t.Run("the deletion of an attachment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.withoutPod()
			s.in.Attachment.UID = earlier
			s.detach()
			if s.attachment() == nil {
				t.Error("another attachment is gone")
			}
			if got := s.events.reasons("VolumeAttachment", "csi-db"); len(got) > 0 {
				t.Errorf("told of an attachment that was not deleted: %v", got)
			}
		})
	})
}

// writer is a client that notes by which context an object, or its status, was changed last.
type writer struct {
	client.Client
	by context.Context //nolint:containedctx // what is tested
}

func (c *writer) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.by = ctx
	return c.Client.Delete(ctx, o, opts...)
}

func (c *writer) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.by = ctx
	return c.Client.Patch(ctx, o, patch, opts...)
}

func (c *writer) Status() client.SubResourceWriter { return statusWriter{c.Client.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter
	of *writer
}

func (s statusWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	s.of.by = ctx
	return s.SubResourceWriter.Patch(ctx, o, patch, opts...)
}

// sent is the error of sending a request now.
func (c *writer) sent() error {
	resp, err := sendby.Transport(answers{httptest.NewRecorder()}).RoundTrip(httptest.NewRequestWithContext(c.by, http.MethodPut, "/", nil))
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// answers is a server that is reached without a network.
type answers struct{ *httptest.ResponseRecorder }

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a.Result(), nil }

// client-go sends what was rejected again by itself.
func TestAWriteIsSentOnlyWhileItsReadingCounts(t *testing.T) {
	for name, play := range map[string]func(*steps){
		"the mark of an attachment": (*steps).mark,
		"the end of a mark": func(s *steps) {
			s.decide.client = s.r.client
			s.setMark("begun")
			s.in.Attachment.Noted, s.d.Verdict = true, failover.NotLost
			s.must(s.decide.unmark(s.ctx, s.pv, s.in, s.d))
		},
		"the deletion of a pod": func(s *steps) { s.remove(failover.RemoveForce) },
		"the deletion of an attachment": func(s *steps) {
			s.withoutPod()
			s.detach()
		},
		"the release of a volume": func(s *steps) {
			inUse := &volumesInUse{client: s.r.client, live: s.api}
			_, err := inUse.release(s.ctx, nodeA, virtual.Driver, []string{"pvc-db"}, time.Now().Add(failover.MaxAge))
			s.must(err)
		},
		"the deletion of a pod of LINSTOR's": func(s *steps) {
			s.linstors.client = s.r.client
			_, err := s.linstors.remove(s.ctx, s.pod(), s.d, s.linstors.clock.Now().Add(failover.MaxAge), lostWithNode)
			s.must(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				c := &writer{Client: s.r.client}
				s.r.client = c
				play(s)
				if c.by == nil {
					t.Fatal("nothing was written")
				}
				if err := c.sent(); err != nil {
					t.Errorf("while it counts: %v", err)
				}
				<-time.After(failover.MaxAge + time.Millisecond)
				if err := c.sent(); !errors.Is(err, sendby.ErrLate) {
					t.Errorf("when it is old: %v", err)
				}
			})
		})
	}
}

// unanswered is a client that never learns what has become of its deletions.
type unanswered struct{ client.Client }

func (c unanswered) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return errors.Join(errors.New("the connection is gone"), c.Client.Delete(ctx, o, opts...))
}

// The mark may not have reached the cache when the pod has left it, and nothing else tells that a fail-over has begun.
func TestAFailOverHasBegunOnceADeletionMayHaveHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.gather.inputs.Linstor = noLinstor{}
		s.r.client = unanswered{s.r.client}
		if err := s.tryRemove(failover.RemoveForce); err == nil || s.pod() != nil {
			t.Fatalf("the pod should be gone, and nobody know of it: %v", err)
		}
		synctest.Wait()
		in, _, err := s.r.gather.inputs.On(s.ctx, s.pv, nodeA)
		s.must(err)
		if len(in.Pods) > 0 || in.Attachment == nil || !in.Attachment.Marked || in.Attachment.Noted {
			t.Errorf("nobody would detach the volume: %+v, pods %v", in.Attachment, in.Pods)
		}
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
		"by force":                           {failover.RemoveForce, false, 0, corev1.PodPending, false},
		"by force, where finalizers keep it": {failover.RemoveForce, true, 0, corev1.PodFailed, true},
		"in peace":                           {failover.RemoveGracefully, false, 10, corev1.PodPending, true},
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
				s.in.Pods[0].Finalizers = tc.finalizers
				s.remove(tc.how)
				if len(deleted) != 1 {
					t.Fatalf("deleted: %+v", deleted)
				}
				pod := deleted[0].Old.(*corev1.Pod)
				if grace := deleted[0].GracePeriodSeconds; grace == nil || *grace != tc.grace || pod.Status.Phase != tc.phase || disrupted(pod) != tc.condition {
					t.Errorf("phase %s, conditions %+v; want the grace %d and the phase %s", pod.Status.Phase, pod.Status.Conditions, tc.grace, tc.phase)
				}
				if !s.events.has(EventForceDeleted, "Pod", "db-0") {
					t.Error("nobody is told")
				}
			})
		})
	}
}

// A pod may go by itself between the two writes of a removal. It was ours only if we had ended it.
func TestAPodThatIsGoneBeforeItsDeletion(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		for how, told := range map[failover.Removal]bool{failover.RemoveForce: true, failover.RemoveGracefully: false} {
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.model.Fail(func(r apimodel.Request) error {
					if r.Verb == apimodel.VerbDelete && r.Kind == "Pod" && r.Actor != "test" {
						next := s.pod()
						s.must(s.api.Delete(s.ctx, s.pod(), client.GracePeriodSeconds(0)))
						if replaced {
							next.UID, next.ResourceVersion = "", ""
							s.must(s.api.Create(s.ctx, next))
						}
					}
					return nil
				})
				s.in.Pods[0].Finalizers = true // so that it is ended before
				s.remove(how)
				if got := s.events.has(EventForceDeleted, "Pod", "db-0"); got != told {
					t.Errorf("%s, replaced at once: %t: told is %t, want %t", how, replaced, got, told)
				}
			})
		}
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
			if err := s.tryRemove(how); err == nil || s.events.has(EventForceDeleted, "Pod", "db-0") {
				t.Errorf("%s: %v, events %v", how, err, s.events.reasons("Pod", "db-0"))
			}
		})
	}
}

// Where each pod waited for a confirmation of its own, one that comes back to the node at once would keep the others there.
func TestAllPodsOfAVolumeGoByOneConfirmation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		second := s.pod()
		second.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "db-1"}
		s.must(s.api.Create(s.ctx, second))
		s.in.Pods = append(s.in.Pods, failover.Pod{Namespace: "default", Name: "db-1", UID: second.UID})
		v := s.volume()
		var removals []failover.PodRemoval
		for _, pod := range s.in.Pods {
			removals = append(removals, failover.PodRemoval{Pod: pod, Volumes: []int{0}, How: failover.RemoveGracefully})
		}
		if gone := s.r.removeAll(s.ctx, []*volume{v}, removals); gone || v.err != nil {
			t.Fatalf("gone %t, %v", gone, v.err)
		}
		for _, name := range []string{"db-0", "db-1"} {
			var pod corev1.Pod
			if s.exists(&pod, name) && pod.DeletionTimestamp == nil {
				t.Errorf("pod %s is left", name)
			}
		}
	})
}

// A pod is removed while another volume of the node is detached, of which the look has become old. Run with -race: neither touches what the
// other one writes.
func TestARemovalAndADetachGoOnAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.mark()
		lost, left := s.volume(), s.volume()
		left.pv = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		left.pv.Spec.PersistentVolumeSource = csi(virtual.Driver, "pvc-other")
		left.in.Pods, left.in.Asked = nil, time.Now().Add(-time.Minute)
		plan := failover.Plan{
			Volumes:  []failover.VolumePlan{{Decision: s.d, Step: failover.StepRemove}, {Decision: s.d, Step: failover.StepDetach}},
			Removals: []failover.PodRemoval{{Pod: s.in.Pods[0], Volumes: []int{0}, How: failover.RemoveForce}},
		}
		s.r.do(s.ctx, nodeA, []*volume{lost, left}, plan)
		if s.must(lost.err); s.pod() != nil {
			t.Error("the pod is left")
		}
		var node corev1.Node
		if s.exists(&node, nodeA); !left.late || !slices.Contains(node.Status.VolumesInUse, inUseName("pvc-other")) {
			t.Errorf("the other volume is released by what is old; in use are %v", node.Status.VolumesInUse)
		}
	})
}

func TestAnOldConfirmationRemovesNoMorePods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.in.Asked = time.Now().Add(-failover.MaxAge - time.Second)
		if err := s.tryRemove(failover.RemoveForce); !errors.Is(err, sendby.ErrLate) {
			t.Errorf("error: %v", err)
		}
		var pod corev1.Pod
		if !s.exists(&pod, "db-0") || pod.DeletionTimestamp != nil {
			t.Error("the pod was removed by an old confirmation")
		}
	})
}

func TestAMarkIsSetOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.mark()
		if s.marked() == "" {
			t.Fatal("the attachment is not marked")
		}
		s.setMark("the first one")
		s.mark()
		if s.marked() != "the first one" {
			t.Errorf("the mark has become %s", s.marked())
		}
		s.in.Attachment = nil
		s.mark()
	})
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
			s.in.Pods = append(s.in.Pods, failover.Pod{DeleteBy: time.Now()})
		}, true},
		"not while the attachment is being deleted": {func(s *steps) { s.in.Attachment.Deleting = true }, true},
		"not in a dry run":                          {func(s *steps) { s.decide.dryRun = true }, true},
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
				s.must(s.decide.unmark(s.ctx, s.pv, s.in, s.d))
				if stays := s.marked() != ""; stays != tc.stays {
					t.Errorf("the mark stays: %t, want %t", stays, tc.stays)
				}
			})
		})
	}
}

func TestDetaching(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change             func(*steps)
		attached, released bool
	}{
		"takes the volume off the node": {func(*steps) {}, false, true},
		"does nothing where LINSTOR was asked too long ago": {func(s *steps) {
			s.in.Asked = s.in.Asked.Add(-2 * failover.MaxAge)
		}, true, false},
		"leaves the node's list alone where that is switched off": {func(s *steps) { s.r.fastDetach = false }, false, false},
		"leaves an attachment alone that is being deleted":        {func(s *steps) { s.in.Attachment.Deleting = true }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.withoutPod()
				tc.change(s)
				if err := s.tryDetach(); err != nil && !errors.Is(err, sendby.ErrLate) {
					t.Error(err)
				}
				if attached := s.attachment() != nil; attached != tc.attached || s.released() != tc.released {
					t.Errorf("attached %t, released %t, want %t and %t", attached, s.released(), tc.attached, tc.released)
				}
			})
		})
	}
}

// Kubernetes deletes the attachment of a volume that was released, and may be quicker. The detach was ours only if we had
// released the volume.
func TestAnAttachmentThatIsGoneBeforeItsDeletion(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.withoutPod()
			s.r.fastDetach = released
			s.must(s.api.Delete(s.ctx, s.attachment()))
			s.detach()
			if got := s.events.has(EventForceDetached, "VolumeAttachment", "csi-db"); got != released {
				t.Errorf("released %t: told is %t", released, got)
			}
		})
	}
}

// A pod that comes while the volume is released keeps its attachment.
func TestAPodThatComesBetweenReleaseAndDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.withoutPod()
		s.model.Fail(func(r apimodel.Request) error {
			if r.Verb == apimodel.VerbPatch && r.Kind == "Node" {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-1"}}
				pod.Spec.NodeName, pod.Spec.Volumes = nodeA, []corev1.Volume{claimVolume("data-db", false)}
				s.must(s.api.Create(s.ctx, pod))
			}
			return nil
		})
		s.detach()
		if s.attachment() == nil {
			t.Error("the attachment is gone from under it")
		}
	})
}

// What Kubernetes does with a detached volume calls for a look each time, and there is nothing to see.
func TestADetachedVolumeIsLeftAloneForASecond(t *testing.T) {
	t.Parallel()
	pod := failover.Pod{Name: "db-1"}
	for name, tc := range map[string]struct {
		change func(*failover.Input)
		after  time.Duration
		rests  bool
	}{
		"while its attachment ends":                      {func(*failover.Input) {}, 0, true},
		"but not for longer":                             {func(*failover.Input) {}, releaseAgain, false},
		"unless there is another attachment by then":     {func(in *failover.Input) { in.Attachment = &failover.Attachment{UID: "new"} }, 0, false},
		"unless its attachment is gone":                  {func(in *failover.Input) { in.Attachment = nil }, 0, false},
		"unless there is a pod again":                    {func(in *failover.Input) { in.Pods = []failover.Pod{pod} }, 0, false},
		"unless it is another node that the question is": {func(in *failover.Input) { in.Node.Name = nodeB }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.withoutPod()
				s.detach()
				tc.change(&s.in)
				<-time.After(tc.after)
				if rest := s.r.reporter.reports.waitAfterDetach("db", s.in); rest > 0 != tc.rests {
					t.Errorf("rests for %s", rest)
				}
			})
		})
	}
}

// While the controller-manager is busy with a thousand volumes there is nothing to see of each for a while. A kubelet that
// lives may claim the volume again at any time.
func TestADetachedVolumeIsLookedAtMoreAndMoreRarelyWhereTheKubeletIsSilent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node func(*failover.Node)
		want []time.Duration
	}{
		"a silent kubelet": {
			func(n *failover.Node) { n.LeaseKnown, n.LeaseSilence = true, failover.ForceSilence },
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second},
		},
		"one that lives": {
			func(n *failover.Node) { n.LeaseKnown, n.LeaseSilence = true, failover.ForceSilence-1 },
			[]time.Duration{time.Second, time.Second, time.Second},
		},
		"one of which nothing is known": {func(*failover.Node) {}, []time.Duration{time.Second, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReports(metrics.New(), func() time.Time { return start.Time })
			in := failover.Input{Node: failover.Node{Name: nodeA}, Attachment: &failover.Attachment{UID: "one"}}
			tc.node(&in.Node)
			for i, want := range tc.want {
				r.detached("db", in)
				if got := r.waitAfterDetach("db", in); got != want {
					t.Errorf("after look %d it rests for %s, want %s", i+1, got, want)
				}
			}
			in.Attachment = &failover.Attachment{UID: "two"}
			if r.detached("db", in); r.waitAfterDetach("db", in) != retryAct {
				t.Error("what became of one attachment counts for the next")
			}
		})
	}
}

// Most kubelets that claim a volume again do so before Kubernetes has detached it, which takes a second or two.
func TestAVolumeThatWasDetachedHereIsLookedAtOftenAtFirst(t *testing.T) {
	t.Parallel()
	now := start.Time
	r := newReports(metrics.New(), func() time.Time { return now })
	in := failover.Input{Node: failover.Node{Name: nodeA}, Attachment: &failover.Attachment{UID: "one"}}
	r.left("db", in, failover.Decision{Reason: failover.NodeUnreachable})
	for after, want := range map[time.Duration]time.Duration{0: releaseAgain, releaseSoon - 1: releaseAgain, releaseSoon: retryAct} {
		now = start.Add(after)
		if r.detached("db", in); r.waitAfterDetach("db", in) != want {
			t.Errorf("after %s it rests for %s, want %s", after, r.waitAfterDetach("db", in), want)
		}
	}
	now = start.Add(lingers)
	if node, attachment := r.lingering("db"); node != nodeA || attachment == nil || !attachment.Deleting || !attachment.Marked {
		t.Errorf("for a minute it lingers on %q as %+v", node, attachment)
	}
	now = now.Add(1)
	if _, attachment := r.lingering("db"); attachment != nil {
		t.Error("it lingers for longer than a minute")
	}
}

// What is done about a volume without an attachment is another question.
func TestNoPodIsRemovedByAnAttachmentThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.must(s.api.Delete(s.ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-db"}}))
		if err := s.tryMark(); !errors.Is(err, sendby.ErrLate) {
			t.Errorf("error %v; want another look", err)
		}
		s.must(s.api.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "db-0"}, &corev1.Pod{}))
	})
}
