package controllers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// slowMarks is a LINSTOR that takes its time for each change of a definition, none of which has a mark.
type slowMarks struct {
	noLinstor
	takes     time.Duration
	meanwhile func()
	sent      []string
	// refuses is a definition that it does not change.
	refuses string
}

func (l *slowMarks) MarksOf(_ context.Context, definitions []string) (marks []evacuation.Mark, err error) {
	for _, name := range definitions {
		marks = append(marks, evacuation.Mark{Resource: name})
	}
	return marks, nil
}

func (l *slowMarks) ChangeDefinition(_ context.Context, change evacuation.Change) (linstor.Answer, error) {
	<-time.After(l.takes)
	l.meanwhile()
	l.sent = append(l.sent, change.Resource)
	if change.Resource == l.refuses {
		return linstor.Answer{Code: 500}, nil
	}
	return linstor.Answer{Code: 200}, nil
}

// A mark may take LINSTOR half a minute. What the next one rests on is old then, or the node may be failing over.
func TestAMarkIsSetOnlyWhileItsLookCounts(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		lost  bool
		ends  bool
		want  []string
	}{
		"at once":                          {takes: time.Second, want: []string{"a", "b"}},
		"as long as the look counts":       {takes: evacuation.Properties.MaxAge(), want: []string{"a", "b"}},
		"until the look is old":            {takes: evacuation.Properties.MaxAge() + 1, want: []string{"a"}},
		"until the node has lost a volume": {takes: time.Second, lost: true, want: []string{"a"}},
		"until the process leads no more":  {takes: time.Second, ends: true, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lost := map[string]bool{}
				l := &slowMarks{takes: c.takes, meanwhile: func() {
					if lost[nodeA] = c.lost; c.ends {
						cancel()
					}
				}}
				r := &EvacuationReconciler{shared: shared{clock: clock.RealClock{}}, failsOver: func(node string) bool { return lost[node] }}
				in := evacuation.Input{}
				in.Linstor.Asked = time.Now()
				refused := newMarker(l, metrics.New()).mark(ctx, r.mayChange(nodeA, in), "a", []string{"a", "b"})
				if !slices.Equal(l.sent, c.want) || len(refused)+len(l.sent) != 2 {
					t.Errorf("marked %v, not %v; want %v", l.sent, refused, c.want)
				}
			})
		})
	}
}

// That there was no time for all is no refusal of LINSTOR's: the next look goes on at once, however many there are.
func TestMarksForWhichThereWasNoTimeAreNoFailure(t *testing.T) {
	for name, c := range map[string]struct {
		refuses string
		want    string
	}{
		"LINSTOR refuses nothing": {"", ""},
		"LINSTOR refuses one":     {"a", "a: answered 500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &slowMarks{takes: evacuation.Properties.MaxAge() + 1, meanwhile: func() {}, refuses: c.refuses}
				r := &EvacuationReconciler{shared: shared{clock: clock.RealClock{}}, failsOver: func(string) bool { return false }}
				in := evacuation.Input{}
				in.Linstor.Asked = time.Now()
				words := newMarker(l, metrics.New()).do(t.Context(), r.mayChange(nodeA, in), evacuation.Step{Node: "a", Mark: []string{"a", "b", "c"}})
				if words != c.want || len(l.sent) != 1 {
					t.Errorf("LINSTOR has refused %q, want %q; it was told of %v", words, c.want, l.sent)
				}
			})
		})
	}
}
