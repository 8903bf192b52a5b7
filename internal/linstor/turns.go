package linstor

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
)

// turn is a live read of one resource. All those of one caller come before those of the next, so each caller has everything it needs as early
// as possible.
type turn struct {
	caller int64
	begins chan struct{}
}

type callerKey struct{}

var lastCaller atomic.Int64

// Together returns a context for a caller that asks for many resources. They are read before those of later callers.
func Together(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, lastCaller.Add(1))
}

// turn waits until the caller may read a resource, and is over when done is called. atOnce callers have a turn at a time, whatever else is
// read: a poll that hangs delays no act.
func (s *schedule) turn(ctx context.Context) (done func(), err error) {
	caller, _ := ctx.Value(callerKey{}).(int64)
	one := &turn{caller: cmp.Or(caller, lastCaller.Add(1)), begins: make(chan struct{})}
	s.mu.Lock()
	at, _ := slices.BinarySearchFunc(s.turns, one.caller+1, func(t *turn, caller int64) int { return cmp.Compare(t.caller, caller) })
	s.turns = slices.Insert(s.turns, at, one)
	s.giveTurns()
	s.mu.Unlock()
	select {
	case <-one.begins:
		return s.turnEnds, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.turns, one)
	if i >= 0 {
		s.turns = slices.Delete(s.turns, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it began at the same time
		s.turnEnds()
	}
	return nil, ctx.Err()
}

func (s *schedule) turnEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acting--
	s.giveTurns()
	s.ring()
}

// giveTurns gives turns to the first callers. The lock must be held.
func (s *schedule) giveTurns() {
	for len(s.turns) > 0 && s.acting < atOnce {
		close(s.turns[0].begins)
		s.turns = s.turns[1:]
		s.acting++
	}
}

// mayRead reports whether a resource may be read that no act waits for. The lock must be held.
func (s *schedule) mayRead() bool {
	return s.reading < spared || len(s.turns) == 0 && s.acting+s.reading < atOnce
}
