package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/sendby"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// unmoved is a LINSTOR that knows nothing, and of which a read changes nothing.
type unmoved struct{ noLinstor }

func (unmoved) Poll(string) {}

// A pod is told why it stays, also where its volume has no attachment.
func TestWhoIsToldAfterARound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*volume)
		told   int
	}{
		"a pod with an attachment":    {func(*volume) {}, 1},
		"a pod without an attachment": {func(v *volume) { v.in.Attachment = nil }, 1},
		"a pod that has gone":         {func(v *volume) { v.in.Pods, v.in.Attachment = nil, nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.reporter.linstor = unmoved{}
				v := s.volume()
				v.in.Pods[0].Selected = true
				v.d.Verdict, v.d.Reason = failover.Blocked, failover.Paused
				tc.change(v)
				s.r.conclude(s.ctx, nodeA, []*volume{v}, nil, roundResult{})
				if n := s.events.count(string(failover.Paused), "db-0"); n != tc.told {
					t.Errorf("the pod was told %d times, want %d", n, tc.told)
				}
			})
		})
	}
}

// A volume in hand rings no bell, so that another look must be certain.
func TestWhichVolumesStayInHandAfterARound(t *testing.T) {
	t.Parallel()
	verdict := func(verdict failover.Verdict) func(*volume) { return func(v *volume) { v.d.Verdict = verdict } }
	for name, tc := range map[string]struct {
		change func(*volume)
		want   bool
		next   time.Duration
	}{
		"one that is lost":                       {verdict(failover.Lost), true, 5 * time.Second},
		"one that is lost and that a gate holds": {verdict(failover.Blocked), true, 5 * time.Second},
		"one that is lost and whose last pod and attachment went meanwhile": {
			func(v *volume) { v.in.Pods, v.in.Attachment = nil, nil }, true, retryAct,
		},
		"one that is lost and of which a request is not answered yet": {func(v *volume) { v.waits = true }, true, retryAct},
		"one that a look has shown to be well":                        {verdict(failover.NotLost), false, 0},
		"one of which a look has shown too little":                    {verdict(failover.Undecided), false, 0},
		"one whose grace has begun anew":                              {verdict(failover.Pending), false, 5 * time.Second},
		"one of which a look has shown too little, and failed": {
			func(v *volume) { v.d.Verdict, v.err = failover.Undecided, errors.New("no answer") }, true, firstRetry,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.reporter.linstor = unmoved{}
				v := s.volume()
				tc.change(v)
				result := s.r.conclude(s.ctx, nodeA, []*volume{v}, nil, roundResult{})
				if inHand := len(s.r.bell.remembered()) > 0; inHand != tc.want {
					t.Errorf("in hand: %t, want %t", inHand, tc.want)
				}
				if next := time.Duration(result.next); next != tc.next {
					t.Errorf("looked at again after %s, want %s", next, tc.next)
				}
			})
		})
	}
}

// What is not to be removed is not marked, or a later leader would detach it.
func TestOnlyAVolumeWhoseFailOverGoesOnIsMarked(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*volume){
		"one that new pods are not kept away from": func(v *volume) { v.d.Verdict = failover.Blocked },
		"one whose step before has failed":         func(v *volume) { v.err = errUnanswered },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				v := s.volume()
				stop(v)
				s.r.markAll(s.ctx, []*volume{v})
				if s.marked() != "" {
					t.Errorf("marked: %s", s.marked())
				}
			})
		})
	}
}

// Whether an attachment has ended that was deleted is looked at soon.
func TestANodeIsLookedAtSoonAfterADetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.reporter.linstor = unmoved{}
		v := s.volume()
		v.in.Pods = nil
		s.r.reporter.reports.detached("db", v.in)
		if next := time.Duration(s.r.conclude(s.ctx, nodeA, []*volume{v}, nil, roundResult{}).next); next != retryAct {
			t.Errorf("looked at again after %s, want %s", next, retryAct)
		}
	})
}

