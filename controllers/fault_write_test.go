package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
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
	case "Lease":
		p.group = "coordination.k8s.io"
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
var (
	writes = []permission{toTaint, toMark, toDelete, toRelease, toDetach}

	toTaint   = permission{"patch", "", "nodes"}
	toMark    = permission{"patch", "storage.k8s.io", "volumeattachments"}
	toDelete  = permission{"delete", "", "pods"}
	toRelease = permission{"patch", "", "nodes/status"}
	toDetach  = permission{"delete", "storage.k8s.io", "volumeattachments"}
)

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

// failure is a way in which the API fails, with the words by which the log or an Event tells of it.
type failure struct {
	err   func() error
	words string
}

var failures = map[string]failure{
	"409": {func() error { return apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("it was changed")) }, "it was changed"},
	"429": {func() error { return apierrors.NewTooManyRequests("too busy", 1) }, "too busy"},
	"500": {func() error { return apierrors.NewInternalError(errors.New("broken")) }, "broken"},
	"a timeout": {
		func() error { return fmt.Errorf("patch: %w", context.DeadlineExceeded) }, context.DeadlineExceeded.Error(),
	},
}

// strikes is how often each write fails.
const strikes = 10

// refuses lets that many requests of the controller fail that need a permission. It returns how many have.
func (w *world) refuses(needed permission, err func() error) (struck *atomic.Int64) {
	struck = new(atomic.Int64)
	w.ofController(func(r apimodel.Request) error {
		if needs(r) != needed {
			return nil
		}
		if struck.Add(1) > strikes {
			struck.Add(-1)
			return nil
		}
		return err()
	})
	return struck
}

// once are the writes that are not repeated until they succeed: the attachment of a released volume is deleted by Kubernetes, too.
var once = []permission{{"delete", "storage.k8s.io", "volumeattachments"}}

// wantStruck fails the story unless the fault has struck as often as it should.
func (w *world) wantStruck(write permission, struck int64) {
	w.Helper()
	if struck == 0 || struck < strikes && !slices.Contains(once, write) {
		w.Errorf("%s failed %d times, want %d", write, struck, strikes)
	}
}

// Each write of a fail-over fails in each way that the API has, ten times. It is repeated, and the workload moves, once.
func TestFaultsOfWrites(t *testing.T) {
	for what, failure := range failures {
		for _, write := range writes {
			// A conflict says that somebody else was quicker, and what is to be done then is seen by the next look.
			quiet := what == "409" && write.verb == "delete"
			var struck *atomic.Int64
			t.Run(what+" on "+write.String(), fault{
				begin: func(w *world, _ *process) {
					w.detachesSlowly()
					struck = w.refuses(write, failure.err)
				},
				end: func(w *world, _ *process) {
					w.API.Fail(nil)
					w.wantStruck(write, struck.Load())
				},
				limit: 90 * time.Second, lasts: 2 * time.Minute,
				seen: func(w *world, p *process) bool { return quiet || w.told(p, failure.words) },
			}.befalls)
		}
	}
	for _, write := range writes {
		var struck atomic.Int64
		t.Run("an admission webhook that takes eight seconds on "+write.String(), fault{
			begin: func(w *world, _ *process) {
				w.API.Delay(func(r apimodel.Request) time.Duration {
					if !strings.HasPrefix(r.Actor, controllerActor) || needs(r) != write || struck.Load() == strikes {
						return 0
					}
					struck.Add(1)
					return 8 * time.Second
				})
			},
			end: func(w *world, _ *process) {
				w.API.Delay(nil)
				if struck.Load() == 0 {
					t.Errorf("nobody waited for %s", write)
				}
			},
			limit: 90 * time.Second, lasts: 2 * time.Minute,
		}.befalls)
	}
}

// Where volumes are not released Kubernetes detaches none for six minutes: the deletion of the attachment is repeated by us alone.
func TestAnAttachmentOfAVolumeThatIsNotReleasedIsDeletedInTheEnd(t *testing.T) {
	for what, failure := range failures {
		t.Run(what, func(t *testing.T) {
			cfg := defaults()
			cfg.FastDetach = false
			sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
				write := permission{"delete", "storage.k8s.io", "volumeattachments"}
				struck := w.refuses(write, failure.err)
				w.Crash(nodeA)
				w.until(2*time.Minute, "our attachment is deleted", func() bool { return w.attachment("db", nodeA) == nil })
				if got := struck.Load(); got < strikes {
					t.Errorf("refused %d times, want %d", got, strikes)
				}
				w.until(2*time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				w.Return(nodeA)
				w.pass(3 * time.Minute)
				w.wantNothingLeft(p)
			})
		})
	}
}

// The API server deletes a pod without grace in two writes. Where it does not come to the second one, the pod stays until it is
// deleted once more, and nobody else does that for minutes.
func TestADeletionThatIsCutOffIsFinished(t *testing.T) {
	var struck atomic.Int64
	fault{
		begin: func(w *world, _ *process) {
			w.API.CutOff(func(r apimodel.Request) bool {
				return strings.HasPrefix(r.Actor, controllerActor) && struck.Add(1) <= 3
			})
		},
		end: func(w *world, _ *process) {
			w.API.CutOff(nil)
			if struck.Load() < 4 {
				t.Errorf("deletions were tried %d times", struck.Load())
			}
		},
		limit: 30 * time.Second, lasts: time.Minute,
		seen: func(w *world, p *process) bool { return w.told(p, "did not complete within") },
	}.befalls(t)
}

