package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// ofWrites are the messages of the lines that tell of a write, by what is written.
var ofWrites = map[string][]string{
	"patch Node":              {"Tainted node", "Renewed taint of node", "Added the cause of a taint", "Untainted node"},
	"patch Node status":       {"Released volumes"},
	"patch VolumeAttachment":  {"Annotated attachment", "Took annotation off attachment"},
	"delete Pod":              {"Deleted pod"},
	"delete VolumeAttachment": {"Deleted attachment"},
}

// whatItSays cuts off a line what controller-runtime adds to each.
var whatItSays = regexp.MustCompile(`"msg"="([^"]*)".*"reconcileID"="[^"]*" (.*)$`)

// words are the lines of the log of one of these messages, without what controller-runtime adds to each.
func (w *world) words(messages ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var words []string
	for _, line := range w.lines {
		said := whatItSays.FindStringSubmatch(line)
		for _, message := range messages {
			if len(said) == 3 && said[1] == message {
				words = append(words, message+": "+said[2])
			}
		}
	}
	return words
}

// wantALineForEachWrite fails the story unless the log has just one line for each write of the controllers.
func (w *world) wantALineForEachWrite() {
	w.Helper()
	writes := make(map[string]int)
	w.mu.Lock()
	for _, c := range w.changes {
		kind := fmt.Sprint(c.Verb, " ", c.Kind)
		if c.Status {
			kind += " status"
		}
		if c.Kind != "Lease" && !keepsSettings(c) {
			writes[kind]++
		}
	}
	w.mu.Unlock()
	for kind, messages := range ofWrites {
		words := w.words(messages...)
		if kind == "delete VolumeAttachment" && len(words) > writes[kind] {
			continue // Kubernetes has begun to delete it, so that nothing changed
		}
		if len(words) != writes[kind] {
			w.Errorf("%d times %s, told by %d lines: %q", writes[kind], kind, len(words), words)
		}
	}
}

// Who reads the log of a fail-over finds each thing that was done, with what it was done to and why, and how long it took.
func TestTheLogTellsEachWriteOfAFailOverAndItsEnd(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(6 * time.Minute)
		w.Return(nodeA)
		w.until(3*time.Minute, "A takes pods again", func() bool { return w.tainted(nodeA) == "" })
		w.pass(time.Minute)
		w.wantALineForEachWrite()
		const why = `"reason"="NodeUnreachable"`
		const message = ` "message"="neither LINSTOR nor any peer reaches the node"`
		for of, want := range map[string]string{
			"Annotated attachment": `"node"="node-a" "volume"="db" "volumeAttachment"="csi-db-node-a" "pods"=["default/db-0"] ` + why,
			"Deleted pod":          `"node"="node-a" "volumes"=["db"] "pod"="default/db-0" "mode"="Force" "gracePeriodSeconds"=0 ` + why + message,
			"Released volumes":     `"node"="node-a" "volumes"=["db"] ` + why,
			"Deleted attachment":   `"node"="node-a" "volume"="db" "volumeAttachment"="csi-db-node-a" ` + why + message,
		} {
			if diff := cmp.Diff([]string{of + ": " + want}, w.words(of)); diff != "" {
				t.Errorf("want -, got +: %s", diff)
			}
		}
		ends := w.words("Failed over")
		if len(ends) != 1 || !containsAll(ends[0], []string{
			`"volume"="db" "from"="node-a" "to"="node-b"`, `"decide"=5`, `"pods_gone"=0`, `"release"=0`, `"attached"=0.1`, `"total"=5.1`, why,
		}) {
			t.Errorf("ends: %q", ends)
		}
		// Kubernetes' own taint takes over, and leaves first.
		const taint = `"node"="node-a" "taint"="drbd.linbit.com/lost-quorum" `
		want := []string{
			"Tainted node: " + taint + `"effect"="NoSchedule" "volumes"=["db"] ` + why + message,
			"Untainted node: " + taint + `"resources"=["pvc-db"] "effect"="NoSchedule" "reason"="Kubernetes itself keeps pods away by now"`,
			"Tainted node: " + taint + `"resources"=["pvc-db"] "effect"="NoSchedule" ` + why,
			"Untainted node: " + taint + `"resources"=["pvc-db"] "reason"="the node has its storage back"`,
		}
		if diff := cmp.Diff(want, w.words("Tainted node", "Untainted node")); diff != "" {
			t.Errorf("want -, got +: %s", diff)
		}
	})
}

