// Package garbage keeps a process small while little goes on, and Go's garbage collector out of the way while much does.
package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// percent is how much garbage may gather at least beside what is in use, in percent. A storm of events takes place within
	// that: with little garbage allowed it would spend a third of its time on collections, and wait for them.
	percent = 200
	// room is how many bytes of garbage may gather at least; where little is in use, that is more.
	room = 64 << 20
	// startPercent is how much may gather in percent until the start is over: what is read then is several times of what stays.
	startPercent = 50
	// startLooks is how many looks after the start it is over at the latest, also where much goes on.
	startLooks = 3
	// every is how often it is seen whether garbage has to go before the collector begins by itself.
	every = 10 * time.Second
	// tolerated is how much garbage is left alone, as a share of what is in use: nearly all of that are caches that stay, so that
	// collecting often costs little while little goes on.
	tolerated = 0.15
	// kept is how many bytes of heap a process may keep in any case, garbage and free memory included: what was given back has to be
	// fetched page by page when it is needed again, which is when much happens at the same time. Where little is in use that is the
	// room for a storm; in a large cluster it is less than what is in use.
	kept = 80 << 20
	// busy is how many bytes have been allocated since the last look while more goes on than that.
	busy = 100 << 20
	// glances is how often it is seen between two looks whether there is room for a storm.
	glances = 40
	// calm is how much is allocated at most between two glances while no storm is on, as a share of what is in use. Glances are
	// close to each other so that the beginning of a storm is soon seen.
	calm = 0.075
	// filled is how much of what may gather is there at most when a storm begins, as a share. Where the collector has to begin in
	// the midst of one, with two processors for all, one event in a hundred waits several times as long for its decision.
	filled = 1. / 3
)

// Keep keeps the process small until ctx ends. It must be called once at most, and not where the user has set GOGC.
func Keep(ctx context.Context) {
	defer debug.SetGCPercent(debug.SetGCPercent(startPercent))
	ticker := time.NewTicker(every / glances)
	defer ticker.Stop()
	k := keeper{free: debug.FreeOSMemory, collect: runtime.GC, allow: func(percent int) { debug.SetGCPercent(percent) }}
	for ticks := 1; ; ticks++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.glance(heapNow())
			if ticks%glances == 0 {
				k.look(heapNow())
			}
		}
	}
}

// heap is the state of the heap, in bytes.
type heap struct {
	// allocated is what was allocated in all since the start of the process.
	allocated uint64
	// objects is what is there now, garbage included; live is what was in use when garbage was collected last.
	objects, live uint64
	// free is the memory that nothing is in and that was not given back to the system.
	free uint64
}

func heapNow() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64()}
}

// keeper decides when garbage has to go.
type keeper struct {
	// free collects garbage and gives the memory back to the system.
	free func()
	// collect only collects garbage.
	collect func()
	// allow says how much garbage may gather beside what is in use, in percent.
	allow func(percent int)
	last  heap
	// looks are those since the start, until that is over.
	looks   int
	allowed int
	// glanced is what was allocated until the last glance.
	glanced uint64
}

// glance collects what a storm has left once it is over, so that there is room for the next one.
func (k *keeper) glance(now heap) {
	allocated := now.allocated - k.glanced
	k.glanced = now.allocated
	if k.allowed == 0 || float64(allocated) > calm*float64(now.live) {
		return
	}
	if garbage, may := float64(now.objects)-float64(now.live), float64(now.live)*float64(k.allowed)/100; garbage > filled*may {
		k.collect()
	}
}

func (k *keeper) look(now heap) {
	quiet := now.allocated-k.last.allocated < busy
	k.last = now
	k.looks++
	if quiet {
		k.looks = max(k.looks, startLooks)
	}
	if percent := percentOf(now.live); k.looks >= startLooks && percent != k.allowed {
		k.allowed = percent
		k.allow(percent)
	}
	if total := now.objects + now.free; quiet && float64(total) > max(kept, (1+tolerated)*float64(now.live)) {
		k.free()
	}
}

// percentOf is how much garbage may gather beside so many bytes in use, in percent.
func percentOf(live uint64) int {
	return max(percent, int(100*room/max(live, room/10))) //nolint:gosec // at most 1000
}
