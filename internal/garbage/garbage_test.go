package garbage

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Collections that follow each other closely are a load, which is over when none has come for a while.
func TestThePaceFollowsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var done []string
		do := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, what)
		}
		expect := func(when string, want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(done, want) {
				t.Fatalf("%s: %v, want %v", when, done, want)
			}
		}
		p := &pace{apply: func(percent int) { do(fmt.Sprint(percent, " %")) }, release: func() { do("release") }}
		after := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			p.collected(time.Now())
		}
		after(0)
		after(time.Minute)
		after(2 * time.Minute)
		expect("rare collections")
		after(time.Second)
		for range 10 {
			after(calmAfter - time.Second)
		}
		expect("under load", "100 %")
		time.Sleep(calmAfter)
		synctest.Wait()
		expect("after it", "100 %", "30 %", "release")
		after(0) // the collection by which memory was released
		after(time.Minute)
		expect("later", "100 %", "30 %", "release")
	})
}

func TestEachCollectionIsNoticed(t *testing.T) {
	noticed := make(chan struct{})
	done := make(chan struct{})
	afterEachCollection(func() {
		select {
		case noticed <- struct{}{}:
		case <-done:
		}
	})
	defer close(done)
	for n := 0; n < 3; {
		runtime.GC()
		select {
		case <-noticed:
			n++
		default:
			runtime.Gosched() // it is told a moment later
		}
	}
}