// An affinity controller deletes PersistentVolumes and creates them anew. What was said of one is remembered meanwhile, as long as it is attached.
func TestAVolumeIsForgottenOnceNothingIsLeftOnItsNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*steps)
		known  bool
	}{
		"a pod uses it":           {func(*steps) {}, true},
		"nothing is left":         {(*steps).withoutPod, false},
		"it is about to be bound": {func(s *steps) { s.withoutPod(); s.phase(corev1.VolumePending) }, true},
		"it is about to be bound, and was detached": {func(s *steps) {
			s.withoutPod()
			s.phase(corev1.VolumePending)
			s.must(s.api.Delete(s.ctx, s.attachment()))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.change(s)
				s.in.Pods = nil
				s.r.reporter.reports.detached("db", s.in)
				s.r.forgetGone(s.ctx, "db", nodeA)
				if known := s.r.reporter.reports.waitAfterDetach("db", s.in) > 0; known != tc.known {
					t.Errorf("it is remembered: %t, want %t", known, tc.known)
				}
			})
		})
	}
}

// phase puts the PersistentVolume into a phase.
func (s *steps) phase(phase corev1.PersistentVolumePhase) {
	s.Helper()
	s.must(s.api.Get(s.ctx, client.ObjectKeyFromObject(s.pv), s.pv))
	s.pv.Status.Phase = phase
	s.must(s.api.Status().Update(s.ctx, s.pv))
}

// What is well, or of which nothing is known, is not read anew for a round.
func TestARoundLooksAtNothingThatIsNotLost(t *testing.T) {
	t.Parallel()
	for name, linstor := range map[string]Linstor{"LINSTOR says that the volume is well": wellOn{}, "LINSTOR says nothing": noLinstor{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.gather.inputs.Linstor = linstor
				lost, detaching, err := s.r.lostOn(s.ctx, nodeA)
				s.must(err)
				if len(lost)+len(detaching) > 0 {
					t.Errorf("%d volumes are lost and %d being detached, want none", len(lost), len(detaching))
				}
			})
		})
	}
}

// Another round follows at once where a write came too late, or pods should be gone.
func TestAnotherRoundFollowsAtOnce(t *testing.T) {
	t.Parallel()
	remove := func(how ...failover.Removal) func(*steps) []failover.PodRemoval {
		return func(s *steps) (removals []failover.PodRemoval) {
			for i, h := range how {
				name := fmt.Sprintf("db-%d", i)
				if i > 0 {
					s.add(name, nodeA)
				}
				var pod corev1.Pod
				s.must(s.api.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: name}, &pod))
				facts := failover.Pod{Namespace: "default", Name: name, UID: pod.UID}
				removals = append(removals, failover.PodRemoval{Pod: facts, Volumes: []int{0}, How: h})
			}
			return removals
		}
	}
	for name, tc := range map[string]struct {
		step     failover.Step
		removals func(*steps) []failover.PodRemoval
		again    bool
	}{
		"nothing is to be done":                                {"", remove(), false},
		"a detach by what is new":                              {failover.StepDetach, remove(), false},
		"a detach by what is old":                              {failover.StepDetach, func(s *steps) []failover.PodRemoval { s.age(); return nil }, true},
		"a pod is removed by force":                            {"", remove(failover.RemoveForce), true},
		"a pod is removed and has its time":                    {"", remove(failover.RemoveGracefully), false},
		"the first is removed by force, the last has its time": {"", remove(failover.RemoveForce, failover.RemoveGracefully), true},
		"the last is removed by force, the first has its time": {"", remove(failover.RemoveGracefully, failover.RemoveForce), true},
		"a pod is to be removed by force, which the API refuses": {"", func(s *steps) []failover.PodRemoval {
			s.r.client = noDeletions{s.r.client}
			return remove(failover.RemoveForce)(s)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				plan := failover.Plan{Volumes: []failover.VolumePlan{{Decision: s.d, Step: tc.step}}, Removals: tc.removals(s)}
				if tc.step == failover.StepDetach {
					s.withoutPod()
				}
				if again := s.r.do(s.ctx, nodeA, []*volume{s.volume()}, plan); again != tc.again {
					t.Errorf("another round: %t, want %t", again, tc.again)
				}
			})
		})
	}
}

// age makes what was read too old for a write.
func (s *steps) age() { s.in.Asked = s.in.Asked.Add(-failover.MaxAge - time.Second) }

// noDeletions is a client of an API that refuses deletions.
type noDeletions struct{ client.Client }

func (noDeletions) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return errors.New("refused")
}

