package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evacuation"
)

// CopyResult is what became of the question for a copy.
type CopyResult string

const (
	// CopyPlaced : LINSTOR makes it.
	CopyPlaced CopyResult = "placed"
	// CopyRefused : LINSTOR has no place for it.
	CopyRefused CopyResult = "refused"
	// CopyFailed : LINSTOR has not answered.
	CopyFailed CopyResult = "failed"
)

// EvacuationStage is a part of an evacuation that is timed on its own.
type EvacuationStage string

const (
	// StageSafe is from the first sight of the taint to a good copy of everything elsewhere.
	StageSafe EvacuationStage = "safe"
	// StageEvacuated is from the first sight of the taint to the last replica's leaving.
	StageEvacuated EvacuationStage = "evacuated"
)

// evacuations is what is counted and shown of nodes that leave.
type evacuations struct {
	volumes          *prometheus.GaugeVec
	copies, requests *prometheus.CounterVec
	stages           *prometheus.HistogramVec
}

func newEvacuations() evacuations {
	e := evacuations{
		volumes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "evacuation_volumes",
			Help: "Volumes with a replica on a node that is evacuated, by node and by what is so of them: CopiedElsewhere, or why they are not safe " +
				"elsewhere; no series while no node is evacuated, and on replicas that do not lead.",
		}, []string{"node", "state"}),
		copies:   counters("evacuation_copies_total", "Copies that LINSTOR was asked for, by result: placed, refused, failed.", "result"),
		requests: counters("evacuation_requests_total", "Calls by which LINSTOR was told something, by call and by code: the HTTP status, or error.", "call", "code"),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "evacuation_duration_seconds",
			Help:    "Duration of an evacuation from the first sight of the taint, by stage: safe when all has a good copy elsewhere, evacuated when nothing is left.",
			Buckets: []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400},
		}, []string{"stage"}),
	}
	begin(e.copies, []CopyResult{CopyPlaced, CopyRefused, CopyFailed})
	for _, call := range evacuation.Calls() {
		begin(e.requests.MustCurryWith(prometheus.Labels{"call": string(call)}), []string{"200", "error"})
	}
	for _, stage := range []EvacuationStage{StageSafe, StageEvacuated} {
		e.stages.WithLabelValues(string(stage))
	}
	return e
}

func (e evacuations) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.volumes, e.copies, e.requests, e.stages}
}

// Evacuating shows what is so of the volumes of a node; nil where it is not evacuated any more.
func (m *Metrics) Evacuating(node string, counts map[evacuation.Reason]int) {
	m.evacuations.volumes.DeletePartialMatch(prometheus.Labels{"node": node})
	for reason, n := range counts {
		m.evacuations.volumes.WithLabelValues(node, string(reason)).Set(float64(n))
	}
}

// Copied counts the question for a copy.
func (m *Metrics) Copied(result CopyResult) {
	m.evacuations.copies.WithLabelValues(string(result)).Inc()
}

// Told counts a call to LINSTOR.
func (m *Metrics) Told(call evacuation.Call, code string) {
	m.evacuations.requests.WithLabelValues(string(call), code).Inc()
}

// EvacuationTook records how long a stage took.
func (m *Metrics) EvacuationTook(stage EvacuationStage, d time.Duration) {
	m.evacuations.stages.WithLabelValues(string(stage)).Observe(d.Seconds())
}
