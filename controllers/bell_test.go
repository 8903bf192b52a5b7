package controllers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// hears starts who is called by the bell.
func hears(ctx context.Context, t *testing.T, b *bell) queue {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := b.source().Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	return queue
}

// wantCalled fails the test unless just these nodes are called for.
func wantCalled(t *testing.T, queue queue, want ...string) {
	t.Helper()
	var got []string
	for queue.Len() > 0 {
		request, _ := queue.Get()
		queue.Done(request)
		got = append(got, request.Name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("called to %v, want %v", got, want)
	}
}

func TestTheBellCallsToANodeOnceHoweverManyVolumesAreLost(t *testing.T) {
	t.Parallel()
	b := newBell()
	queue := hears(t.Context(), t, b)
	b.ring("db", nodeA)
	b.ring("wal", nodeA)
	b.ring("web", nodeB)
	wantCalled(t, queue, nodeA, nodeB)
}

// The VolumeReconciler may start first.
func TestTheBellIsHeardByWhoStartsLater(t *testing.T) {
	t.Parallel()
	b := newBell()
	b.ring("db", nodeA)
	wantCalled(t, hears(t.Context(), t, b), nodeA)
}

func TestTheBellDoesNotCallToVolumesInHand(t *testing.T) {
	t.Parallel()
	b := newBell()
	queue := hears(t.Context(), t, b)
	b.hold(nodeA, []string{"db"})
	b.ring("db", nodeA)
	wantCalled(t, queue)
	b.ring("wal", nodeA) // another one
	b.ring("db", nodeB)  // elsewhere
	wantCalled(t, queue, nodeA, nodeB)
	b.hold(nodeA, []string{"wal"})
	b.ring("db", nodeA)
	wantCalled(t, queue, nodeA)
	b.hold(nodeA, nil)
	b.ring("wal", nodeA)
	wantCalled(t, queue, nodeA)
	if left := b.remembered(); len(left) > 0 {
		t.Errorf("volumes are in hand on %v", left)
	}
}

// Who waits for an answer about one volume of a node ends that when another one is lost there.
func TestTheBellTellsWhoListensThatMoreIsLost(t *testing.T) {
	t.Parallel()
	b := newBell()
	hears(t.Context(), t, b)
	b.hold(nodeA, []string{"db"})
	more := b.listen(nodeA)
	rung := func() bool {
		select {
		case <-more:
			return true
		default:
			return false
		}
	}
	b.ring("db", nodeA)  // which is in hand
	b.ring("wal", nodeB) // elsewhere
	if rung() {
		t.Error("nothing more is lost on the node")
	}
	b.ring("wal", nodeA)
	if !rung() {
		t.Error("another volume is lost on the node")
	}
	if more = b.listen(nodeA); rung() {
		t.Error("what was rung before counts for who listens later")
	}
}

func TestWhatCallsToANodeWhileItsVolumeIsInHandThere(t *testing.T) {
	t.Parallel()
	pod := func(change func(*steps, *corev1.Pod)) func(*steps) client.Object {
		return func(s *steps) client.Object {
			pod := s.pod()
			change(s, pod)
			return pod
		}
	}
	ends := func(pod *corev1.Pod) { pod.DeletionTimestamp = &start }
	for name, tc := range map[string]struct {
		change func(*steps) client.Object
		calls  bool
	}{
		"the end of a pod that was deleted": {pod(func(_ *steps, pod *corev1.Pod) { ends(pod) }), true},
		"the end of one that has failed":    {pod(func(_ *steps, pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), true},
		"its attachment":                    {func(s *steps) client.Object { return s.attachment() }, true},
		"not what changes of a living pod":  {pod(func(*steps, *corev1.Pod) {}), false},
		"not a pod elsewhere": {pod(func(_ *steps, pod *corev1.Pod) {
			ends(pod)
			pod.Spec.NodeName = nodeB
		}), false},
		"not a pod that does not use it": {pod(func(_ *steps, pod *corev1.Pod) {
			ends(pod)
			pod.Spec.Volumes = nil
		}), false},
		"not an attachment of another driver": {func(s *steps) client.Object {
			va := s.attachment()
			va.Spec.Attacher = "other.example.com"
			return va
		}, false},
		"not when it is not in hand any more": {func(s *steps) client.Object {
			s.r.bell.hold(nodeA, nil)
			return s.attachment()
		}, false},
		"not a node": {func(*steps) client.Object { return &corev1.Node{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSteps(t)
				s.r.bell.hold(nodeA, []string{"db"})
				if got := s.r.nodeOf(s.ctx, tc.change(s)); len(got) > 0 != tc.calls {
					t.Errorf("calls to %v, want a call: %t", got, tc.calls)
				}
			})
		})
	}
}

func TestRequestsLiveAsLongAsWhoIsCalled(t *testing.T) {
	t.Parallel()
	b := newBell()
	round, endRound := context.WithCancel(t.Context())
	defer endRound()
	if b.lifetime(round) != round {
		t.Error("where nobody has started they live as long as the round")
	}
	controller, end := context.WithCancel(t.Context())
	hears(controller, t, b)
	if end(); b.lifetime(round).Err() == nil || round.Err() != nil {
		t.Error("they outlive the controller")
	}
}
