package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// marker changes our marks on resource definitions. A mark is a list of nodes in one property: of two who read it, and then write what they
// make of it, the second would take away what the first has added. So that is done one after the other, and each reads what is there then.
type marker struct {
	places  LinstorPlaces
	metrics *metrics.Metrics
	turn    *semaphore.Weighted
}

func newMarker(places LinstorPlaces, m *metrics.Metrics) *marker {
	return &marker{places: places, metrics: m, turn: semaphore.NewWeighted(1)}
}

// change reads definitions and writes to each what is wanted of it; nil is nothing. It returns LINSTOR's words on those that it has not changed, by
// their names in lower case; an error means that nothing was changed. Each change may take its time: before each it is asked whether it may still be sent.
func (m *marker) change(
	ctx context.Context, may func() bool, read func(context.Context) ([]evacuation.Mark, error), wanted func(evacuation.Mark) *evacuation.Change,
) (refused map[string]string, err error) {
	if err := m.turn.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("waiting for the turn to mark resource definitions: %w", err)
	}
	defer m.turn.Release(1)
	marks, err := read(ctx)
	if err != nil {
		return nil, err
	}
	refused = make(map[string]string)
	for _, mark := range marks {
		change := wanted(mark)
		if change == nil {
			continue
		}
		if ctx.Err() != nil || !may() {
			refused[strings.ToLower(change.Resource)] = notTold
			continue
		}
		answer, err := m.places.ChangeDefinition(ctx, *change)
		if words := answered(ctx, m.metrics, evacuation.Properties, change.Resource, answer, err); words != "" {
			refused[strings.ToLower(change.Resource)] = words
		}
	}
	return refused, nil
}

// mark marks definitions for a node, by its entry. It returns LINSTOR's words on those that have no mark now, by their names in lower case.
func (m *marker) mark(ctx context.Context, may func() bool, entry string, definitions []string) (refused map[string]string) {
	if len(definitions) == 0 {
		return nil
	}
	refused, err := m.change(ctx, may,
		func(ctx context.Context) ([]evacuation.Mark, error) { return m.places.MarksOf(ctx, definitions) },
		func(mark evacuation.Mark) *evacuation.Change { return mark.With(entry) })
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot mark resource definitions to keep copies of them from LINSTOR's balancing")
		refused = make(map[string]string, len(definitions))
		for _, name := range definitions {
			refused[strings.ToLower(name)] = oneLine(err)
		}
	}
	return refused
}

// do marks definitions, or takes marks off, as a step says. It returns why LINSTOR has not done all; empty where it has, or was
// not told of the rest.
func (m *marker) do(ctx context.Context, may func() bool, step evacuation.Step) string {
	if len(step.Mark) == 0 {
		return m.unmark(ctx, may, step.Entry, step.Unmark)
	}
	return notDone(ctx, m.mark(ctx, may, step.Entry, step.Mark), nil)
}

// unmark takes the mark for a node, by its entry, off definitions. It returns why LINSTOR has not taken all off; empty
// where it has, or was not told of the rest.
func (m *marker) unmark(ctx context.Context, may func() bool, entry string, definitions []string) string {
	refused, err := m.change(ctx, may, m.places.Marks, func(mark evacuation.Mark) *evacuation.Change {
		if !slices.Contains(definitions, mark.Resource) {
			return nil
		}
		return mark.Without(entry)
	})
	return notDone(ctx, refused, err)
}

// notTold is why LINSTOR was not told of a change. It has refused nothing: the next look tells it.
const notTold = "LINSTOR was not told: that took so long that all may be different"

// notDone is why LINSTOR has not changed marks, in words; empty where it has, or was not told.
func notDone(ctx context.Context, refused map[string]string, err error) string {
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot change the marks of resource definitions")
		return oneLine(err)
	}
	words := make([]string, 0, len(refused))
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if refused[name] != notTold {
			words = append(words, name+": "+refused[name])
		}
	}
	return strings.Join(firstOf(words), "; ")
}