// Whoever reads Events knows of each step on which node it was, of which volume, and how. That it has failed over is said when it has.
func TestTheEventsOfAFailOverNameNodeAndVolume(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.untilRemoved(time.Minute, "db-0")
		if attached := w.attachment("db", nodeB); attached == nil && p.events.has(EventFailedOver, "PersistentVolumeClaim", "data-db") {
			t.Error("it has failed over before the volume is attached elsewhere")
		}
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.Return(nodeA)
		w.until(time.Minute, "A takes pods again", func() bool { return w.tainted(nodeA) == "" })
		const why = "NodeUnreachable: neither LINSTOR nor any peer reaches the node"
		want := []string{
			"NodeStorageQuorumLost of Node node-a: new pods are kept away from node node-a, which lost volume db: " + why,
			"ForceDeleted of Pod db-0: pod deleted because a used volume is marked as failing: by force, for volume db on node node-a: " + why,
			"ForceDetached of VolumeAttachment csi-db-node-a: volume detached because it is marked as failing: volume db from node node-a: " + why,
			"FailedOver of PersistentVolumeClaim data-db: volume db failed over from node node-a to node node-b 5.1 s after the first sign of the loss, and is attached there: " + why,
			"NodeStorageQuorumRegained of Node node-a: new pods are no longer kept away from node node-a, which had lost resource pvc-db: " +
				"the node has its storage back",
		}
		if diff := cmp.Diff(want, p.events.texts()); diff != "" {
			t.Errorf("want -, got +: %s", diff)
		}
	})
}

// texts are the Events as somebody reads them.
func (l *eventLog) texts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var texts []string
	for _, e := range l.events {
		texts = append(texts, fmt.Sprintf("%s of %s %s: %s", e.reason, e.kind, e.name, e.note))
	}
	return texts
}

// A pod that hangs on a node that lives is deleted twice: each Event says how.
func TestTheEventsOfARemovalSayHow(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		texts := strings.Join(p.events.texts(), "\n")
		for _, want := range []string{
			"marked as failing: gracefully, for volume db on node node-a: QuorumLost",
			"marked as failing: by force, for volume db on node node-a: QuorumLost",
			"volume db failed over from node node-a to node node-b ",
		} {
			if !strings.Contains(texts, want) {
				t.Errorf("%q is not in\n%s", want, texts)
			}
		}
	})
}

func TestManyNamesAreCounted(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"volume a":                         {"a"},
		"volumes a, b":                     {"a", "b"},
		"volumes a, b, c, d, e":            {"a", "b", "c", "d", "e"},
		"volumes a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := named("volume", names); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The kubelet of a node that lives lets go of the volume by itself, so that Kubernetes deletes the attachment: that is a fail-over, too.
func TestTheLogTellsTheEndOfAFailOverFromALivingNode(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.DRBD.Isolate(nodeA)
		w.until(time.Minute, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.DRBD.Rejoin(nodeA)
		w.pass(5 * time.Minute)
		w.wantALineForEachWrite()
		if words := w.words("Deleted pod"); !strings.Contains(strings.Join(words, ""), `"mode"="Graceful" "gracePeriodSeconds"=10`) {
			t.Errorf("removals: %q", words)
		}
		if words := w.words("Failed over"); len(words) != 1 || !strings.Contains(words[0], `"from"="node-a" "to"="node-b"`) {
			t.Errorf("ends: %q", words)
		}
	})
}

func TestTheLogTellsTheEndOfEachOfManyFailOvers(t *testing.T) {
	var volumes []string
	for i := range 40 {
		volumes = append(volumes, fmt.Sprintf("db%d", i))
	}
	onNodeA(t, volumes, func(w *world, _ *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the workloads run on B", func() bool {
			for _, name := range volumes {
				if !w.runs(name+"-0", nodeB) {
					return false
				}
			}
			return true
		})
		w.pass(time.Minute)
		w.wantALineForEachWrite()
		if words := w.words("Failed over"); len(words) != len(volumes) {
			t.Errorf("%d fail-overs are closed: %q", len(words), words)
		}
	})
}

