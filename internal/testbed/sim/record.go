package sim

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/apimodel"
)

// observe notes what happens in the API.
func (w *world) observe(c apimodel.Change) {
	w.progress(c)
	w.observeNode(c)
	if lease, ok := c.New.(*coordinationv1.Lease); ok {
		w.mu.Lock()
		node := w.Satellite(lease.Name)
		if last := w.renewed[node]; !last.IsZero() && c.Time.Sub(last) >= failover.ForceSilence {
			w.resumed[node] = c.Time
		}
		w.renewed[node] = c.Time
		w.mu.Unlock()
		return
	}
	if pod, ok := c.Old.(*corev1.Pod); ok && c.Verb == apimodel.VerbDelete && strings.HasPrefix(c.Actor, actorPrefix) {
		w.mu.Lock()
		w.deleted[client.ObjectKeyFromObject(pod)] = pod
		w.mu.Unlock()
	}
	if _, ok := c.Old.(*corev1.Pod); ok && c.New == nil {
		w.mu.Lock()
		delete(w.pods, client.ObjectKeyFromObject(c.Old))
		w.mu.Unlock()
	}
	if pod, ok := c.New.(*corev1.Pod); ok {
		w.mu.Lock()
		w.pods[client.ObjectKeyFromObject(pod)] = pod
		if _, known := w.bound[pod.UID]; !known && pod.Spec.NodeName != "" {
			w.bound[pod.UID] = c.Time
		}
		w.mu.Unlock()
	}
	if !w.trace {
		return
	}
	detail := ""
	if pod, ok := c.New.(*corev1.Pod); ok {
		detail = fmt.Sprintf(" %s on %s, uid …%s", pod.Status.Phase, pod.Spec.NodeName, pod.UID[len(pod.UID)-3:])
		if pod.DeletionTimestamp != nil {
			detail += ", terminating"
		}
	}
	if node, ok := c.New.(*corev1.Node); ok {
		detail = fmt.Sprintf(" in use %v, taints %v", node.Status.VolumesInUse, node.Spec.Taints)
	}
	w.note(fmt.Sprintf("%s %s %s %s%s", c.Actor, c.Verb, c.Kind, c.Name, detail))
}

// observeStorage notes what happens to the storage.
func (w *world) observeStorage(resource, node string) {
	state, ok := w.DRBD.Replica(resource, node)
	at := place{resource, node}
	writes := w.writesNow(at)
	w.mu.Lock()
	if _, wrote := w.writing[at]; !writes {
		delete(w.writing, at)
	} else if !wrote {
		w.writing[at] = time.Now()
	}
	if ok && state.Open == 0 {
		delete(w.taken, at)
		delete(w.forced, at)
	}
	switch before, known := w.closed[at]; {
	case ok && state.Open > 0:
		w.closed[at] = time.Time{}
	case !known || before.IsZero():
		w.closed[at] = time.Now()
	}
	w.mu.Unlock()
	w.observeDisks(resource)
	w.observeDenials(resource)
	w.noteApart(resource)
	if w.trace {
		w.note(fmt.Sprintf("drbd %s on %s: %s, may promote %t, score %d, open %d+%d, %v, disk %s, quorum %t, io %s, can write %t",
			resource, node, state.Role, state.MayPromote, state.Score, state.Open, state.OpenReadOnly, state.Connections,
			state.DiskState, state.HasQuorum, state.IO, w.DRBD.CanWrite(resource, node)))
	}
}

// delayAnswer lets LINSTOR take its time, each request another one of a millisecond and more: no two readings begin or end at the same
// instant in the world either, and an order of them that nobody can tell says nothing.
func (w *world) delayAnswer(_ http.ResponseWriter, r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, "/v1/events") {
		return false
	}
	w.auditRequest(r)
	const least, prime = time.Millisecond, 7919
	delay := least + time.Duration(w.answers.Add(1)*prime%int64(least))
	if on := w.slowOn.Load(); on == nil || strings.HasSuffix(strings.ToLower(r.URL.Path), *on) {
		delay += time.Duration(w.answer.Load())
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	for _, hung := range w.hungFor(r) {
		select {
		case <-hung:
			w.noteBelated(r)
		case <-r.Context().Done():
		}
	}
	return false
}

// noteBelated notes that LINSTOR carries out a change of a definition for which it has let wait.
func (w *world) noteBelated(r *http.Request) {
	if name, is := strings.CutPrefix(r.URL.Path, "/v1/resource-definitions/"); is && r.Method == http.MethodPut {
		w.mu.Lock()
		w.belated[name] = true
		w.mu.Unlock()
	}
}

