package apimodel_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

func selectedWeb(o client.Object) bool { return o.GetLabels()["app"] == "web" }

func TestAViewIsBehindTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		view := m.View(time.Second, nil)
		api := m.Client("test")
		pod := createPod(t, api)
		if getPod(t, view) != nil {
			t.Error("the view knows a pod at once")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if diff := cmp.Diff(getPod(t, api), getPod(t, view)); diff != "" {
			t.Errorf("a second later (-API +view):\n%s", diff)
		}
		view.Pause()
		if err := api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		if getPod(t, view) == nil {
			t.Error("a view whose watch is dead has seen the deletion")
		}
		view.Resume()
		if getPod(t, view) != nil {
			t.Error("the view has missed the deletion")
		}
	})
}

func TestAViewWhoseWatchHasExpiredListsEverythingAnew(t *testing.T) {
	m := apimodel.New()
	view := m.View(0, nil)
	api := m.Client("test")
	named := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }
	gone, replaced := createPod(t, api), createPod(t, api, named("replaced"))
	createPod(t, api, named("same"))
	var updates []string
	view.OnUpdate(func(u apimodel.Update) {
		var words []string
		for _, o := range []client.Object{u.Old, u.New} {
			if o == nil {
				words = append(words, "nothing")
			} else {
				uid := string(o.GetUID())
				words = append(words, o.GetName(), uid[len(uid)-1:])
			}
		}
		updates = append(updates, strings.Join(words, " "))
	})
	updates = nil
	view.Pause()
	remove := func(pod *corev1.Pod) {
		t.Helper()
		if err := api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	remove(gone)
	remove(replaced)
	remove(createPod(t, api, named("came and went")))
	createPod(t, api, named("replaced"))
	createPod(t, api, named("new"))
	if len(updates) > 0 {
		t.Errorf("a dead watch tells of %q", updates)
	}
	view.Relist()
	slices.Sort(updates)
	want := []string{
		"nothing new 6", "replaced 2 replaced 5",
		"same 3 same 3", "web-0 1 nothing",
	}
	if diff := cmp.Diff(want, updates); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	if getPod(t, view) != nil {
		t.Error("what was deleted meanwhile is in the view")
	}
	updates = nil
	createPod(t, api)
	if len(updates) != 1 {
		t.Errorf("the new watch tells of %q, want one pod", updates)
	}
}

func TestAViewHoldsSelectedObjectsOnly(t *testing.T) {
	m := apimodel.New()
	view := m.View(0, selectedWeb)
	var updates []string
	view.OnUpdate(func(u apimodel.Update) {
		switch {
		case u.Old == nil:
			updates = append(updates, "added "+u.New.GetName())
		case u.New == nil:
			updates = append(updates, "removed "+u.Old.GetName())
		default:
			updates = append(updates, "updated "+u.New.GetName())
		}
	})
	api := m.Client("test")
	createPod(t, api)
	other := createOther(t, api)
	createPod(t, api, func(p *corev1.Pod) { p.Name, p.Labels = "db-0", nil })
	other.Labels = nil
	if err := api.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	want := []string{"added web-0", "added web-1", "removed web-1"}
	if diff := cmp.Diff(want, updates); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	var late []string
	view.OnUpdate(func(u apimodel.Update) { late = append(late, u.New.GetName()) })
	if diff := cmp.Diff([]string{"web-0"}, late); diff != "" {
		t.Errorf("a late handler (-want +got):\n%s", diff)
	}
}

func TestAViewIsSearchedByIndex(t *testing.T) {
	m := apimodel.New()
	view := m.View(0, nil)
	err := view.IndexField(t.Context(), &corev1.Pod{}, "node", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	})
	if err != nil {
		t.Fatal(err)
	}
	api := m.Client("test")
	createPod(t, api)
	createPod(t, api, func(p *corev1.Pod) { p.Name, p.Spec.NodeName = "web-1", "node-b" })
	var pods corev1.PodList
	if err := view.List(t.Context(), &pods, client.MatchingFields{"node": "node-b"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != "web-1" {
		t.Errorf("pods: %v", pods.Items)
	}
	if err := view.List(t.Context(), &pods, client.MatchingFields{"unknown": "x"}); err == nil {
		t.Error("a field without an index was searched")
	}
	err = view.IndexField(t.Context(), &corev1.Pod{}, "late", func(o client.Object) []string { return []string{o.GetName()} })
	if err != nil {
		t.Fatal(err)
	}
	if err := view.List(t.Context(), &pods, client.MatchingFields{"late": "web-0"}); err != nil || len(pods.Items) != 1 {
		t.Errorf("pods by an index that came after them: %v, %v", pods.Items, err)
	}
	if err := view.IndexField(t.Context(), &corev1.Pod{}, "late", nil); err == nil {
		t.Error("an index was added a second time")
	}
}
