package controllers

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
)

// Whatever the annotation says but "false" pauses, and so does a Deployment that cannot be read.
func TestWhatPauses(t *testing.T) {
	t.Parallel()
	annotated := func(value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Annotations = map[string]string{AnnotationPause: value} }
	}
	for name, tc := range map[string]struct {
		deployment func(*appsv1.Deployment)
		unreadable bool
		want       bool
	}{
		"no annotation":                        {deployment: func(*appsv1.Deployment) {}},
		"an annotation":                        {deployment: annotated("true"), want: true},
		"an annotation without a value":        {deployment: annotated(""), want: true},
		"an annotation that says false":        {deployment: annotated("false")},
		"no Deployment":                        {want: true},
		"a Deployment that cannot be read now": {deployment: func(*appsv1.Deployment) {}, unreadable: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := apimodel.New()
			key := client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
			if tc.deployment != nil {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				tc.deployment(d)
				if err := m.Client("test").Create(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if tc.unreadable {
				m.Fail(func(apimodel.Request) error { return errors.New("no") })
			}
			h := &haltSwitch{live: m.Client("one"), deployment: key}
			if got := h.paused(t.Context()); (got != "") != tc.want {
				t.Errorf("paused: %q, want %t", got, tc.want)
			}
			h.deployment = client.ObjectKey{}
			if got := h.paused(t.Context()); got != "" {
				t.Errorf("paused although no Deployment pauses: %q", got)
			}
		})
	}
}

// satellites is a LINSTOR with two satellites that are well, and a controller.
type satellites struct{ noLinstor }

func (satellites) Nodes() []linstor.Node {
	online := linstor.Fact[bool]{Value: true, Known: true, Confirmed: start.Time}
	return []linstor.Node{
		{Name: nodeA, Satellite: true, Online: online, LastOnline: start.Time},
		{Name: nodeB, Satellite: true, Online: online, LastOnline: start.Time},
		{Name: "controller", LastOnline: start.Time},
	}
}

func (satellites) Status() linstor.Status { return linstor.Status{SyncedSince: start.Add(-time.Hour)} }

// A node counts as lost when a volume there is, although LINSTOR takes it for ONLINE; what has no volumes does not count.
func TestWhoCountsForTheGuard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lost map[string]bool
		want string
	}{
		"nobody is lost":              {nil, ""},
		"a node has lost a volume":    {map[string]bool{nodeA: true}, "1 of 2 nodes"},
		"every node has lost volumes": {map[string]bool{nodeA: true, nodeB: true}, "2 of 2 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &haltSwitch{linstor: satellites{}, lost: func() map[string]bool { return tc.lost }, limit: failover.Limit{}}
			got := h.guard(start.Time)
			if (got != "") != (tc.want != "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("the guard says %q, want %q", got, tc.want)
			}
		})
	}
}

// The API is slow when hundreds of volumes are lost, and each asks whether fail-over is paused: as often as it answers, all
// who wait go on.
func TestASlowAnswerServesAllWhoHaveWaitedForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := apimodel.New()
		key := client.ObjectKey{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := m.Client("test").Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		m.Fail(func(r apimodel.Request) error {
			if r.Actor == "one" {
				asked.Add(1)
			}
			return nil
		})
		m.Delay(func(r apimodel.Request) time.Duration {
			if r.Actor == "one" {
				return 2 * haltAge
			}
			return 0
		})
		h := &haltSwitch{
			live: m.Client("one"), deployment: key, linstor: satellites{}, clock: clock.RealClock{}, metrics: metrics.New(),
			lost: func() map[string]bool { return nil },
		}
		ask := func(callers int, after time.Duration) (paused int32) {
			var all sync.WaitGroup
			var n atomic.Int32
			for range callers {
				all.Go(func() {
					<-time.After(after)
					if h.now(t.Context()).Paused != "" {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		if paused := ask(100, 0); asked.Load() != 1 || paused != 0 {
			t.Errorf("a hundred at the same time asked %d times, and %d were paused; want once, and none", asked.Load(), paused)
		}
		d.Annotations = map[string]string{AnnotationPause: "true"}
		if err := m.Client("test").Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if paused := ask(100, haltAge); asked.Load() != 2 || paused != 100 {
			t.Errorf("a hundred more asked %d times, and %d were paused; want once, and all", asked.Load()-1, paused)
		}
	})
}