// Of a pod with finalizers the phase is changed first. The API may take that and refuse the deletion.
func TestADeletionThatIsRefusedIsAFailure(t *testing.T) {
	t.Parallel()
	for _, finalizers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.in.Pods[0].Finalizers = finalizers
			s.r.client = noDeletions{s.r.client}
			if err := s.tryRemove(failover.RemoveForce); err == nil {
				t.Errorf("with finalizers: %t, the refusal is no failure", finalizers)
			}
		})
	}
}

// No step of a fail-over follows one that could not be taken.
func TestWhenAFailOverGoesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*volume)
		want   bool
	}{
		"as long as the volume is lost":        {func(*volume) {}, true},
		"not after a failure":                  {func(v *volume) { v.fail(errors.New("no")) }, false},
		"not after what came too late":         {func(v *volume) { v.fail(sendby.ErrLate) }, false},
		"not where the attachment is gone":     {func(v *volume) { v.fail(errGone) }, false},
		"not while a request is not answered":  {func(v *volume) { v.fail(errUnanswered) }, false},
		"not where the taint could not be set": {func(v *volume) { v.d.Verdict = failover.Blocked }, false},
	} {
		v := &volume{d: failover.Decision{Verdict: failover.Lost}}
		if tc.change(v); v.goesOn() != tc.want {
			t.Errorf("%s: goes on: %t", name, v.goesOn())
		}
	}
}

// The mark of a volume that is well is taken off, but not while a round may be about to write by what it has read.
func TestAMarkStaysWhileTheVolumeIsInHand(t *testing.T) {
	t.Parallel()
	for _, inHand := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSteps(t)
			s.decide.gather.inputs.Linstor, s.decide.client = wellOn{}, s.r.client
			s.setMark("begun")
			if inHand {
				s.r.bell.hold(nodeA, []string{"db"})
			}
			in, there, err := s.decide.gather.inputs.On(s.ctx, s.pv, nodeA)
			s.must(err)
			if d := failover.Decide(in); !there || d.Verdict != failover.NotLost {
				t.Fatalf("there is an input: %t, and it is %s, want it to be well", there, d.Verdict)
			}
			_, err = s.decide.decideAll(s.ctx, s.pv, []failover.Input{in})
			s.must(err)
			if marked := s.marked() != ""; marked != inHand {
				t.Errorf("in hand: %t, marked: %t", inHand, marked)
			}
		})
	}
}

// What was read too long ago is left out of the release of what was read just now.
func TestNothingIsReleasedByAnOldLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		fresh, old := s.volume(), s.volume()
		old.pv = old.pv.DeepCopy()
		old.pv.Spec.CSI.VolumeHandle = "pvc-other"
		old.in.Asked = time.Now().Add(-failover.MaxAge - time.Second)
		s.r.releaseAll(s.ctx, nodeA, []*volume{fresh, old})
		if !s.released() || fresh.late || !old.late {
			t.Errorf("late: %t and %t, released: %t, want only the first one", fresh.late, old.late, s.released())
		}
	})
}

// A release counts for as long as the oldest look that it rests on: the node is read slowly here.
func TestAReleaseOfManyIsAsOldAsTheOldestOfTheirLooks(t *testing.T) {
	t.Parallel()
	const takes = 300 * time.Millisecond
	for name, tc := range map[string]struct {
		ages     []time.Duration
		released bool
	}{
		"both are new":     {[]time.Duration{0, 0}, true},
		"the first is old": {[]time.Duration{failover.MaxAge - takes/2, 0}, false},
		"the last is old":  {[]time.Duration{0, failover.MaxAge - takes/2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.inUse.live = slowNodes{s.r.inUse.live, takes}
				var volumes []*volume
				for i, age := range tc.ages {
					v := s.volume()
					v.in.Asked = time.Now().Add(-age)
					if i > 0 {
						v.pv = v.pv.DeepCopy()
						v.pv.Name, v.pv.Spec.CSI.VolumeHandle = "third", "pvc-third"
					}
					volumes = append(volumes, v)
				}
				s.r.releaseAll(s.ctx, nodeA, volumes)
				if got := s.released(); got != tc.released || volumes[0].late == tc.released || volumes[1].late == tc.released {
					t.Errorf("released: %t, late: %t and %t; want it to be released: %t", got, volumes[0].late, volumes[1].late, tc.released)
				}
			})
		})
	}
}