// hang lets answers hang from now on, or from some time after the next grace has begun.
func (w *world) hang(s Step) {
	resource := w.resource(s.On)
	if s.Value != atGrace {
		w.hangResource(resource, true)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangsLater[resource] = s.For
}

// graceBegan lets what waits for a grace begin some time later.
func (w *world) graceBegan(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	after, armed := w.hangsLater[resource]
	if !armed || after == begun {
		return
	}
	w.hangsLater[resource] = begun
	time.AfterFunc(after, func() {
		w.mu.Lock()
		_, armed := w.hangsLater[resource] // unless that was ended meanwhile
		w.mu.Unlock()
		if armed {
			w.hangResource(resource, true)
		}
	})
}

// begun stands for the time after which answers begin to hang, once that has begun to pass.
const begun = -1

// hangResource makes LINSTOR's answers on a resource hang, or ends that.
func (w *world) hangResource(resource string, hang bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hung, is := w.hung[resource]
	delete(w.hangsLater, resource)
	switch {
	case hang && !is:
		w.hung[resource] = make(chan struct{})
	case !hang && is:
		close(hung)
		delete(w.hung, resource)
	}
}

// hungFor returns what an answer waits for that names resources.
func (w *world) hungFor(r *http.Request) []chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	named := r.URL.Query()["resources"]
	if rest, is := strings.CutPrefix(r.URL.Path, "/v1/resource-definitions/"); is {
		name, _, _ := strings.Cut(rest, "/")
		named = append(named, name)
	}
	var waits []chan struct{}
	for _, name := range named {
		if hung, is := w.hung[name]; is {
			waits = append(waits, hung)
		}
	}
	return waits
}

// hangs tells whether LINSTOR does not answer on a resource.
func (w *world) hangs(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.hung[resource]
	return is
}

// recorder counts Events and knows which pods were reported as stuck.
type recorder struct {
	world   *world
	process *process
}

// Eventf notes one Event.
func (r *recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.world.count("event: " + reason)
	accessor, err := meta.Accessor(regarding)
	r.world.must(err)
	kind := regarding.GetObjectKind().GroupVersionKind().Kind
	r.world.note(fmt.Sprintf("%s: Event %s of %s %s: "+note, append([]any{r.process.name, reason, kind, accessor.GetName()}, args...)...))
	if accessor.GetUID() == "" {
		r.world.violated(ruleAnonymous, "%s of %s %s", reason, kind, accessor.GetName())
	}
	if kind == "Pod" {
		r.world.tell(accessor.GetUID(), reason, r.process.name)
	}
	if reason != string(failover.StuckOnNode) {
		return
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	r.world.stuck[accessor.GetUID()] = true
}

// sink takes the controllers' log: it counts the decisions, and keeps all lines for the story.
type sink struct {
	world  *world
	name   string
	values []any
}

var _ logr.LogSink = (*sink)(nil)

// Init does nothing.
func (*sink) Init(logr.RuntimeInfo) {}

// Enabled tells that only the normal level is of interest.
func (*sink) Enabled(level int) bool { return level == 0 }

// Info takes a line.
func (s *sink) Info(_ int, message string, values ...any) {
	if message == "Decided" {
		if fmt.Sprint(valueOf(values, "verdict")) == string(failover.Pending) {
			s.world.graceBegan(fmt.Sprint(valueOf(append(values, s.values...), "resource")))
		}
		s.world.count(fmt.Sprintf("decided: %v %v", valueOf(values, "verdict"), valueOf(values, "reason")))
		s.world.unconfirmed(fmt.Sprint(valueOf(values, "reason")), fmt.Sprint(valueOf(append(values, s.values...), "resource")))
	}
	s.line(message, values)
}

// Error takes an error.
func (s *sink) Error(err error, message string, values ...any) {
	s.line(message+": "+fmt.Sprint(err), values)
}

func (s *sink) line(message string, values []any) {
	if !s.world.trace {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.name, message)
	all := append(append([]any{}, s.values...), values...)
	for i := 0; i+1 < len(all); i += 2 {
		switch key := fmt.Sprint(all[i]); key {
		case "controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID":
		default:
			fmt.Fprintf(&b, " %s=%v", key, all[i+1])
		}
	}
	s.world.note(b.String())
}

func valueOf(values []any, key string) any {
	for i := 0; i+1 < len(values); i += 2 {
		if values[i] == key {
			return values[i+1]
		}
	}
	return nil
}

// WithValues returns a sink that adds values to every line.
func (s *sink) WithValues(values ...any) logr.LogSink {
	return &sink{s.world, s.name, append(append([]any{}, s.values...), values...)}
}

// WithName returns the same sink: the process's name says enough.
func (s *sink) WithName(string) logr.LogSink { return s }

// standstill is how many changes at one instant show that parts of the world undo each other's work for ever.
const standstill = 5000

// progress stops a simulation in which time does not pass any more.
func (w *world) progress(c apimodel.Change) {
	w.mu.Lock()
	if !c.Time.Equal(w.instant) {
		w.instant, w.atInstant = c.Time, 0
	}
	w.atInstant++
	stuck := w.atInstant > standstill
	w.mu.Unlock()
	if stuck {
		last := w.outcome.Story[max(0, len(w.outcome.Story)-40):]
		panic(fmt.Sprintf("history %d: time does not pass any more: %s %s %s by %s\n%s",
			w.history.Seed, c.Verb, c.Kind, c.Name, c.Actor, strings.Join(last, "\n")))
	}
}