// The writes that follow when the node is back fail: the taint goes all the same.
func TestFaultsOfTakingTheTaintOff(t *testing.T) {
	for what, failure := range failures {
		t.Run(what, func(t *testing.T) {
			scene(t, func(w *world, p *process) {
				w.Crash(nodeA)
				w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				struck := w.refuses(permission{"patch", "", "nodes"}, failure.err)
				w.Return(nodeA)
				w.until(2*time.Minute, "the taint is off", func() bool { return len(w.node(nodeA).Spec.Taints) == 0 })
				w.wantStruck(permission{"patch", "", "nodes"}, struck.Load())
				if !w.told(p, failure.words) {
					t.Error("the log does not say why the taint stayed")
				}
				w.pass(time.Minute)
				w.wantNothingLeft(p)
				w.wantRunning("db-0", nodeB)
			})
		})
	}
}

// The writes of the recovery of LINSTOR's own pods fail: the taint that keeps the replacement away, and the deletion.
func TestFaultsOfTheWritesOfARecovery(t *testing.T) {
	for what, failure := range failures {
		for _, write := range []permission{{"patch", "", "nodes"}, {"delete", "", "pods"}} {
			t.Run(what+" on "+write.String(), func(t *testing.T) {
				linstorOnA(t, recovering(), func(w *world, p *process) {
					struck := w.refuses(write, failure.err)
					w.crashWithLinstor()
					w.until(90*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
					w.wantStruck(write, struck.Load())
					if !w.told(p, failure.words) {
						t.Error("neither the log nor an Event says why LINSTOR's pod was not deleted")
					}
					w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
					if got := len(w.removed("linstor-1")); got != 1 {
						t.Errorf("LINSTOR's pod was deleted %d times, want once", got)
					}
				})
			})
		}
	}
}

// And that the taint is taken off again, when the kubelet is heard of.
func TestFaultsOfTheEndOfARecovery(t *testing.T) {
	for what, failure := range failures {
		t.Run(what, func(t *testing.T) {
			linstorOnA(t, recovering(), func(w *world, p *process) {
				w.Linstor.Stop()
				w.SilenceKubelet(nodeA)
				w.until(30*time.Second, "LINSTOR's pod is deleted", func() bool { return len(w.removed("linstor-1")) > 0 })
				struck := w.refuses(permission{"patch", "", "nodes"}, failure.err)
				w.RestoreKubelet(nodeA)
				w.until(2*time.Minute, "the taint is off", func() bool { return !w.silenced(nodeA) })
				w.wantStruck(permission{"patch", "", "nodes"}, struck.Load())
				if !w.told(p, failure.words) {
					t.Error("the log does not say why the taint stayed")
				}
				w.wantRunning("db-0", nodeA)
			})
		})
	}
}

// The Lease of the election cannot be written for a while in the act. While that is shorter than the renew deadline, the
// leader stays and the fail-over takes no longer.
func TestFaultsOfTheLeaseOfTheElection(t *testing.T) {
	for what, failure := range failures {
		t.Run(what, func(t *testing.T) {
			electedPair(t, func(w *world, first, _ *process, _ <-chan struct{}) {
				w.Crash(nodeA)
				w.pass(12 * time.Second)
				var struck atomic.Int64
				until := time.Now().Add(renewDeadline - retryPeriod)
				w.ofController(func(r apimodel.Request) error {
					if r.Kind != "Lease" || r.Namespace == cluster.LeaseNamespace || r.Verb == apimodel.VerbGet || time.Now().After(until) {
						return nil
					}
					struck.Add(1)
					return failure.err()
				})
				w.wantMovedCleanly(10*time.Second, first)
				if struck.Load() == 0 {
					t.Error("the Lease was written all the time")
				}
				if holder := w.holder(); holder != first.name {
					t.Errorf("%q leads, want the first all the time", holder)
				}
			})
		})
	}
}

// A mark that is left over is taken off when all that is urgent is done, and for two seconds at the most: the volume may be lost meanwhile.
func TestAMarkThatCannotBeTakenOffHoldsUpNoFailover(t *testing.T) {
	for name, fault := range map[string]func(w *world, unmarks func(apimodel.Request) bool){
		"because its request hangs": func(w *world, unmarks func(apimodel.Request) bool) {
			w.API.Delay(func(r apimodel.Request) time.Duration {
				if unmarks(r) {
					return time.Hour
				}
				return 0
			})
		},
		"because it is rejected": func(w *world, unmarks func(apimodel.Request) bool) {
			w.API.Fail(func(r apimodel.Request) error {
				if unmarks(r) {
					return errors.New("rejected by a webhook")
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world, _ *process) {
				va := w.attachment("db", nodeA)
				before, name := va.DeepCopy(), va.Name
				fault(w, func(r apimodel.Request) bool {
					return r.Actor == controllerActor+"one" && r.Verb == apimodel.VerbPatch && r.Name == name
				})
				va.Annotations = map[string]string{cluster.AnnotationFailOver: `{"reason":"QuorumLost"}`}
				w.must(w.Client().Patch(w.ctx, va, client.MergeFrom(before)))
				w.pass(22 * time.Second)
				w.Crash(nodeA)
				w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
			})
		})
	}
}