// A pod that comes back to the node that it was removed from has moved nowhere, also when it is moved in peace later.
func TestAWorkloadThatStaysHasNotFailedOver(t *testing.T) {
	cfg := defaults()
	cfg.DisableNodeTaints = true
	inWorld(t, virtual.Options{}, func(w *world) {
		p := w.startProcess("one", cfg)
		p.leads()
		w.volume("db")
		w.workload("db", selected, func(v *virtual.Workload) { v.Nodes = []string{nodeA, nodeB} })
		w.pass(time.Minute)
		w.DRBD.Close("pvc-db", nodeA) // nobody writes, and nobody could
		w.until(2*time.Minute, "the pod is removed", func() bool { return len(w.removed("db-0")) > 0 })
		w.pass(3 * time.Minute)
		if !w.runs("db-0", nodeA) {
			t.Fatal("the pod has not come back to A")
		}
		if words := w.words("Failed over"); len(words) > 0 {
			t.Errorf("ends: %q", words)
		}
		p.parts.node.reports.each(func(node, volume string, report volumeReport) {
			if report.moving {
				t.Errorf("still expected to arrive from %s: %s", node, volume)
			}
		})
	})
}

// What is refused has not been done.
func TestTheLogTellsNoWriteThatIsRefused(t *testing.T) {
	scene(t, func(w *world, _ *process) {
		w.API.Fail(func(r apimodel.Request) error {
			if strings.HasPrefix(r.Actor, controllerActor) && r.Verb == apimodel.VerbDelete && r.Kind == "Pod" {
				return errors.New("no")
			}
			return nil
		})
		w.Crash(nodeA)
		w.pass(time.Minute)
		if words := w.words("Deleted pod", "Released volumes", "Deleted attachment", "Failed over"); len(words) > 0 {
			t.Errorf("told before anything was done: %q", words)
		}
		w.wantALineForEachWrite()
		w.API.Fail(nil)
		w.until(30*time.Second, "the workload runs on B", func() bool { return w.runs("db-0", nodeB) })
		w.pass(time.Second)
		w.wantALineForEachWrite()
		if words := w.words("Failed over"); len(words) != 1 {
			t.Errorf("ends: %q", words)
		}
	})
}

// What fails every second is said when it begins, when it changes, and once a minute.
func TestWhatFailsAgainAndAgainIsSaidOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines atomic.Int64
		log := funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})
		var failure atomic.Pointer[error]
		does := periodic{name: "look", every: time.Second, do: func(context.Context) error { return *failure.Load() }, failure: "Cannot look"}
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		defer cancel()
		forbidden := errors.New("forbidden")
		failure.Store(&forbidden)
		go func() { _ = does.Start(ctrl.LoggerInto(ctx, log)) }()
		pass := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		for _, step := range []struct {
			failure error
			lasts   time.Duration
			lines   int64
		}{
			{forbidden, 150 * time.Second, 3},
			{errors.New("timeout"), 10 * time.Second, 1},
			{nil, 10 * time.Second, 0},
			{errors.New("timeout"), 10 * time.Second, 1},
		} {
			failure.Store(&step.failure)
			before := lines.Load()
			pass(step.lasts)
			if said := lines.Load() - before; said != step.lines {
				t.Errorf("%v for %s is said by %d lines, want %d", step.failure, step.lasts, said, step.lines)
			}
		}
	})
}

// Past fail-overs are Events that carry their figures: nobody needs to read a text for them.
func TestTheEventsOfAFailOverCarryTheSecondsOfEachStage(t *testing.T) {
	scene(t, func(w *world, p *process) {
		w.Crash(nodeA)
		w.until(time.Minute, "the volume has failed over", func() bool { return p.events.has(EventFailedOver, "PersistentVolumeClaim", "data-db") })
		took := make(map[string]map[metrics.Stage]float64)
		for _, e := range p.events.events {
			if text, ok := e.annotations[cluster.AnnotationSeconds]; ok {
				seconds := make(map[metrics.Stage]float64)
				w.must(json.Unmarshal([]byte(text), &seconds))
				took[e.reason] = seconds
			}
		}
		if len(took) != 3 || took[EventForceDeleted][metrics.StageDecide] <= 0 || took[EventForceDeleted][metrics.StageTotal] > 0 {
			t.Errorf("the Events carry %v", took)
		}
		done := took[EventFailedOver]
		if len(done) != 5 || done[metrics.StageTotal] < done[metrics.StageDecide]+done[metrics.StagePodsGone] {
			t.Errorf("the last Event carries %v", done)
		}
	})
}
