// Package metrics holds what the controllers count and show. Events may be dropped and log lines sampled; these are not. Every series
// whose labels are known exists from the start, so that rates see the first increment, and a rule tells "none" from "not there".
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
)

const namespace = "piraeus_ha_controller"

// Stage is a part of a fail-over that is timed on its own.
type Stage string

const (
	// StageDecide is from the start of the grace's clock to the first removal.
	StageDecide Stage = "decide"
	// StagePodsGone is from the first removal to the last pod object's disappearance.
	StagePodsGone Stage = "pods_gone"
	// StageRelease is from there to the volume's release from the node.
	StageRelease Stage = "release"
	// StageAttached is from the deletion of the attachment to the volume's attachment to another node. It is known where
	// the process that deleted the one sees the other within ten minutes.
	StageAttached Stage = "attached"
	// StageTotal is from the start of the grace's clock to the volume's attachment to another node, where one process saw both.
	StageTotal Stage = "total"
)

// stages are all of them, in their order.
var stages = []Stage{StageDecide, StagePodsGone, StageRelease, StageAttached, StageTotal}

// Metrics are what the controllers count and show. Nothing is registered until the owner registers Collectors.
type Metrics struct {
	// leads is set once this process leads; it never leads and goes on without leading.
	leads atomic.Bool

	failovers   *prometheus.CounterVec
	completed   *prometheus.CounterVec
	errors      *prometheus.CounterVec
	pods        *prometheus.CounterVec
	attachments prometheus.Counter
	blocked     *prometheus.CounterVec
	stages      *prometheus.HistogramVec
	taints      *prometheus.CounterVec
	recovered   prometheus.Counter
	deadWatches prometheus.Counter
	latency     prometheus.Histogram
	ages        *prometheus.HistogramVec

	state       state
	evacuations evacuations
}

// New returns metrics of which all known label values start at 0.
func New() *Metrics {
	m := &Metrics{
		failovers: counters("failovers_total", "Fail-overs of one volume on one node that were begun, by reason of the loss.", "reason"),
		completed: counters("failovers_completed_total",
			"Fail-overs whose volume was attached to another node, by reason of the loss.", "reason"),
		errors: counters("failover_errors_total",
			"Requests of a fail-over that failed, by step and by code: the HTTP status, timeout, or error.", "step", "code"),
		pods:        counters("pods_deleted_total", "Pods deleted because they lost their storage, by mode.", "mode"),
		attachments: counter("volume_attachments_deleted_total", "VolumeAttachments deleted because their node lost the volume."),
		blocked: counters("failovers_blocked_total", "Times a volume on a node was found lost, or seemed so for 30 s, and was not moved, "+
			"by the reason; counted when the reason changes.", "reason"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "failover_duration_seconds",
			Help:    "Duration of a fail-over, by stage; total is from the first sign of the loss to the attachment elsewhere.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
		}, []string{"stage"}),
		taints: counters("node_taint_changes_total",
			"Changes of keep-away taints, by change: set, removed, or expired where nobody confirmed the cause.", "change"),
		recovered: counter("linstor_pods_deleted_total",
			"Pods of LINSTOR itself that were deleted because they were lost with their node, or because LINSTOR was blind."),
		deadWatches: counter("dead_watches_total",
			"Times that a watch of the API was found to deliver nothing although the API answers; the process ends soon after."),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "event_to_decision_seconds",
			Help:    "Time from the arrival of an event of LINSTOR that changed something to the first decision that knew of it.",
			Buckets: []float64{.001, .0025, .005, .01, .02, .03, .04, .05, .075, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		ages:        newWriteAges(),
		state:       newState(),
		evacuations: newEvacuations(),
	}
	begin(m.failovers, failover.Losses())
	begin(m.completed, failover.Losses())
	begin(m.blocked, failover.Reasons())
	begin(m.pods, []failover.Removal{failover.RemoveForce, failover.RemoveGracefully})
	begin(m.taints, []string{"set", "removed", "expired"})
	for _, stage := range stages {
		m.stages.WithLabelValues(string(stage))
	}
	for _, step := range steps {
		begin(m.errors.MustCurryWith(prometheus.Labels{"step": string(step)}), usualCodes)
	}
	return m
}

// begin has a series of each known value of the label begin at 0.
func begin[V ~string](counted *prometheus.CounterVec, known []V) {
	for _, value := range known {
		counted.WithLabelValues(string(value))
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Collectors returns everything to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append(append(m.state.collectors(), m.evacuations.collectors()...),
		m.failovers, m.completed, m.errors, m.pods, m.attachments, m.blocked, m.stages, m.taints, m.recovered, m.deadWatches, m.latency, m.ages)
}

// Lead notes that this process leads.
func (m *Metrics) Lead() { m.leads.Store(true) }

// FailoverBegun counts a fail-over.
func (m *Metrics) FailoverBegun(reason failover.Reason) {
	m.failovers.WithLabelValues(string(reason)).Inc()
}

// FailoverCompleted counts a fail-over whose volume is attached to another node.
func (m *Metrics) FailoverCompleted(reason failover.Reason) {
	m.completed.WithLabelValues(string(reason)).Inc()
}

// PodDeleted counts a deleted pod.
func (m *Metrics) PodDeleted(mode failover.Removal) { m.pods.WithLabelValues(string(mode)).Inc() }

// AttachmentDeleted counts a deleted VolumeAttachment.
func (m *Metrics) AttachmentDeleted() { m.attachments.Inc() }

// Recovered counts a deleted pod of LINSTOR itself.
func (m *Metrics) Recovered() { m.recovered.Inc() }

// DeadWatch counts a dead watch. The log names the kind of its objects.
func (m *Metrics) DeadWatch() { m.deadWatches.Inc() }

// Blocked counts a fail-over that a gate forbids, or that has waited for long.
func (m *Metrics) Blocked(reason failover.Reason) { m.blocked.WithLabelValues(string(reason)).Inc() }

// Took records how long a stage took.
func (m *Metrics) Took(stage Stage, d time.Duration) {
	m.stages.WithLabelValues(string(stage)).Observe(d.Seconds())
}

// EventDecided records how long an event of LINSTOR waited for a decision. Replicas that do not lead take their time, and are not
// what is asked for: theirs is not recorded.
func (m *Metrics) EventDecided(d time.Duration) {
	if m.leads.Load() {
		m.latency.Observe(d.Seconds())
	}
}

// Taint counts a change of a keep-away taint: "set", "removed" or "expired".
func (m *Metrics) Taint(change string) { m.taints.WithLabelValues(change).Inc() }
