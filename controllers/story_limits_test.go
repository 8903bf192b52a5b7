package controllers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// onNodeA is a world with a pod on A for each volume.
func onNodeA(t *testing.T, volumes []string, story func(w *world, p *process)) {
	t.Helper()
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", defaults())
		p.leads()
		for _, name := range volumes {
			w.volume(name)
			w.workload(name, selected)
		}
		w.pass(time.Minute)
		story(w, p)
	})
}

// gets delays what the controller reads of one object.
func (w *world) gets(kind, part string, takes time.Duration) {
	w.API.Delay(func(r apimodel.Request) time.Duration {
		if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbGet && r.Kind == kind && strings.Contains(r.Name, part) {
			return takes
		}
		return 0
	})
}

// hangs is a LINSTOR that does not answer questions about one resource.
type hangs struct {
	Linstor
	resource string
}

func (h hangs) Refresh(ctx context.Context, name string, maxAge time.Duration) (linstor.Resource, error) {
	if name == h.resource {
		<-ctx.Done()
		return linstor.Resource{}, ctx.Err()
	}
	return h.Linstor.Refresh(ctx, name, maxAge)
}

// Each of them alone takes a part of the time in which a look counts.
func TestTwoSlowAnswersAtATimeHoldUpNoThirdVolume(t *testing.T) {
	onNodeA(t, []string{"db", "hung", "slow"}, func(w *world, p *process) {
		p.parts.node.linstor = hangs{p.parts.node.linstor, "pvc-slow"}
		w.gets("VolumeAttachment", "hung", 20*time.Second)
		w.Crash(nodeA)
		w.until(25*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		if len(w.removed("slow-0")) > 0 {
			t.Error("a pod is removed of whose volume LINSTOR says nothing")
		}
	})
}

// The claim of a pod that is young is read past the cache.
func TestAClaimThatIsReadSlowlyHoldsUpItsOwnPodOnly(t *testing.T) {
	onNodeA(t, []string{"db"}, func(w *world, _ *process) {
		w.volume("slow")
		w.workload("slow", selected)
		w.pass(15 * time.Second)
		w.wantRunning("slow-0", nodeA)
		w.gets("PersistentVolumeClaim", "data-slow", 20*time.Second)
		w.Crash(nodeA)
		w.until(17*time.Second, "the other pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
	})
}

// What is refused again and again is repeated ever more rarely, and each try is one line of the log.
func TestWhatIsRefusedForLongIsTriedSixTimesAMinuteAtMost(t *testing.T) {
	for how, refusal := range map[string]func() error{
		"forbidden": func() error { return apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")) },
		"denied by a webhook": func() error {
			return apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New(`admission webhook "x" denied the request`))
		},
		"busy": func() error { return apierrors.NewTooManyRequests("too busy", 5) },
	} {
		for _, needed := range []permission{
			toMark, toDelete, toRelease, {"list", "", "pods"}, {"get", "", "nodes"}, {"get", "storage.k8s.io", "volumeattachments"},
		} {
			t.Run(how+" to "+needed.String(), func(t *testing.T) {
				scene(t, func(w *world, p *process) {
					var tries atomic.Int64
					w.ofController(func(r apimodel.Request) error {
						if needs(r) != needed {
							return nil
						}
						if r.Verb != apimodel.VerbList || r.Node != "" { // else node agents are looked for
							tries.Add(1)
						}
						return refusal()
					})
					w.Crash(nodeA)
					w.pass(time.Minute)
					before, lines := tries.Load(), w.linesOf(p)
					w.pass(time.Minute)
					tried, told := tries.Load()-before, w.linesOf(p)-lines
					w.Logf("tried %d times in the first minute, and %d times in the second", before, tried)
					forgone := needed == toRelease // without the permission the attachment is deleted all the same
					if tried < 4 && !forgone || tried > 6 || told > 2*int(tried)+1 {
						w.Errorf("tried %d times in a minute, with %d lines in the log, want at most 6 times", tried, told)
					}
					w.API.Fail(nil)
					w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
				})
			})
		}
	}
}

// Each of the pod's two volumes is lost, and each would have the pod deleted.
func TestARefusedDeletionOfAPodWithTwoVolumesIsTriedSixTimesAMinuteAtMost(t *testing.T) {
	groupOfOne(t, func(w *world, _ *process) {
		var tries atomic.Int64
		w.ofController(func(r apimodel.Request) error {
			if needs(r) != toDelete {
				return nil
			}
			tries.Add(1)
			return apierrors.NewForbidden(schema.GroupResource{}, "both-0", errors.New("no"))
		})
		w.Crash(nodeA)
		w.pass(time.Minute)
		before := tries.Load()
		w.pass(time.Minute)
		if tried := tries.Load() - before; before == 0 || tried > 6 {
			w.Errorf("tried %d times in the first minute, and %d times in the second", before, tried)
		}
	})
}

// linesOf is how many lines a process has written to its log.
func (w *world) linesOf(p *process) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.Contains(line, " "+p.name+" ") || strings.Contains(line, " "+p.name+"/") {
			n++
		}
	}
	return n
}
