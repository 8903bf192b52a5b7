package controllers

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

// A process that stands still after a decision sends nothing that rests on it.
func TestNothingRestsOnAnOldDecision(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stall time.Duration
		sent  bool
	}{
		"after a moment": {time.Second, true},
		"after 3 s":      {3 * time.Second, false},
		"after 6 s":      {6 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newLost(t)
				v := s.lost()
				<-time.After(tc.stall)
				if err := s.r.annotateOne(s.ctx, v); (err == nil) != tc.sent {
					t.Errorf("annotated: %v", err)
				}
				pod := s.pod()
				deleted, err := s.r.deletePod(s.ctx, deletion{PodRemoval: failover.PodRemoval{How: failover.RemoveForce}, by: v, pod: pod})
				if deleted != tc.sent || !tc.sent && !errors.Is(err, errTooLate) {
					t.Errorf("deleted %t: %v", deleted, err)
				}
				if (s.pod() == nil) != tc.sent {
					t.Errorf("the pod is gone: %t, want %t", s.pod() == nil, tc.sent)
				}
			})
		})
	}
}

// The next reconcile does what was too late, and nobody is told of a failure.
func TestWhatIsTooLateWaitsForTheNextReconcile(t *testing.T) {
	t.Parallel()
	v := &volume{}
	if v.failed(errTooLate); v.err != nil || !v.held {
		t.Errorf("error %v, held %t", v.err, v.held)
	}
	v = &volume{}
	if v.failed(errors.New("no")); v.err == nil || v.held {
		t.Errorf("error %v, held %t", v.err, v.held)
	}
}

// The patch tests the list of volumes in use. That does not change when a pod comes for a volume that is in it.
func TestNothingIsReleasedOrDetachedByAnOldList(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		age  time.Duration
		sent bool
	}{
		"a list of 4.9 s ago": {4900 * time.Millisecond, true},
		"a list of 5.1 s ago": {5100 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newLost(t)
				s.setMark("begun")
				s.withoutPod()
				v := s.lost()
				v.listed = time.Now().Add(-tc.age)
				s.r.release(s.ctx, s.state, []*volume{v}, nodeRead(t, s.model, nodeA))
				if s.released() != tc.sent || v.held == tc.sent || v.err != nil {
					t.Errorf("released %t, held %t, error %v", s.released(), v.held, v.err)
				}
				_, err := s.r.deleteAttachment(s.ctx, s.state, v)
				if detached := s.attachment() == nil; detached != tc.sent || !tc.sent && !errors.Is(err, errTooLate) {
					t.Errorf("detached %t: %v", detached, err)
				}
			})
		})
	}
}

// A process sets the condition and stands still. Another leader meanwhile deletes the pod by force, which a finalizer holds, and ends it.
// Without the condition the pod would count as no user of its volume, and the volume would be released under it.
func TestTheConditionOfAPodThatAnotherLeaderEndedStays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		meanwhile func(s *steps, pod *corev1.Pod)
		stays     bool
	}{
		"nothing happens meanwhile": {func(*steps, *corev1.Pod) {}, false},
		"something else of the pod is changed": {func(s *steps, _ *corev1.Pod) {
			now := s.pod()
			now.Annotations = map[string]string{"changed": "yes"}
			s.must(s.api.Update(s.ctx, now))
		}, false},
		"another leader deletes and ends it": {func(s *steps, _ *corev1.Pod) {
			s.must(s.api.Delete(s.ctx, s.pod(), client.GracePeriodSeconds(0)))
			patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": corev1.PodFailed, "conditions": s.r.disruption(s.d)}})
			s.must(err)
			s.must(s.api.Status().Patch(s.ctx, s.pod(), client.RawPatch(types.StrategicMergePatchType, patch)))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newLost(t)
				pod := s.pod()
				pod.Finalizers = []string{"example.com/finalizer"}
				s.must(s.api.Update(s.ctx, pod))
				s.must(s.r.patchStatus(s.ctx, pod, pod.ResourceVersion, map[string]any{"conditions": s.r.disruption(s.d)}))
				tc.meanwhile(s, pod)
				s.r.takeBackDisrupted(s.ctx, []*corev1.Pod{pod})
				if now := s.pod(); cluster.Disrupted(now) != tc.stays {
					t.Errorf("the condition stays: %t, want %t", cluster.Disrupted(now), tc.stays)
				}
			})
		})
	}
}
