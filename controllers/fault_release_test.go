package controllers

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// Releases as they write their marks, from how this one does.
var releases = map[string]func(mark string) string{
	"this one": func(mark string) string { return mark },
	"one with more fields": func(mark string) string {
		return strings.Replace(mark, "{", `{"zone":{"name":"a"},"attempts":[1,2],`, 1)
	},
	"one with another form": func(mark string) string { return "v3 " + strconv.Itoa(len(mark)) },
}

// A rollout in the act: the leader of another release ends after any of its writes. The one of this release finds its marks,
// finishes, and leaves nothing behind.
func TestARolloutInTheActGoesOn(t *testing.T) {
	for name, translated := range releases {
		for i, write := range writes {
			t.Run("after "+name+" could "+write.String(), func(t *testing.T) {
				pair(t, defaults(), func(w *world, first, second *process) {
					untilKilled := w.dies(first, write, false)
					w.Crash(nodeA)
					untilKilled()
					first.stops() // a release knows its own marks, so that it must not see them in another form
					w.wantWrote(first, writes[:i+1])
					w.translateMarks(translated)
					second.leads()
					w.wantMovedCleanly(40*time.Second, second)
				})
			})
		}
	}
}

// translateMarks writes all marks as another release would have.
func (w *world) translateMarks(translated func(string) string) {
	w.Helper()
	for _, name := range []string{nodeA, nodeB, nodeT} {
		w.translateMark(w.node(name), cluster.AnnotationKeepAway, translated)
		if va := w.attachment("db", name); va != nil {
			w.translateMark(va, cluster.AnnotationFailOver, translated)
		}
	}
}

func (w *world) translateMark(o client.Object, annotation string, translated func(string) string) {
	w.Helper()
	mark := o.GetAnnotations()[annotation]
	if mark == "" {
		return
	}
	before, _ := o.DeepCopyObject().(client.Object)
	o.GetAnnotations()[annotation] = translated(mark)
	// An attachment may end meanwhile.
	w.must(client.IgnoreNotFound(w.Client().Patch(w.ctx, o, client.MergeFrom(before))))
}

// What other releases will find: a field that goes, or means something else, is one that they miss.
func TestMarksAreWrittenInTheFormOfTheFirstRelease(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		var mu sync.Mutex
		got := map[string]map[string]string{}
		w.API.OnChange(func(c apimodel.Change) {
			mu.Lock()
			defer mu.Unlock()
			switch o := c.New.(type) {
			case *corev1.Node:
				maps.Copy(got, formOf(o.Annotations, cluster.AnnotationKeepAway))
			case *storagev1.VolumeAttachment:
				maps.Copy(got, formOf(o.Annotations, cluster.AnnotationFailOver))
			}
		})
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[string]map[string]string{
			cluster.AnnotationKeepAway: {
				"owner": "string", "reason": "string", "effect": "string", "resources": "[]interface {}",
				"since": "time", "expires": "time",
			},
			cluster.AnnotationFailOver: {"pods": "[]interface {}", "reason": "string", "time": "time"},
		}, got); diff != "" {
			t.Errorf("form of the marks (-want +got):\n%s", diff)
		}
	})
}

// formOf returns the fields of an annotation with their types.
func formOf(annotations map[string]string, name string) map[string]map[string]string {
	var fields map[string]any
	if json.Unmarshal([]byte(annotations[name]), &fields) != nil {
		return nil
	}
	types := map[string]string{}
	for field, value := range fields {
		types[field] = fmt.Sprintf("%T", value)
		if text, ok := value.(string); ok {
			if _, err := time.Parse(time.RFC3339, text); err == nil {
				types[field] = "time"
			}
		}
	}
	return map[string]map[string]string{name: types}
}

// During a rollout the marks of a newer or older release are found: with fields that this one does not know, or in another
// form. A mark that is understood is kept to; one that is not is taken for expired, and never for a reason to remove.
func TestMarksOfAnotherRelease(t *testing.T) {
	for name, mark := range map[string]string{
		"with more fields": `{"owner":"newer","reason":"NodeUnreachable","effect":"NoSchedule","resources":["pvc-db"],` +
			`"since":"2026-01-01T00:00:00Z","expires":"2126-01-01T00:00:00Z","zone":{"name":"a"}}`,
		"in another form": `v3 owner=newer`,
		"as a list":       `[1,2,3]`,
		"empty":           ``,
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				node := w.node(nodeA)
				node.Annotations = map[string]string{cluster.AnnotationKeepAway: mark}
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: cluster.TaintLostQuorum, Effect: corev1.TaintEffectNoSchedule})
				w.must(w.Client().Update(w.ctx, node))
				va := w.attachment("db", nodeA)
				va.Annotations = map[string]string{cluster.AnnotationFailOver: mark}
				w.must(w.Client().Update(w.ctx, va))
				first := w.pod("db-0")
				w.until(2*time.Minute, "the taint of a node that is well is gone", func() bool { return w.tainted(nodeA) == "" })
				w.pass(time.Minute)
				w.wantStill(first)
				w.wantNothingLeft(p)
			})
		})
	}
}
