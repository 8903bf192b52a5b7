package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/metrics"
)

// haltAge is how old an answer of haltSwitch may be; a mass failure asks hundreds of times a second.
const haltAge = 500 * time.Millisecond

// haltSwitch tells what forbids every removal at the moment: the guard against a suspect view, a pause, a dry run.
type haltSwitch struct {
	linstor    Linstor
	live       client.Reader
	clock      clock.PassiveClock
	metrics    *metrics.Metrics
	recorder   events.EventRecorder
	lost       func() map[string]bool // nodes with a volume whose verdict is lost, by their names in LINSTOR
	limit      failover.Limit
	deployment types.NamespacedName // whose annotation pauses; empty for none
	dryRun     bool

	turns turns // of those who ask
	halt  failover.Halt
	asked time.Time
}

// now returns what forbids every removal, at most haltAge old when it is asked for: however long the API takes for the
// answer, it serves all who have waited for it.
func (h *haltSwitch) now(ctx context.Context) failover.Halt {
	wanted := h.clock.Now().Add(-haltAge)
	end, err := h.turns.take(ctx, "")
	if err != nil {
		return failover.Halt{Paused: fmt.Sprintf("cannot ask in time whether fail-over is paused: %v", err)}
	}
	defer end()
	if h.asked.After(wanted) {
		return h.halt
	}
	now, before := h.clock.Now(), h.halt
	h.halt = failover.Halt{Guard: h.guard(now), Paused: h.paused(ctx), DryRun: h.dryRun}
	h.asked = now
	h.tell(ctx, before)
	return h.halt
}

func (h *haltSwitch) guard(now time.Time) string {
	lost := h.lost()
	view := failover.View{Now: now, Up: h.linstor.Status().SyncedSince}
	view.Replicas, view.Reporting = h.linstor.Counts()
	for _, node := range h.linstor.Nodes() {
		if node.Satellite {
			view.Satellites = append(view.Satellites, failover.Satellite{
				Name: node.Name, Online: node.Online.Known && node.Online.Value,
				LastOnline: node.LastOnline, LostVolume: lost[node.Name],
			})
		}
	}
	return failover.Guard(view, h.limit)
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get,namespace=ha-controller

// paused reads the annotation that pauses fail-over for all. What cannot be read counts as paused: whoever set the
// annotation relies on it.
func (h *haltSwitch) paused(ctx context.Context) string {
	if h.deployment.Name == "" {
		return ""
	}
	var deployment metav1.PartialObjectMetadata
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err := h.live.Get(ctx, h.deployment, &deployment); err != nil {
		return fmt.Sprintf("cannot read whether Deployment %s pauses fail-over (name it by --pause-deployment): %v", h.deployment, err)
	}
	if value, ok := deployment.Annotations[AnnotationPause]; ok && value != "false" {
		return fmt.Sprintf("annotation %s of Deployment %s pauses all fail-over", AnnotationPause, h.deployment)
	}
	return ""
}

// tell says when the guard closes or opens.
func (h *haltSwitch) tell(ctx context.Context, before failover.Halt) {
	closed := h.halt.Guard != ""
	h.metrics.Guard(closed)
	if closed == (before.Guard != "") {
		return
	}
	log := ctrl.LoggerFrom(ctx)
	reason, note, kind := EventGuardOpened, "the view of the cluster is no longer suspect: fail-over goes on", corev1.EventTypeNormal
	if closed {
		reason, note, kind = EventGuardTripped, h.halt.Guard, corev1.EventTypeWarning
	}
	log.Info("Guard changed", "closed", closed, "message", note)
	if h.deployment.Name != "" {
		ref := typed(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: h.deployment.Namespace, Name: h.deployment.Name}},
			"apps/v1", "Deployment")
		h.recorder.Eventf(ref, nil, kind, reason, actionRefuse, "%s", truncated(note))
	}
}
