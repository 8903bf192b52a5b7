package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWhatChangesAtAboutTheSameTimeIsLookedAtTogether(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after time.Duration
		want  []int // how many volumes are looked at, by tenths of a second
	}{
		"by the clocks":         {300 * time.Millisecond, []int{0, 0, 0, 1, 1, 0}},
		"and at once by others": {0, []int{1, 2, 1, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := priorityqueue.New[reconcile.Request]("test")
				defer q.ShutDown()
				h := delayed(tc.after, &handler.EnqueueRequestForObject{})
				volume := func(name string) *corev1.PersistentVolume {
					return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
				}
				changes := []func(){
					func() { h.Create(t.Context(), event.CreateEvent{Object: volume("db")}, q) },
					func() {
						h.Update(t.Context(), event.UpdateEvent{ObjectOld: volume("db"), ObjectNew: volume("db")}, q)
						h.Generic(t.Context(), event.GenericEvent{Object: volume("log")}, q)
					},
					func() { h.Delete(t.Context(), event.DeleteEvent{Object: volume("db")}, q) },
				}
				for i, want := range tc.want {
					if i < len(changes) {
						changes[i]()
					}
					synctest.Wait()
					got := q.Len()
					for range got {
						request, _ := q.Get()
						q.Done(request)
					}
					if got != want {
						t.Errorf("%d ms after the first change %d volumes are looked at, want %d", 100*i, got, want)
					}
					<-time.After(100 * time.Millisecond)
				}
			})
		})
	}
}
