package controllers

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// unreadable has the API refuse a kind of read to the controller.
func (e *evacuating) unreadable(verb apimodel.Verb, kind string) {
	e.API.Fail(func(r apimodel.Request) error {
		if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == verb && r.Kind == kind {
			return errors.New("etcdserver: request timed out")
		}
		return nil
	})
}

// While it cannot be read what is so of a node, nobody says that it may be switched off.
func TestStoryOfANodeThatCannotBeRead(t *testing.T) {
	stale := func(e *evacuating) bool { return e.says(nodeA, evacuation.StorageSafe) == "Unknown LinstorStale" }
	for name, test := range map[string]struct {
		begins, ends func(*evacuating)
		within       time.Duration
	}{
		"the API does not give the node": {
			func(e *evacuating) { e.unreadable(apimodel.VerbGet, "Node") }, func(e *evacuating) { e.API.Fail(nil) },
			evacuation.Interval + 10*time.Second,
		},
		"the API does not give pods": {
			func(e *evacuating) { e.unreadable(apimodel.VerbList, "Pod") }, func(e *evacuating) { e.API.Fail(nil) },
			evacuation.Interval + 10*time.Second,
		},
		"LINSTOR does not answer": {
			func(e *evacuating) {
				e.Linstor.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/v1/view/resources" {
						hold(r, time.Hour)
					}
					return false
				})
			}, func(e *evacuating) { e.Linstor.Intercept(e.note) },
			evacuation.Interval + 31*time.Second,
		},
		"LINSTOR has not all that a copy takes": {
			func(e *evacuating) {
				e.Linstor.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/v1/resource-groups" {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, "[]")
					}
					return r.URL.Path == "/v1/resource-groups"
				})
				e.Crash(nodeB)
			}, func(e *evacuating) {
				e.Linstor.Intercept(e.note)
				e.Return(nodeB)
			},
			evacuation.Interval + 30*time.Second, // LINSTOR has to find out that B has crashed
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			cfg.OperationsTimeout = 2 * time.Minute
			inEvacuation(t, cfg, func(e *evacuating, _ *process) {
				e.SetAffinityController(e.ctx, true)
				e.aFullNode()
				e.taint(nodeA, "")
				e.safe(nodeA, 2*time.Minute)
				test.begins(e)
				e.until(test.within, "nobody calls it safe", func() bool { return stale(e) })
				if got := e.says(nodeA, evacuation.StorageEvacuated); got != "Unknown LinstorStale" {
					t.Errorf("the node is %s", got)
				}
				writes := e.statusWrites()
				e.pass(5 * time.Minute)
				if n := e.statusWrites() - writes; n > 2 || !stale(e) {
					t.Errorf("the node is %s after %d writes more", e.says(nodeA, evacuation.StorageSafe), n)
				}
				test.ends(e)
				e.safe(nodeA, 3*time.Minute)
				e.untaint(nodeA)
				e.returned(nodeA)
			})
		})
	}
}

// What cannot be read for a moment is what it was.
func TestStoryOfAReadThatFailsOnce(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "")
		e.safe(nodeA, 2*time.Minute)
		writes := e.statusWrites()
		var failed atomic.Int32
		e.API.Fail(func(r apimodel.Request) error {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbGet && r.Kind == "Node" && failed.Add(1) <= 3 {
				return errors.New("etcdserver: leader changed")
			}
			return nil
		})
		e.pass(time.Minute)
		if n := e.statusWrites() - writes; n > 0 || failed.Load() < 3 {
			t.Errorf("the node is %s after %d reads and %d writes", e.says(nodeA, evacuation.StorageSafe), failed.Load(), n)
		}
	})
}

// The API takes no annotation of the node, but its status: a node whose copy is lost is not called safe, whatever else cannot be written.
func TestStoryOfAnAnnotationThatIsRefused(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.SetAffinityController(e.ctx, true)
		e.aFullNode()
		e.taint(nodeA, "last-copies")
		e.safe(nodeA, 2*time.Minute)
		e.API.Fail(func(r apimodel.Request) error {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbPatch && r.Kind == "Node" && !r.Status {
				return errors.New("admission webhook denied the request")
			}
			return nil
		})
		e.Crash(nodeB)
		e.until(time.Minute, "nobody calls it safe", func() bool { return !strings.HasPrefix(e.says(nodeA, evacuation.StorageSafe), "True") })
		if n := e.told(evacuation.Autoplace, "pvc-db"); n > 0 {
			t.Errorf("%d copies were made of which nobody could know what for", n)
		}
		e.API.Fail(nil)
		e.Return(nodeB)
		e.safe(nodeA, 3*time.Minute)
	})
}

// Marks that cannot be read or set keep a copy from being made, and LINSTOR is not asked for them each second.
func TestStoryOfAMarkThatIsRefused(t *testing.T) {
	inEvacuation(t, defaults(), func(e *evacuating, _ *process) {
		e.volume("local", onlyOnA)
		e.pass(2 * time.Minute)
		ends := e.refuses(http.MethodPut, "/pvc-local")
		e.taint(nodeA, "last-copies")
		e.pass(5*time.Minute + 5*time.Second)
		if n := e.told(evacuation.Properties, ""); n > 6 || e.told(evacuation.Autoplace, "") > 0 {
			t.Errorf("LINSTOR was told %v in five minutes", e.calls)
		}
		c := cluster.EvacuationConditions(e.node(nodeA)).Safe
		if c.Reason != evacuation.NoTarget || !strings.Contains(c.Message, "database is locked") {
			t.Errorf("the node is %+v", c)
		}
		ends()
		e.until(2*time.Minute, "a copy is made", func() bool { return e.told(evacuation.Autoplace, "pvc-local") == 1 })
	})
}
