// Package garbage has Go's garbage collector keep memory small while little goes on, and out of the way while much does.
package garbage

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// idlePercent is how much garbage may gather beside what is in use while little goes on, in percent. Nearly all of the
	// memory are caches that stay, so that collecting more often costs next to nothing then.
	idlePercent = 30
	// busyPercent is the same under load, as Go has it by default: with little garbage allowed a storm of events would spend a
	// third of its time on collections, and wait for them.
	busyPercent = 100
	// busyApart is how far collections are apart under load at most.
	busyApart = 3 * time.Second
	// calmAfter is how long there must have been no collection for the load to be over. Then memory is given back.
	calmAfter = 10 * time.Second
)

// Pace adapts the collector to the load from now on, for as long as the process runs. It must be called at most once, and not
// where the user has set GOGC.
func Pace() {
	p := &pace{apply: func(percent int) { debug.SetGCPercent(percent) }, release: debug.FreeOSMemory}
	p.apply(idlePercent)
	afterEachCollection(func() { p.collected(time.Now()) })
}

// pace is what is known of the load: how far collections are apart.
type pace struct {
	apply   func(percent int)
	release func()

	mu   sync.Mutex
	last time.Time
	calm *time.Timer // runs while the process is busy
}

// collected takes note of a collection.
func (p *pace) collected(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apart := now.Sub(p.last)
	p.last = now
	switch {
	case p.calm != nil:
		p.calm.Reset(calmAfter)
	case apart <= busyApart:
		p.apply(busyPercent)
		p.calm = time.AfterFunc(calmAfter, p.calmed)
	}
}

// calmed ends the time of load.
func (p *pace) calmed() {
	p.mu.Lock()
	p.calm, p.last = nil, time.Time{} // the collection that follows is no sign of load
	p.apply(idlePercent)
	p.mu.Unlock()
	p.release()
}

// afterEachCollection calls f after each collection, for ever.
func afterEachCollection(f func()) {
	// The collector finds the object unused, and tells so; telling makes it used until the next time.
	type canary struct{ _ *byte }
	var sung func(*canary)
	sung = func(c *canary) {
		f()
		runtime.SetFinalizer(c, sung)
	}
	runtime.SetFinalizer(&canary{}, sung)
}
