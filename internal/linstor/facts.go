package linstor

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const (
	// MaxGap is the longest time between two readings of a fact for which it counts as uninterrupted.
	MaxGap = 10 * time.Second
	// unsureGap is the same if an event brought news in between, or may have been missed: events report that something happened, but not
	// what happened to each fact.
	unsureGap = 3 * time.Second
)

// The policy owns these types. The store hands them out.
type (
	// Resource is all that is known of a resource definition.
	Resource = failover.Resource
	// Replica is what one node has of it.
	Replica = failover.Replica
	// Fact is one value, and how long it has held.
	Fact[T comparable] = failover.Fact[T]
)

// span is when a read took place. Its values were true at some moment between start and end.
//
// A fact that was read is confirmed at start, and a new one has held since end. So time in which it may not have held never counts.
//
// unsure is set if an event brought news since the reading before, or may have been missed.
type span struct {
	start, end time.Time
	unsure     bool
}

func (s span) gap() time.Duration {
	if s.unsure {
		return unsureGap
	}
	return MaxGap
}

// instant is the span of an event, which is true when it arrives.
func instant(at time.Time) span { return span{start: at, end: at} }

// observe returns the fact after an observation; a nil value means unknown.
//
//   - An observation older than the newest one changes nothing: the newer one knew better.
//   - The same value (unknown counts as one) within MaxGap confirms it, or within unsureGap if it is unsure what happened meanwhile.
//   - Anything else restarts the clock.
func observe[T comparable](fact Fact[T], value *T, at span) Fact[T] {
	if at.start.Before(fact.Confirmed) {
		return fact
	}
	seen := Fact[T]{Since: at.end, Confirmed: at.start}
	if value != nil {
		seen.Value, seen.Known = *value, true
	}
	if same(fact, seen) && !fact.Confirmed.IsZero() && at.start.Sub(fact.Confirmed) <= at.gap() {
		seen.Since = fact.Since
	}
	return seen
}

// same reports whether two facts have the same value, since whenever they have it.
func same[T comparable](a, b Fact[T]) bool {
	return a.Known == b.Known && (!a.Known || a.Value == b.Value)
}
