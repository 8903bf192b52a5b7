package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
)

// slowAbout is a LINSTOR that answers after a while about each resource, and never about others.
type slowAbout struct {
	noLinstor
	takes map[string]time.Duration
}

func (l slowAbout) Refresh(ctx context.Context, name string, _ time.Duration) (linstor.Resource, error) {
	var answer <-chan time.Time
	if takes, answers := l.takes[name]; answers {
		answer = time.After(takes)
	}
	select {
	case <-answer:
		return linstor.Resource{}, nil
	case <-ctx.Done():
		return linstor.Resource{}, ctx.Err()
	}
}

// A look waits for LINSTOR until its time is over. Where it knows all of no volume by then, it waits for the first answer, and a moment for
// each further one, unless more is lost on the node.
func TestHowLongALookWaitsForLinstor(t *testing.T) {
	t.Parallel()
	const s, never = time.Second, time.Hour
	for name, tc := range map[string]struct {
		takes map[string]time.Duration
		// more is when more is lost on the node.
		more, want time.Duration
		known      []string
	}{
		"all answers come in time":               {map[string]time.Duration{"db": s / 2, "wal": s / 4}, never, s / 2, []string{"db", "wal"}},
		"one answer comes late":                  {map[string]time.Duration{"db": s / 2, "wal": 2 * s}, never, s, []string{"db"}},
		"both come late":                         {map[string]time.Duration{"db": 2 * s, "wal": 5 * s}, never, 2*s + lastWords, []string{"db"}},
		"both come late, one soon after another": {map[string]time.Duration{"db": 2 * s, "wal": 2*s + lastWords/2}, never, 2*s + lastWords/2, []string{"db", "wal"}},
		"no answer comes":                        {nil, never, never, nil},
		"no answer comes, and more is lost":      {nil, 3 * s, 3 * s, nil},
		"no answer comes, and more was lost":     {nil, s / 2, s, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), never)
				defer cancel()
				more := make(chan struct{})
				time.AfterFunc(tc.more, func() { close(more) })
				w := newWords(slowAbout{takes: tc.takes}, 0)
				defer close(w.over)
				volumes := []*volume{{resources: []string{"db"}}, {resources: []string{"wal"}}}
				began := time.Now()
				w.ask(ctx, ctx, volumes)
				w.wait(ctx, began.Add(s), more, volumes)
				var known []string
				for _, v := range volumes {
					if v.err == nil {
						known = append(known, v.resources[0])
					}
				}
				if took := time.Since(began); took != tc.want || !slices.Equal(known, tc.known) {
					t.Errorf("it waits for %s and knows %v, want %s and %v", took, known, tc.want, tc.known)
				}
			})
		})
	}
}

// That LINSTOR does not have another resource of the pods is an answer. That it does not have the one that is looked at is none.
func TestWhichAnswersALookNeeds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		known map[string]error
		whole bool
	}{
		"it has answered about both":                    {map[string]error{"db": nil, "wal": nil}, true},
		"it has not answered about the other one":       {map[string]error{"db": nil}, false},
		"it has not the other one":                      {map[string]error{"db": nil, "wal": linstor.ErrNotFound}, true},
		"it has not the one itself":                     {map[string]error{"db": linstor.ErrNotFound, "wal": nil}, false},
		"it has answered with an error about the other": {map[string]error{"db": nil, "wal": errors.New("no")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &words{known: tc.known}
			if err := w.errorOf(&volume{resources: []string{"db", "wal"}}); (err == nil) != tc.whole {
				t.Errorf("%v, want all to be known: %t", err, tc.whole)
			}
		})
	}
}
