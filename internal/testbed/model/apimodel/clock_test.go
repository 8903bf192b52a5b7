package apimodel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

func TestObjectsAreStampedByTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		m.SetClock(10 * time.Minute)
		pod := createPod(t, m.Client("test"))
		if ahead := time.Until(pod.CreationTimestamp.Time); ahead != 10*time.Minute || m.Clock() != 10*time.Minute {
			t.Errorf("created %s ahead, by a clock that is %s ahead", ahead, m.Clock())
		}
	})
}

func TestAViewThatStartsLateLetsItsReadersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		view := m.View(0, nil)
		createPod(t, m.Client("test"))
		view.StartLate(10 * time.Second)
		told := 0
		view.OnUpdate(func(apimodel.Update) { told++ })
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		pod := createPod(t, m.Client("test"), func(p *corev1.Pod) { p.Name = "second" })
		if err := view.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}); err == nil {
			t.Error("a view that has listed nothing answers")
		}
		if told != 0 {
			t.Errorf("a view that has listed nothing tells of %d objects", told)
		}
		if getPod(t, view) == nil || time.Since(begin) != 10*time.Second {
			t.Errorf("answered after %s", time.Since(begin))
		}
		synctest.Wait()
		if told != 2 {
			t.Errorf("told of %d objects", told)
		}
	})
}
