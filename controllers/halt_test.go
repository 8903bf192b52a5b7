package controllers

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
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