// slowNodes is an API by which a Node is read slowly.
type slowNodes struct {
	client.Reader
	takes time.Duration
}

func (r slowNodes) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, ok := o.(*corev1.Node); ok {
		<-time.After(r.takes)
	}
	return r.Reader.Get(ctx, key, o, options...)
}

// What Kubernetes does not call in use needs no release, of which the log would tell.
func TestAReleaseOfNothingIsNotTold(t *testing.T) {
	t.Parallel()
	for handle, inUse := range map[string]bool{"pvc-db": true, "pvc-third": false} {
		var lines []string
		s := newSteps(t)
		ctx := ctrl.LoggerInto(s.ctx, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		v := s.volume()
		v.pv = v.pv.DeepCopy()
		v.pv.Spec.CSI.VolumeHandle = handle
		s.r.releaseAll(ctx, nodeA, []*volume{v})
		if told := strings.Contains(strings.Join(lines, ""), "Released volumes"); told != inUse {
			t.Errorf("the release of %s is told: %t", handle, told)
		}
	}
}

// No attachment is deleted while it is not known who uses its volume.
func TestNothingIsDetachedWhereItsUsersCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*steps)
		stays bool
	}{
		"nobody uses it":             {(*steps).withoutPod, false},
		"a pod uses it":              {func(*steps) {}, true},
		"the pods cannot be listed":  {func(s *steps) { s.withoutPod(); s.r.live.Reader = noPods{s.r.live.Reader} }, true},
		"their claim cannot be read": {func(s *steps) { s.r.live.Reader = noClaims{s.r.live.Reader} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				tc.spoil(s)
				s.r.deleteAttachments(s.ctx, nodeA, []*volume{s.volume()})
				if stays := s.attachment() != nil; stays != tc.stays {
					t.Errorf("the attachment stays: %t, want %t", stays, tc.stays)
				}
			})
		})
	}
}

// noPods is an API by which no pods can be listed.
type noPods struct{ client.Reader }

func (f noPods) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return errors.New("no")
	}
	return f.Reader.List(ctx, list, options...)
}

// A pod that is to be removed may not be the only one any more when the list of pods is old. Where none is left to be removed, another
// list precedes the deletion.
func TestARemovalIsAsOldAsTheListOfPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.in.Listed = s.in.Asked.Add(-failover.MaxAge - time.Second)
		if !s.r.isOld(s.in) {
			t.Error("a removal by an old list of pods counts")
		}
		s.in.Pods = nil
		if s.r.isOld(s.in) {
			t.Error("a detach counts as old by a list that it does not rest on")
		}
	})
}

// The list of pods comes after LINSTOR's word, which may have been asked for before the look.
func TestARemovalIsAsOldAsLinstorsWordHoweverNewTheListOfPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.in.Asked = s.in.Asked.Add(-failover.MaxAge - time.Second)
		s.in.Listed = time.Now()
		if !s.r.isOld(s.in) {
			t.Error("a removal by an old word of LINSTOR's counts")
		}
	})
}

// Many attachments are read by one request, and never from the cache.
func TestManyAttachmentsAreListedAnew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		attachments int
		lists       int32
	}{
		"few are read one by one": {19, 0},
		"many are listed":         {20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				for i := range tc.attachments - 1 {
					s.attach(fmt.Sprint("csi-db-", i), nodeA, func(*storagev1.VolumeAttachment) {})
				}
				s.r.gather.inputs.Linstor = noLinstor{}
				s.view.Pause()
				s.setMark("by another process, a moment ago")
				var lists atomic.Int32
				s.model.Fail(func(r apimodel.Request) error {
					if r.Verb == apimodel.VerbList && r.Kind == "VolumeAttachment" {
						lists.Add(1)
					}
					return nil
				})
				read, err := s.r.readAttachments(s.ctx, s.ctx, nodeA, []*volume{s.volume()})
				s.must(err)
				in, err := s.r.gather.inputs.Confirmed(s.ctx, s.pv, cluster.Reading{Node: nodeA, Attachments: read}, nil)
				s.must(err)
				if in.Attachment == nil || !in.Attachment.Marked {
					t.Errorf("%+v, want the mark", in.Attachment)
				}
				if got := lists.Load(); got != tc.lists {
					t.Errorf("%d lists, want %d", got, tc.lists)
				}
			})
		})
	}
}

