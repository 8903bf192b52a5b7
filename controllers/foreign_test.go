package controllers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
)

// What others wrote into names and annotations is text, and of bounded length.
func TestNotesOfEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ note, want string }{
		"a plain text":                     {"pod is lost", "pod is lost"},
		"lines and tabs become blanks":     {"one\ntwo\r\n\tthree", "one two three"},
		"verbs of formats are left alone":  {"100%s %d %!n", "100%s %d %!n"},
		"what is no text is replaced":      {"a\xff\xfeb", "a?b"},
		"a long text is cut":               {strings.Repeat("x", 2000), strings.Repeat("x", noteLimit)},
		"it is not cut within a character": {"x" + strings.Repeat("€", 1000), "x" + strings.Repeat("€", (noteLimit-1)/3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := truncated(tc.note)
			if got != tc.want || !utf8.ValidString(got) || len(got) > noteLimit {
				t.Errorf("%q became %q", tc.note, got)
			}
		})
	}
}

func TestAMarkOfSomebodyElseAsksFewQuestions(t *testing.T) {
	t.Parallel()
	mark := taintNote{Effect: corev1.TaintEffectNoSchedule}
	for i := range 10_000 {
		mark.Resources = append(mark.Resources, fmt.Sprintf("../../%d\n%%s", i))
	}
	text, err := json.Marshal(mark)
	if err != nil {
		t.Fatal(err)
	}
	read, ours := noteOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cluster.AnnotationKeepAway: string(text)}}})
	if !ours || len(read.Resources) != taintResources {
		t.Errorf("%d resources of the mark are asked for, want %d", len(read.Resources), taintResources)
	}
}
