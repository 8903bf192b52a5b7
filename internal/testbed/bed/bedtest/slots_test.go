package bedtest

import (
	"context"
	"testing"
	"time"
)

func TestNoMoreBedsRunThanThereAreSlots(t *testing.T) {
	t.Parallel()
	// Two of the same folder, as two processes have them: each slot is a lock on a file of its own opening.
	one := slots{dir: t.TempDir(), n: 2}
	other := one
	first := taken(t, one)
	second := taken(t, other)

	brief, cancel := context.WithTimeout(t.Context(), slotPoll)
	defer cancel()
	if release, err := one.take(brief); err == nil {
		release()
		t.Fatal("a third bed may run beside two, want it to wait")
	}

	waiting := make(chan func())
	go func() { waiting <- taken(t, one) }()
	second()
	select {
	case release := <-waiting:
		release()
	case <-time.After(time.Minute):
		t.Error("nobody was let in when a slot became free")
	}
	first()
}

// taken returns what gives a slot back that is free now or soon.
func taken(t *testing.T, s slots) (release func()) {
	t.Helper()
	release, err := s.take(t.Context())
	if err != nil {
		t.Error(err)
		return func() {}
	}
	return release
}
