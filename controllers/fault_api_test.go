package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/apimodel"
)

// permission is one verb on one resource, as a role names it.
type permission struct{ verb, group, resource string }

func (p permission) String() string {
	return strings.Trim(p.verb+" "+p.group+"/"+p.resource, "/")
}

// needs returns the permission that a request needs.
func needs(r apimodel.Request) permission {
	p := permission{verb: string(r.Verb), resource: strings.ToLower(r.Kind) + "s"}
	switch r.Kind {
	case "VolumeAttachment":
		p.group = "storage.k8s.io"
	case "Deployment":
		p.group = "apps"
	}
	if r.Status {
		p.resource += "/status"
	}
	return p
}

// ofController lets requests of the controller fail.
func (w *world) ofController(fails func(apimodel.Request) error) {
	w.API.Fail(func(r apimodel.Request) error {
		if !strings.HasPrefix(r.Actor, controllerActor) {
			return nil
		}
		return fails(r)
	})
}

// writes are the writes of a fail-over, in their order.
var writes = []permission{
	{"patch", "", "nodes"},
	{"patch", "storage.k8s.io", "volumeattachments"},
	{"patch", "", "pods/status"},
	{"delete", "", "pods"},
	{"patch", "", "nodes/status"},
	{"delete", "storage.k8s.io", "volumeattachments"},
}

// Each write of a fail-over fails in each way that the API has, ten times. It is repeated, and the workload moves, once.
func TestFaultsOfWrites(t *testing.T) {
	for what, failure := range map[string]func() error{
		"409":       func() error { return apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("changed")) },
		"429":       func() error { return apierrors.NewTooManyRequests("later", 1) },
		"500":       func() error { return apierrors.NewInternalError(errors.New("broken")) },
		"a timeout": func() error { return fmt.Errorf("patch: %w", context.DeadlineExceeded) },
	} {
		for _, write := range writes {
			t.Run(what+" on "+write.String(), fault{
				begin: func(w *world, _ *process) {
					var mu sync.Mutex
					left := 10
					w.ofController(func(r apimodel.Request) error {
						mu.Lock()
						defer mu.Unlock()
						if needs(r) != write || left == 0 {
							return nil
						}
						left--
						mu.Unlock()
						defer mu.Lock()
						return failure()
					})
				},
				end:   func(w *world, _ *process) { w.API.Fail(nil) },
				limit: 90 * time.Second, lasts: 2 * time.Minute,
			}.befalls)
		}
	}
	for _, write := range writes {
		t.Run("an admission webhook that takes eight seconds on "+write.String(), fault{
			begin: func(w *world, _ *process) {
				var left atomic.Int64
				left.Store(10)
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if !strings.HasPrefix(r.Actor, controllerActor) || needs(r) != write || left.Add(-1) < 0 {
						return 0
					}
					return 8 * time.Second
				})
			},
			end:   func(w *world, _ *process) { w.API.Delay(nil) },
			limit: 90 * time.Second, lasts: 2 * time.Minute,
		}.befalls)
	}
}

// Each permission that the fail-over itself needs is missing, by itself: the controller says which, by verb and resource,
// in the log or in an Event, removes nothing that it could not finish safely, and goes on as soon as it has it.
func TestFaultsOfPermissions(t *testing.T) {
	reads := []permission{
		{"get", "apps", "deployments"}, {"get", "", "nodes"}, {"list", "", "pods"}, {"get", "storage.k8s.io", "volumeattachments"},
	}
	for _, missing := range slices.Concat(reads, writes) {
		// Without these the fail-over goes on: the condition is a courtesy, and Kubernetes detaches what was released or what
		// has no attachment any more by itself, if slowly.
		goesOn := strings.HasSuffix(missing.resource, "/status") || missing.verb == "delete" && missing.resource == "volumeattachments"
		limit := 30 * time.Second
		if missing.resource == "nodes/status" {
			limit = 90 * time.Second
		}
		t.Run(missing.String(), fault{
			cfg: func(cfg *Config) {
				cfg.PauseDeployment = types.NamespacedName{Namespace: "ha-controller", Name: "piraeus-ha-controller"}
			},
			begin: func(w *world, _ *process) {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ha-controller", Name: "piraeus-ha-controller"}}
				w.must(w.Client().Create(w.ctx, deployment))
				w.ofController(func(r apimodel.Request) error {
					if needs(r) != missing {
						return nil
					}
					return apierrors.NewForbidden(schema.GroupResource{Group: missing.group, Resource: missing.resource}, r.Name,
						fmt.Errorf("User \"ha-controller\" cannot %s resource %q", missing.verb, missing.resource))
				})
			},
			end:   func(w *world, _ *process) { w.API.Fail(nil) },
			stops: !goesOn, limit: limit, lasts: time.Minute,
			seen: func(w *world, p *process) bool { return w.told(p, missing.verb, missing.resource) },
		}.befalls)
	}
}

// told tells whether the log or an Event has a line with all of the words.
func (w *world) told(p *process, words ...string) bool {
	has := func(line string) bool { return containsAll(line, words) }
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	for _, e := range p.events.events {
		if has(e.note) {
			return true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.lines, func(line string) bool { return strings.Contains(line, p.name) && has(line) })
}

func TestFaultsOfTheAPI(t *testing.T) {
	away := func(apimodel.Request) error { return errors.New("connection refused") }
	for name, f := range map[string]fault{
		"the API server restarts": {
			begin: func(w *world, p *process) { w.API.Fail(away); p.view.Pause() },
			end:   func(w *world, p *process) { w.API.Fail(nil); p.view.Resume() },
			stops: true, lasts: 40 * time.Second, limit: time.Minute,
		},
		"the API server is away for minutes": {
			begin: func(w *world, p *process) { w.API.Fail(away); p.view.Pause() },
			end:   func(w *world, p *process) { w.API.Fail(nil); p.view.Resume() },
			stops: true, lasts: 5 * time.Minute, limit: 2 * time.Minute,
		},
		"the watches end with 410 and everything is listed anew": {
			begin: func(_ *world, p *process) { p.view.Pause(); time.AfterFunc(35*time.Second, p.view.Resume) },
			limit: time.Minute, lasts: time.Minute,
		},
	} {
		t.Run(name, f.befalls)
	}
}

// The clocks of the nodes are wrong by an hour: the age of a Lease is what this process saw of its changes.
func TestFaultsOfClocks(t *testing.T) {
	for name, skew := range map[string]time.Duration{"an hour slow": -time.Hour, "an hour fast": time.Hour} {
		t.Run(name, fault{
			begin: func(w *world, _ *process) {
				for _, node := range []string{nodeA, nodeB, nodeT} {
					w.SetClock(node, skew)
				}
				w.pass(time.Minute)
			},
			limit: 30 * time.Second, lasts: time.Minute,
			seen: func(w *world, _ *process) bool { return w.tainted(nodeB) == "" && w.tainted(nodeT) == "" },
		}.befalls)
	}
}
