package garbage

import (
	"runtime"
	"testing"
)

const mib = 1 << 20

func TestGarbageGoesWhileLittleGoesOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		now  heap
		want bool
	}{
		"nothing has changed":           {heap{allocated: 1000 * mib, objects: 100 * mib, live: 100 * mib}, false},
		"a little garbage":              {heap{allocated: 1010 * mib, objects: 110 * mib, live: 100 * mib}, false},
		"more garbage":                  {heap{allocated: 1020 * mib, objects: 120 * mib, live: 100 * mib}, true},
		"what a storm has left":         {heap{allocated: 1001 * mib, objects: 250 * mib, live: 100 * mib}, true},
		"a storm":                       {heap{allocated: 1150 * mib, objects: 250 * mib, live: 100 * mib}, false},
		"nothing was collected so far":  {heap{allocated: 1001 * mib, objects: 50 * mib}, true},
		"a collection has just been it": {heap{allocated: 1001 * mib, objects: 90 * mib, live: 100 * mib}, false},
		"memory that nothing is in":     {heap{allocated: 1001 * mib, objects: 100 * mib, live: 100 * mib, free: 20 * mib}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			freed := false
			k := keeper{free: func() { freed = true }, last: heap{allocated: 1000 * mib}}
			if k.look(tc.now); freed != tc.want {
				t.Errorf("freed: %t, want %t", freed, tc.want)
			}
		})
	}
}

func TestTheStartIsOverWhenLittleGoesOn(t *testing.T) {
	t.Parallel()
	settled := 0
	k := keeper{free: func() {}, settled: func() { settled++ }}
	k.look(heap{allocated: 500 * mib, objects: 200 * mib, live: 100 * mib})
	if settled != 0 {
		t.Error("the start was over while much was allocated")
	}
	for range 3 {
		k.look(heap{allocated: 501 * mib, objects: 200 * mib, live: 100 * mib})
	}
	if settled != 1 {
		t.Errorf("the start was over %d times", settled)
	}
}

// The names of the figures are those of Go.
func TestTheHeapIsKnown(t *testing.T) {
	t.Parallel()
	kept := make([]byte, mib)
	runtime.GC()
	if now := heapNow(); now.live < mib || now.objects < mib || now.allocated < mib || now.free == 0 {
		t.Errorf("%+v", now)
	}
	runtime.KeepAlive(kept)
}
