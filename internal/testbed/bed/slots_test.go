package bed

import (
	"context"
	"testing"
	"time"
)

func TestNoMoreCallersGoOnThanThereAreSlots(t *testing.T) {
	t.Parallel()
	// Two of the same folder, as two processes have them: each slot is a lock on a file of its own opening.
	one := Slots{Dir: t.TempDir(), N: 2}
	other := one
	_, first := taken(t, one)
	number, second := taken(t, other)

	brief, cancel := context.WithTimeout(t.Context(), slotPoll)
	defer cancel()
	if _, release, err := one.Take(brief); err == nil {
		release()
		t.Fatal("a third one may go on beside two, want it to wait")
	}

	type slot struct {
		number  int
		release func()
	}
	waiting := make(chan slot)
	go func() {
		number, release := taken(t, one)
		waiting <- slot{number, release}
	}()
	second()
	select {
	case got := <-waiting:
		if got.number != number {
			t.Errorf("it has slot %d, want %d, which became free", got.number, number)
		}
		got.release()
	case <-time.After(time.Minute):
		t.Error("nobody was let in when a slot became free")
	}
	first()
}

// taken returns a slot that is free now or soon, and what gives it back.
func taken(t *testing.T, s Slots) (number int, release func()) {
	t.Helper()
	number, release, err := s.Take(t.Context())
	if err != nil {
		t.Error(err)
		return 0, func() {}
	}
	return number, release
}

// Two beds of two test runs, which start at the same moment, must not choose the same port: none is taken before its process listens.
func TestTwoBedsHaveNoPortInCommon(t *testing.T) {
	t.Parallel()
	used := map[int]bool{}
	for range 2 {
		b := &Bed{}
		if err := b.reservePorts(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Stop)
		all, err := b.freePorts(portBlock / 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range all {
			if used[port] || port < firstPort || port >= endPort {
				t.Errorf("port %d is given again, or is not from %d to %d", port, firstPort, endPort)
			}
			used[port] = true
		}
	}
}
