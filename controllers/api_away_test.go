package controllers

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// The API server goes away during a loss, and comes back three minutes later. The controller has not fallen into a long wait meanwhile.
func TestAFailOverGoesOnAsSoonAsTheAPIServerIsBack(t *testing.T) {
	const within = 2 * time.Second
	for _, next := range []permission{toTaint, toDelete, toRelease} {
		for how, silent := range map[string]bool{"refuses connections": false, "answers no request": true} {
			for _, away := range []time.Duration{180 * time.Second, 181500 * time.Millisecond, 183 * time.Second} {
				t.Run(fmt.Sprintf("it %s for %s when the controller wants to %s", how, away, next), func(t *testing.T) {
					apiGoesAway(t, next, away, silent, within)
				})
			}
		}
	}
}

// apiGoesAway plays a loss during which the API server goes away when the controller wants to do its next write.
func apiGoesAway(t *testing.T, next permission, away time.Duration, silent bool, within time.Duration) {
	t.Helper()
	scene(t, func(w *world, p *process) {
		var back atomic.Pointer[time.Time] // nil until the API server goes away
		ours := func(r apimodel.Request) bool { return strings.HasPrefix(r.Actor, controllerActor) }
		begins := func(r apimodel.Request) bool {
			if ours(r) && needs(r) == next && back.Load() == nil {
				at := time.Now().Add(away)
				back.Store(&at)
				p.view.Pause()
			}
			return ours(r) && back.Load() != nil && time.Now().Before(*back.Load())
		}
		w.API.Delay(func(r apimodel.Request) time.Duration {
			if begins(r) && silent {
				return time.Until(*back.Load())
			}
			return 0
		})
		w.API.Fail(func(r apimodel.Request) error {
			if begins(r) {
				return errors.New("connection refused")
			}
			return nil
		})
		written := func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.changes {
				if needs(c.Request) == next {
					return c.Time
				}
			}
			return time.Time{}
		}
		w.Crash(nodeA)
		w.until(time.Minute, "the API server is away", func() bool { return back.Load() != nil })
		w.pass(time.Until(*back.Load()))
		p.view.Resume()
		w.until(time.Minute, "the controller could "+next.String(), func() bool { return !written().IsZero() })
		if took := written().Sub(*back.Load()); took > within {
			w.Errorf("the next step came %s after the API server was back, want %s", took, within)
		}
		w.until(20*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
	})
}