// A node's attachments are looked at by their volumes, of which some may be another driver's.
func TestNoRoundLooksAtTheVolumesOfOtherDrivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.r.gather.inputs.Linstor = noLinstor{}
		for name, driver := range map[string]string{"ours": virtual.Driver, "theirs": "other.example.com"} {
			s.otherVolume(name, driver)
			var va storagev1.VolumeAttachment
			s.exists(&va, "csi-"+name)
			va.Annotations = map[string]string{cluster.AnnotationFailOver: "begun"}
			s.must(s.api.Update(s.ctx, &va))
		}
		all, err := s.r.candidatesOn(s.ctx, nodeA, nil)
		s.must(err)
		var names []string
		for _, v := range all {
			names = append(names, v.pv.Name)
		}
		if want := []string{"db", "ours"}; !slices.Equal(names, want) {
			t.Errorf("looked at %v, want %v", names, want)
		}
	})
}

// confirms is a LINSTOR that knows a resource by a reading of that time.
type confirms struct {
	noLinstor
	at time.Time
}

func (c confirms) Refresh(context.Context, string, time.Duration) (linstor.Resource, error) {
	return linstor.Resource{Known: true, Confirmed: c.at}, nil
}

func (c confirms) Resource(string) (linstor.Resource, bool) {
	return linstor.Resource{Known: true, Confirmed: c.at}, true
}

// What is read may change while the answer is on its way.
func TestALookIsAsOldAsItsQuestions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		confirmed time.Duration // before the look
		want      time.Duration
	}{
		"LINSTOR's word is from before the look": {time.Second, time.Second},
		"LINSTOR's word is newer than that":      {-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				began := time.Now()
				s.r.linstor = confirms{at: began.Add(-tc.confirmed)}
				s.r.gather.inputs.Linstor = s.r.linstor
				var first, listed time.Time
				var mu sync.Mutex
				s.model.Delay(func(r apimodel.Request) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					if first.IsZero() {
						first = time.Now()
					}
					if r.Verb == apimodel.VerbList && r.Kind == "Pod" {
						listed = time.Now()
					}
					return 10 * time.Millisecond
				})
				v := s.volume()
				s.r.look(s.ctx, nodeA, nil, []*volume{v})
				s.must(v.err)
				if latest := first.Add(-tc.want); v.in.Asked.After(latest) {
					t.Errorf("the look counts from %s after its first question", v.in.Asked.Sub(latest))
				}
				if v.in.Listed.After(listed) {
					t.Errorf("the list of pods counts from %s after it was asked for", v.in.Listed.Sub(listed))
				}
			})
		})
	}
}

// A mark tells a later leader to detach the volume: a pod of two volumes of which one has none would leave that one behind.
func TestAPodGoesOnlyWhenAllItsLostVolumesAreMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		marked, unmarked := s.volume(), s.volume()
		unmarked.err = errUnanswered
		s.r.removeAll(s.ctx, []*volume{marked, unmarked}, []failover.PodRemoval{
			{Pod: s.in.Pods[0], By: 0, Volumes: []int{0, 1}, How: failover.RemoveForce},
		})
		if s.pod() == nil {
			t.Error("the pod is gone, and one of its volumes has no mark")
		}
	})
}

// A taint that is not answered may not be set: the replacement might be placed on the same node again.
func TestAPodStaysWhileNobodyKnowsWhetherTheNextIsKeptAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		s.model.Delay(func(r apimodel.Request) time.Duration {
			if r.Kind == "Node" {
				return 2 * answersWithin
			}
			return 0
		})
		v := s.volume()
		s.r.keepPodsAway(s.ctx, nodeA, []*volume{v})
		if v.goesOn() {
			t.Error("the pod may go")
		}
		passes(4 * answersWithin) // for the answers, which end the test's goroutines
	})
}

// What has failed for one loss says nothing of the next one.
func TestABackOffEndsWithTheLossThatItWasFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSteps(t)
		for range 8 {
			s.r.backoff.When(nodeB)
		}
		if _, err := s.r.round(s.ctx, nodeB); err != nil {
			t.Fatal(err)
		}
		if n := s.r.backoff.NumRequeues(nodeB); n != 0 {
			t.Errorf("after a round in which nothing was lost %d failures count", n)
		}
	})
}
