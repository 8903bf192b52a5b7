package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/safely"
)

// haltAge is from which age on an answer of haltSwitch is replaced; in a mass failure it is asked hundreds of times a second.
const haltAge = 500 * time.Millisecond

// haltSwitch knows what forbids every removal at the moment: the guard, a pause, node agents of 1.x, a dry run.
type haltSwitch struct {
	shared

	lost func() map[string]bool // nodes that lost a volume for a reason that concerns the whole node, by their names in LINSTOR
	// spared returns the nodes, by their names in LINSTOR, that were taken out when all their data was safe elsewhere.
	spared func() map[string]bool
	limit  failover.Limit
	pod    types.NamespacedName // of this process; empty if there is none
	dryRun bool
	agents func() string // why node agents of 1.x forbid it; empty if they do not

	asks singleflight.Group // of one answer at a time
	// deployment is the one whose annotation pauses fail-over; empty as long as it is neither named nor found by the pod. Only ask uses it.
	deployment types.NamespacedName

	mu sync.Mutex
	// halt is the newest answer, to a question that was asked at that time.
	halt   failover.Halt
	asked  time.Time
	memory failover.GuardMemory
	// told is set if the guard was reported to be active, and refused is LINSTOR's answer that was reported.
	told    bool
	refused string
	// regarding is the Deployment; nil if there is none or it was never read. owed is set if that was reported without an Event for lack of it.
	regarding runtime.Object
	owed      bool
}

// now returns what forbids every removal by an answer of the API that is at most that old, but for the guard, which needs none. However long the
// API takes for the answer, it serves all callers that have waited for it. Callers that cannot wait must assume that fail-over is paused. An answer
// from before LINSTOR was heard does not count. If the answer is older than haltAge, the API is asked for the next one, and nobody waits for that.
func (h *haltSwitch) now(ctx context.Context, age time.Duration) failover.Halt {
	now := h.clock.Now()
	heard := h.linstor.Status().SyncedSince
	if heard.After(now) {
		heard = now // or no answer would ever do
	}
	for {
		h.mu.Lock()
		halt, asked := h.halt, h.asked
		h.mu.Unlock()
		if asked.After(now.Add(-age)) && !asked.Before(heard) {
			if !asked.After(now.Add(-haltAge)) {
				h.refresh(ctx)
				halt.Guard = h.guard(now)
			}
			return halt
		}
		select {
		case answer := <-h.refresh(ctx):
			if answer.Err != nil {
				return failover.Halt{Paused: fmt.Sprintf("cannot tell whether fail-over is paused: %v", answer.Err), DryRun: h.dryRun}
			}
		case <-ctx.Done():
			return failover.Halt{Paused: fmt.Sprintf("cannot ask in time whether fail-over is paused: %v", ctx.Err()), DryRun: h.dryRun}
		}
	}
}

// known returns what forbids every removal by the newest answer of the API, and asks for the next one if that is older than haltAge. Nobody waits for it.
func (h *haltSwitch) known(ctx context.Context) failover.Halt {
	now := h.clock.Now()
	h.mu.Lock()
	halt, asked := h.halt, h.asked
	h.mu.Unlock()
	if !asked.After(now.Add(-haltAge)) {
		h.refresh(ctx)
	}
	halt.Guard, halt.DryRun = h.guard(now), h.dryRun
	return halt
}

// refresh asks for the next answer, unless that is under way.
func (h *haltSwitch) refresh(ctx context.Context) (answered <-chan singleflight.Result) {
	return h.asks.DoChan("", func() (any, error) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersWithin)
		defer cancel()
		err := safely.Do(func() error { h.ask(asking); return nil })
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot tell whether something holds fail-over")
			return nil, errors.New("this is a bug, and the log has its stack")
		}
		return nil, nil
	})
}

func (h *haltSwitch) ask(ctx context.Context) {
	now := h.clock.Now()
	halt := failover.Halt{Guard: h.guard(now), Paused: h.paused(ctx), Agents: h.agents(), DryRun: h.dryRun}
	h.mu.Lock()
	h.halt, h.asked = halt, now
	h.mu.Unlock()
	h.tell(ctx, halt.Guard)
}

// observe has the guard observe the nodes: it compares them with what they were a few seconds before. Only the process that reported that the guard
// is active reports that it is inactive.
func (h *haltSwitch) observe(ctx context.Context) {
	if guard := h.guard(h.clock.Now()); guard == "" {
		h.tell(ctx, guard)
	}
	h.tellRefused()
}

// tellRefused reports that LINSTOR takes the controller for somebody who may not read.
func (h *haltSwitch) tellRefused() {
	refused := h.linstor.Status().Refused
	h.mu.Lock()
	news := refused != h.refused && h.regarding != nil
	if news {
		h.refused = refused
	}
	regarding := h.regarding
	h.mu.Unlock()
	if news && refused != "" {
		h.event(regarding, nil, EventLinstorRefuses, actionRefuse, "nothing is moved, because LINSTOR refuses the controller: "+refused)
	}
}

