package garbage

import (
	"runtime"
	"slices"
	"testing"
)

const mib = 1 << 20

func TestGarbageGoesWhileLittleGoesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		now  heap
		want bool
	}{
		"nothing has changed":            {heap{allocated: 1000 * mib, objects: 100 * mib, live: 100 * mib}, false},
		"a little garbage":               {heap{allocated: 1010 * mib, objects: 110 * mib, live: 100 * mib}, false},
		"more garbage":                   {heap{allocated: 1020 * mib, objects: 120 * mib, live: 100 * mib}, true},
		"what a storm has left":          {heap{allocated: 1001 * mib, objects: 250 * mib, live: 100 * mib}, true},
		"a storm":                        {heap{allocated: 1150 * mib, objects: 250 * mib, live: 100 * mib}, false},
		"nothing was collected so far":   {heap{allocated: 1001 * mib, objects: 90 * mib}, true},
		"a collection has just been it":  {heap{allocated: 1001 * mib, objects: 90 * mib, live: 100 * mib}, false},
		"memory that nothing is in":      {heap{allocated: 1001 * mib, objects: 100 * mib, live: 100 * mib, free: 20 * mib}, true},
		"a small process":                {heap{allocated: 1001 * mib, objects: 20 * mib, live: 10 * mib, free: 55 * mib}, false},
		"a small process that has grown": {heap{allocated: 1001 * mib, objects: 20 * mib, live: 10 * mib, free: 65 * mib}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			freed := false
			k := keeper{free: func() { freed = true }, allow: func(int) {}, last: heap{allocated: 1000 * mib}}
			if k.look(tc.now); freed != tc.want {
				t.Errorf("freed: %t, want %t", freed, tc.want)
			}
		})
	}
}

// A storm comes without notice: what the last one has left must not fill the room for the next.
func TestGarbageGoesBetweenStorms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		now  heap
		want bool
	}{
		"a storm is on":                      {heap{allocated: 1015 * mib, objects: 200 * mib, live: 100 * mib}, false},
		"a storm is over and has left much":  {heap{allocated: 1005 * mib, objects: 200 * mib, live: 100 * mib}, true},
		"it has left room for another":       {heap{allocated: 1005 * mib, objects: 160 * mib, live: 100 * mib}, false},
		"little is in use and there is room": {heap{allocated: 1000 * mib, objects: 25 * mib, live: 10 * mib}, false},
		"little is in use and there is none": {heap{allocated: 1000 * mib, objects: 35 * mib, live: 10 * mib}, true},
		"a rush in a small process":          {heap{allocated: 1001 * mib, objects: 35 * mib, live: 10 * mib}, false},
		"a collection has just been it":      {heap{allocated: 1000 * mib, objects: 90 * mib, live: 100 * mib}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collected := false
			k := keeper{collect: func() { collected = true }, allowed: percentOf(tc.now.live), glanced: 1000 * mib}
			if k.glance(tc.now); collected != tc.want {
				t.Errorf("collected: %t, want %t", collected, tc.want)
			}
		})
	}
}

func TestTheCollectorIsLeftAloneDuringTheStart(t *testing.T) {
	t.Parallel()
	k := keeper{collect: func() { t.Error("collected") }}
	k.glance(heap{allocated: mib, objects: 200 * mib, live: 10 * mib})
}

func TestTheStartIsOverWhenLittleGoesOn(t *testing.T) {
	t.Parallel()
	allowed := 0
	k := keeper{free: func() {}, allow: func(percent int) { allowed = percent }}
	k.look(heap{allocated: 500 * mib, objects: 200 * mib, live: 100 * mib})
	if allowed != 0 {
		t.Error("the start was over while much was allocated")
	}
	k.look(heap{allocated: 501 * mib, objects: 200 * mib, live: 100 * mib})
	if allowed != 200 {
		t.Errorf("%d %% of garbage may gather", allowed)
	}
}

func TestTheStartIsOverAfterAWhileAlsoWhereMuchGoesOn(t *testing.T) {
	t.Parallel()
	allowed := 0
	k := keeper{free: func() { t.Error("garbage was collected while much goes on") }, allow: func(percent int) { allowed = percent }}
	for i := range uint64(3) {
		if allowed != 0 {
			t.Errorf("the start was over after %d looks", i)
		}
		k.look(heap{allocated: 500 * (i + 1) * mib, objects: 200 * mib, live: 100 * mib})
	}
	if allowed != 200 {
		t.Errorf("%d %% of garbage may gather", allowed)
	}
}

func TestThereIsRoomForAStormWhereLittleIsInUse(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, mib: 1000, 16 * mib: 400, 32 * mib: 200, 100 * mib: 200} {
		if got := percentOf(live); got != want {
			t.Errorf("%d %% of garbage may gather beside %d MiB, want %d", got, live/mib, want)
		}
	}
}

// How much is in use changes all the time; the collector is told only of what makes a difference to it.
func TestWhatMayGatherIsSaidWhenItChanges(t *testing.T) {
	t.Parallel()
	var said []int
	k := keeper{free: func() {}, allow: func(percent int) { said = append(said, percent) }}
	for _, live := range []uint64{100, 110, 16, 16, 120} {
		k.look(heap{objects: live * mib, live: live * mib})
	}
	if want := []int{200, 400, 200}; !slices.Equal(said, want) {
		t.Errorf("said %d, want %d", said, want)
	}
}

// The names of the figures are those of Go.
func TestTheHeapIsKnown(t *testing.T) {
	t.Parallel()
	kept := make([]byte, mib)
	runtime.GC()
	if now := heapNow(); now.live < mib || now.objects < mib || now.allocated < mib {
		t.Errorf("%+v", now)
	}
	runtime.KeepAlive(kept)
}

// How much is free changes at any time, since Go gives it back to the system in the background: what counts is a moment in which it
// does not.
func TestWhatIsFreeIsKnown(t *testing.T) {
	t.Parallel()
	free := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapIdle - stats.HeapReleased
	}
	var before, known, after uint64
	for range 1000 {
		dropped := make([]byte, 4*mib)
		dropped[0] = 1
		runtime.GC()
		before, known, after = free(), heapNow().free, free()
		if before == after && known == before && known > 0 {
			return
		}
	}
	t.Errorf("%d bytes are free, between %d and %d by Go's statistics", known, before, after)
}
