// Package metrics holds what the controllers count. Events may be dropped and log lines sampled; these are not.
package metrics

import (
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
)

// Metrics are the counters of the fail-overs. Nothing is registered until the owner registers Collectors.
type Metrics struct {
	failovers   *prometheus.CounterVec
	pods        *prometheus.CounterVec
	attachments prometheus.Counter
	blocked     *prometheus.CounterVec
	stages      *prometheus.HistogramVec
	taints      *prometheus.CounterVec
	guard       prometheus.Gauge
	unprotected *prometheus.GaugeVec
	recovered   prometheus.Counter
	latency     prometheus.Histogram
	permissions prometheus.Gauge
	blind       prometheus.Gauge
	attaching   prometheus.Gauge
	satellites  prometheus.Gauge
	ages        *prometheus.HistogramVec
}

// New returns metrics of which all known label values start at 0, so that rates see the first increment.
func New() *Metrics {
	m := &Metrics{
		failovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "failovers_total",
			Help: "Fail-overs of one volume on one node that were begun, by reason of the loss.",
		}, []string{"reason"}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "pods_deleted_total",
			Help: "Pods deleted because they lost their storage, by mode: Force or Graceful.",
		}, []string{"mode"}),
		attachments: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "volume_attachments_deleted_total",
			Help: "VolumeAttachments deleted because their node lost the volume.",
		}),
		blocked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "failovers_blocked_total",
			Help: "Times a volume on a node was found lost, or seemed so for 30 s, and was not moved, by the reason; counted when the reason changes.",
		}, []string{"reason"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "failover_duration_seconds",
			Help:    "Duration of the stages of a fail-over: decide, pods_gone, release, attached.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
		}, []string{"stage"}),
		taints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "node_taints_total",
			Help: "Keep-away taints, by change: set, removed, expired.",
		}, []string{"change"}),
		guard: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "guard_tripped",
			Help: "1 while so much of the cluster seems lost at once that nothing is removed, else 0.",
		}),
		unprotected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "unprotected_pods",
			Help: "Selected pods, and KubeVirt's helpers of such, that would not be moved if their node were lost now, each under the first reason; known to the leader only.",
		}, []string{"reason"}),
	}
	m.ages = newWriteAges()
	m.recovered = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "linstor_pods_deleted_total",
		Help: "Pods of LINSTOR itself that were deleted because they were lost with their node, or because LINSTOR was blind.",
	})
	m.latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "event_to_decision_seconds",
		Help:    "Time from the arrival of an event of LINSTOR that changed something to the first decision that knew of it. Replicas that do not lead take their time.",
		Buckets: []float64{.001, .0025, .005, .01, .02, .03, .04, .05, .075, .1, .25, .5, 1, 2.5, 5, 10},
	})
	m.permissions = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "missing_permissions",
		Help: "Permissions that the controller lacks, by its last question to the API server; NaN while that is not known.",
	})
	m.blind = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "linstor_blind_nodes",
		Help: "Nodes that LINSTOR calls ONLINE without a connection to them, as far as a silent kubelet has led to the question; nothing is done by its words on them.",
	})
	m.attaching = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "attachments_waiting",
		Help: "Attachments of volumes that selected pods wait for, which are not attached, or not detached, after 10 s; known to the leader only.",
	})
	m.satellites = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "satellites_not_answering",
		Help: "Nodes that LINSTOR calls ONLINE and that do not answer it within 5 s, so that nothing can be attached; asked for while attachments wait.",
	})
	for _, reason := range []failover.Reason{
		failover.QuorumLost, failover.NodeUnreachable, failover.ForcedIOErrors, failover.Demoted, failover.ReplicaGone,
	} {
		m.failovers.WithLabelValues(string(reason))
	}
	for _, mode := range []failover.Removal{failover.RemoveForce, failover.RemoveGracefully} {
		m.pods.WithLabelValues(string(mode))
	}
	for _, stage := range []Stage{StageDecide, StagePodsGone, StageRelease, StageAttached} {
		m.stages.WithLabelValues(string(stage))
	}
	for _, change := range []string{"set", "removed", "expired"} {
		m.taints.WithLabelValues(change)
	}
	m.Unprotected(nil)
	return m
}

// Collectors returns everything to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.failovers, m.pods, m.attachments, m.blocked, m.stages, m.taints, m.guard, m.unprotected, m.recovered, m.latency, m.permissions, m.blind, m.attaching, m.satellites, m.ages}
}

// FailoverBegun counts a fail-over.
func (m *Metrics) FailoverBegun(reason failover.Reason) {
	m.failovers.WithLabelValues(string(reason)).Inc()
}

// PodDeleted counts a deleted pod.
func (m *Metrics) PodDeleted(mode failover.Removal) { m.pods.WithLabelValues(string(mode)).Inc() }

// AttachmentDeleted counts a deleted VolumeAttachment.
func (m *Metrics) AttachmentDeleted() { m.attachments.Inc() }

// Recovered counts a deleted pod of LINSTOR itself.
func (m *Metrics) Recovered() { m.recovered.Inc() }

// Blind shows for how many nodes LINSTOR is blind.
func (m *Metrics) Blind(nodes int) { m.blind.Set(float64(nodes)) }

// Blocked counts a fail-over that a gate forbids, or that has waited for long.
func (m *Metrics) Blocked(reason failover.Reason) { m.blocked.WithLabelValues(string(reason)).Inc() }

// Took records how long a stage took.
func (m *Metrics) Took(stage Stage, d time.Duration) {
	m.stages.WithLabelValues(string(stage)).Observe(d.Seconds())
}

// EventDecided records how long an event of LINSTOR waited for a decision.
func (m *Metrics) EventDecided(d time.Duration) { m.latency.Observe(d.Seconds()) }

// Taint counts a change of a keep-away taint: "set", "removed" or "expired".
func (m *Metrics) Taint(change string) { m.taints.WithLabelValues(change).Inc() }

// Guard shows whether the guard is closed.
func (m *Metrics) Guard(closed bool) {
	if closed {
		m.guard.Set(1)
	} else {
		m.guard.Set(0)
	}
}

// MissingPermissions shows how many permissions the controller lacks; NaN where that is not known.
func (m *Metrics) MissingPermissions(n float64) { m.permissions.Set(n) }

// AttachmentsWaiting shows how many attachments wait for longer than is usual.
func (m *Metrics) AttachmentsWaiting(n int) { m.attaching.Set(float64(n)) }

// SatellitesNotAnswering shows how many satellites keep LINSTOR waiting.
func (m *Metrics) SatellitesNotAnswering(n int) { m.satellites.Set(float64(n)) }

// Unprotected shows how many pods are unprotected for which reason; a reason that is not given has none.
func (m *Metrics) Unprotected(pods map[failover.Reason]int) {
	for _, reason := range failover.Hindrances() {
		m.unprotected.WithLabelValues(string(reason)).Set(float64(pods[reason]))
	}
}
