package controllers

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// cable is a process's own connection to LINSTOR, which can be cut while that of others holds.
type cable struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func (c *cable) dial(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c.mu.Lock()
		isCut := c.isCut
		c.mu.Unlock()
		if isCut {
			return nil, errors.New("no route to host")
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
		return conn, nil
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}

// A leader that LINSTOR has left, and that the API has not, does not act on what it knew before, and keeps its leadership
// although other replicas have LINSTOR: nothing moves. The metric says why, and so does the log where the loss was seen before.
// Everything is made up for when the leader has LINSTOR again, or does not lead any more.
func TestALeaderThatLinstorHasLeft(t *testing.T) {
	ends := map[string]func(first, second *process) (leader *process, limit time.Duration){
		"until it is back": func(first, _ *process) (*process, time.Duration) {
			first.cable.mend()
			return first, 30 * time.Second
		},
		"until it is told to end": func(first, second *process) (*process, time.Duration) {
			first.stops()
			return second, 20 * time.Second
		},
	}
	for when, during := range map[string]time.Duration{
		"before the crash": -30 * time.Second, "before the loss is known": 5 * time.Second, "during the grace": 10500 * time.Millisecond,
	} {
		for until, end := range ends {
			t.Run(when+" "+until, func(t *testing.T) {
				electedPair(t, func(w *world, first, second *process, _ <-chan struct{}) {
					crash := time.AfterFunc(max(0, -during), func() { w.Crash(nodeA) })
					defer crash.Stop()
					w.pass(max(0, during))
					first.cable.cut()
					w.pass(3 * time.Minute)
					w.wantUntouched()
					if holder := w.holder(); holder != first.name {
						t.Errorf("%q holds the Lease, want the first: LINSTOR has no say in the election", holder)
					}
					if !disconnected(w, first) || disconnected(w, second) {
						t.Errorf("the metrics do not say which of the two is without LINSTOR:\n%s\n\n%s", first.metrics(), second.metrics())
					}
					if told := w.told(first, "Decided", "Undecided"); told != (during > 10*time.Second) {
						t.Errorf("the log says that the loss is not known any more: %t; it was known after ten seconds", told)
					}
					leader, limit := end(first, second)
					w.wantMovedCleanly(limit, leader)
				})
			})
		}
	}
}

// The same in the act: a pod is not removed by what LINSTOR said before the taint was set.
func TestALeaderThatLinstorLeavesInTheAct(t *testing.T) {
	for _, write := range writes[:2] {
		t.Run("when it could "+write.String(), func(t *testing.T) {
			pair(t, defaults(), func(w *world, first, _ *process) {
				var once sync.Once
				w.ofController(func(r apimodel.Request) error {
					if needs(r) == write {
						once.Do(func() {
							first.cable.cut()
							<-time.After(failover.MaxAge + time.Second) // what was read before is old then
						})
					}
					return nil
				})
				w.Crash(nodeA)
				w.pass(2 * time.Minute)
				if uids := w.removed("db-0"); len(uids) > 0 {
					t.Error("the pod was removed by what LINSTOR had said before")
				}
				if !disconnected(w, first) {
					t.Error("the metric does not say that LINSTOR is not there")
				}
				first.cable.mend()
				w.wantMovedCleanly(30*time.Second, first)
			})
		})
	}
}
