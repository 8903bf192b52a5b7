package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// watched is a pod on node A that runs there.
func watched(uid types.UID) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0", UID: uid}}
	pod.Spec.NodeName = nodeA
	return pod
}

func TestSightings(t *testing.T) {
	t.Parallel()
	runs := func(pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		return pod
	}
	leaves := func(pod *corev1.Pod, grace int64) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(start.AddDate(1, 0, 0))), &grace
		return pod
	}
	unbound := watched("1")
	unbound.Spec.NodeName = ""
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for name, tc := range map[string]struct {
		// tell tells the handler of something; a second passes after each time.
		tell []func(h toolscache.ResourceEventHandler)
		pod  *corev1.Pod
		want sighting
	}{
		"a pod that was there when the watch began is known": {
			tell: []func(h toolscache.ResourceEventHandler){func(h toolscache.ResourceEventHandler) { h.OnAdd(runs(watched("1")), true) }},
			pod:  runs(watched("1")), want: sighting{node: nodeA, hasRun: true},
		},
		"one that came later is new": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(toolscache.ResourceEventHandler) {},
				func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), false) },
			},
			pod: watched("1"), want: sighting{since: at(1), node: nodeA},
		},
		"it is on its node since it was bound": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(unbound, true) },
				func(h toolscache.ResourceEventHandler) { h.OnUpdate(unbound, watched("1")) },
			},
			pod: watched("1"), want: sighting{since: at(1), node: nodeA},
		},
		"it runs since that was first seen": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), true) },
				func(h toolscache.ResourceEventHandler) { h.OnUpdate(watched("1"), runs(watched("1"))) },
			},
			pod: runs(watched("1")), want: sighting{node: nodeA, hasRun: true, ran: at(1)},
		},
		"its deletion counts from when it was first seen, also if it was there when the watch began": {
			tell: []func(h toolscache.ResourceEventHandler){func(h toolscache.ResourceEventHandler) { h.OnAdd(leaves(watched("1"), 30), true) }},
			pod:  leaves(watched("1"), 30), want: sighting{node: nodeA, deleting: at(0), grace: 30},
		},
		"a grace period that is shortened counts from then": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(leaves(watched("1"), 30), true) },
				func(h toolscache.ResourceEventHandler) {
					h.OnUpdate(leaves(watched("1"), 30), leaves(watched("1"), 10))
				},
			},
			pod: leaves(watched("1"), 10), want: sighting{node: nodeA, deleting: at(1), grace: 10},
		},
		"another pod of the same name is new, though the watch calls it a change": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), true) },
				func(h toolscache.ResourceEventHandler) { h.OnUpdate(watched("1"), watched("2")) },
			},
			pod: watched("2"), want: sighting{since: at(1), node: nodeA},
		},
		"a pod is told again that has not changed": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), true) },
				func(h toolscache.ResourceEventHandler) { h.OnUpdate(watched("1"), watched("1")) },
			},
			pod: watched("1"), want: sighting{node: nodeA},
		},
		"one that is gone is forgotten": {
			tell: []func(h toolscache.ResourceEventHandler){
				func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), true) },
				func(h toolscache.ResourceEventHandler) {
					h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/db-0", Obj: watched("1")})
				},
			},
			pod: watched("1"), want: sighting{since: at(2), node: nodeA},
		},
		"what the API shows and nobody was told of yet is new": {
			tell: []func(h toolscache.ResourceEventHandler){func(h toolscache.ResourceEventHandler) { h.OnAdd(watched("1"), true) }},
			pod:  runs(leaves(watched("1"), 10)), want: sighting{node: nodeA, hasRun: true, ran: at(1), deleting: at(1), grace: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start.Time
			s := NewSightings(clockAt{&now})
			for _, tell := range tc.tell {
				tell(s.handler())
				now = now.Add(time.Second)
			}
			if got := s.pod(tc.pod, true); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if got := s.pod(tc.pod, false); got != (sighting{}) {
				t.Errorf("of a pod that is not watched %+v is known", got)
			}
		})
	}
}
