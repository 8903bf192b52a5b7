package linstor

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
)

// turn is a reading of one resource that somebody waits for. Those of a caller that asks for many resources come before those of the next
// caller: it has all it needs that much sooner.
type turn struct {
	caller int64
	begins chan struct{}
}

type callerKey struct{}

var lastCaller atomic.Int64

// Together returns a context for a caller that asks for many resources: they are read before those of whoever asks later.
func Together(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, lastCaller.Add(1))
}

func callerOf(ctx context.Context) int64 {
	if caller, ok := ctx.Value(callerKey{}).(int64); ok {
		return caller
	}
	return lastCaller.Add(1)
}

// turn waits until it is the caller's turn to read a resource, which lasts until done is called. atOnce have it at a time, whatever is read
// for others: a reading that hangs keeps nobody from an act.
func (s *schedule) turn(ctx context.Context) (done func(), err error) {
	one := &turn{caller: callerOf(ctx), begins: make(chan struct{})}
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
	defer s.mu.Unlock()
	if i := slices.Index(s.turns, one); i >= 0 {
		s.turns = slices.Delete(s.turns, i, i+1)
	} else { // it has come at the same time
		s.acting--
		s.giveTurns()
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

// giveTurns lets begin who may. The lock must be held.
func (s *schedule) giveTurns() {
	for len(s.turns) > 0 && s.acting < atOnce {
		close(s.turns[0].begins)
		s.turns = s.turns[1:]
		s.acting++
	}
}

// mayRead reports whether a resource may be read for which nobody waits. The lock must be held.
func (s *schedule) mayRead() bool {
	if len(s.turns) > 0 {
		return s.reading < spared
	}
	return s.acting+s.reading < atOnce || s.reading < spared
}