func (h *haltSwitch) guard(now time.Time) string {
	view := h.view(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.memory.Observe(view, h.limit)
}

// imagined returns why the guard would be active if a node were lost at that time, too.
func (h *haltSwitch) imagined(now time.Time) func(node string) string {
	view, known := h.view(now), make(map[string]string)
	return func(node string) string {
		said, ok := known[node]
		if !ok {
			h.mu.Lock()
			defer h.mu.Unlock()
			said = h.memory.Imagine(view, node, h.limit)
			known[node] = said
		}
		return said
	}
}

// view is the cluster as LINSTOR shows it.
func (h *haltSwitch) view(now time.Time) failover.View {
	lost, spared := h.lost(), h.spared()
	view := failover.View{Now: now, Up: h.linstor.Status().SyncedSince}
	if view.WarmsUp() {
		view.Replicas, view.Reporting = h.linstor.Counts()
	}
	for _, node := range h.linstor.Nodes() {
		if !node.Satellite {
			continue
		}
		satellite := failover.Satellite{
			Name: node.Name, Online: node.Online.Known && node.Online.Value,
			LastOnline: node.LastOnline, LostVolume: lost[node.Name],
		}
		// A node that was taken out on purpose is not lost, and the others are not suspect because of it.
		if spared[node.Name] && (!satellite.Online || satellite.LostVolume) {
			continue
		}
		view.Satellites = append(view.Satellites, satellite)
	}
	return view
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get,namespace=ha-controller,roleName=piraeus-ha-controller-manager

// paused reads the annotation that pauses all fail-over. If it cannot be read, fail-over counts as paused: a person who has set it relies on it. A
// Deployment that does not exist pauses nothing.
func (h *haltSwitch) paused(ctx context.Context) string {
	var err error
	if h.deployment.Name == "" { // a pod never changes its Deployment
		h.deployment, err = deploymentOf(ctx, h.api, h.pod)
	}
	name := h.deployment
	if err != nil {
		return fmt.Sprintf("cannot find the Deployment whose annotation pauses fail-over (name it by --pause-deployment): %v", err)
	}
	if name.Name == "" {
		return ""
	}
	var deployment metav1.PartialObjectMetadata
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err := h.api.Get(ctx, name, &deployment); client.IgnoreNotFound(err) != nil {
		return fmt.Sprintf("cannot read whether Deployment %s pauses fail-over: %v", name, err)
	}
	h.mu.Lock()
	if h.regarding = nil; deployment.UID != "" {
		h.regarding = ref("apps/v1", "Deployment", name.Namespace, name.Name, deployment.UID)
	}
	h.mu.Unlock()
	if value, ok := deployment.Annotations[cluster.AnnotationPause]; ok && value != "false" {
		return fmt.Sprintf("annotation %s of Deployment %s pauses all fail-over", cluster.AnnotationPause, name)
	}
	return ""
}

// tell reports when the guard becomes active or inactive.
func (h *haltSwitch) tell(ctx context.Context, guard string) {
	closed := guard != ""
	h.metrics.Guard(closed)
	h.mu.Lock()
	regarding := h.regarding
	news := closed != h.told || h.owed && regarding != nil
	h.told, h.owed = closed, (news || h.owed) && regarding == nil
	h.mu.Unlock()
	if !news {
		return
	}
	reason, note, kind := EventGuardOpened, "the view of the cluster is no longer suspect: fail-over goes on", corev1.EventTypeNormal
	if closed {
		reason, note, kind = EventGuardTripped, guard, corev1.EventTypeWarning
	}
	ctrl.LoggerFrom(ctx).Info("Guard changed", "closed", closed, "message", note)
	if regarding != nil {
		h.recorder.Eventf(regarding, nil, kind, reason, actionRefuse, "%s", truncated(note))
	}
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get,namespace=ha-controller,roleName=piraeus-ha-controller-manager
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=get,namespace=ha-controller,roleName=piraeus-ha-controller-manager

// deploymentOf returns the Deployment that runs a pod, from the owner references of the pod and of its ReplicaSet: its name depends on how it was
// installed. The name is empty if no Deployment runs the pod, or if there is no such pod.
func deploymentOf(ctx context.Context, live client.Reader, pod types.NamespacedName) (types.NamespacedName, error) {
	name := pod
	for _, up := range []struct {
		from schema.GroupVersionKind
		to   string
	}{
		{corev1.SchemeGroupVersion.WithKind("Pod"), "ReplicaSet"},
		{appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "Deployment"},
	} {
		if name.Name == "" {
			break
		}
		var object metav1.PartialObjectMetadata
		object.SetGroupVersionKind(up.from)
		if err := live.Get(ctx, name, &object); client.IgnoreNotFound(err) != nil {
			return types.NamespacedName{}, fmt.Errorf("reading %s %s: %w", up.from.Kind, name, err)
		}
		name.Name = ""
		if owner := metav1.GetControllerOfNoCopy(&object); owner != nil && owner.Kind == up.to {
			name.Name = owner.Name
		}
	}
	return name, nil
}
