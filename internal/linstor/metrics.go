package linstor

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

const metricsPrefix = "piraeus_ha_controller_linstor_"

// Values of the label "type" of the events counter.
const (
	eventLabelUnknown     = "unknown"
	eventLabelUndecodable = "undecodable"
)

// Values of the label "reason" of the reconnects counter.
const (
	reconnectLost  = "lost"
	reconnectDead  = "dead"
	reconnectMoved = "moved"
)

// Values of the label "code" of the requests counter, beside the HTTP statuses of failures.
const (
	codeOK       = "ok"
	codeCanceled = "canceled"
	codeError    = "error"
)

// Metrics are what the client and the feed count. Nothing is registered until the owner registers
// Collectors.
type Metrics struct {
	connected  prometheus.Gauge
	reconnects *prometheus.CounterVec
	events     *prometheus.CounterVec
	resync     prometheus.Histogram
	requests   *prometheus.CounterVec
	success    prometheus.Gauge
}

// NewMetrics returns metrics of which all known label values start at 0.
func NewMetrics() *Metrics {
	m := &Metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricsPrefix + "stream_connected",
			Help: "1 while LINSTOR's promotion events are followed, else 0.",
		}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "stream_reconnects_total",
			Help: "Event streams that ended, by reason: lost (ended or could not be opened), dead (silent while LINSTOR sent events to another), moved (another endpoint took over).",
		}, []string{"reason"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "events_total",
			Help: "Events received from LINSTOR, by type: may-promote-change, unknown, undecodable.",
		}, []string{"type"}),
		resync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    metricsPrefix + "resync_duration_seconds",
			Help:    "Time that this replica took to read everything known of LINSTOR by REST, successful reads only.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "requests_total",
			Help: "Requests to LINSTOR, by kind and by code: ok, canceled, error (no or an unusable answer) or the HTTP status of a failure.",
		}, []string{"kind", "code"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricsPrefix + "last_success_timestamp_seconds",
			Help: "When LINSTOR last answered a request, or sent an event, as seconds since 1970; 0 if it never has since the start.",
		}),
	}
	for _, reason := range []string{reconnectLost, reconnectDead, reconnectMoved} {
		m.reconnects.WithLabelValues(reason)
	}
	for _, eventType := range []string{client.EventMayPromote, eventLabelUnknown, eventLabelUndecodable} {
		m.events.WithLabelValues(eventType)
	}
	for _, kind := range client.Kinds() {
		for _, code := range []string{codeOK, codeCanceled, codeError} {
			m.requests.WithLabelValues(oneWord(kind), code)
		}
	}
	return m
}

// oneWord makes one word of a label, as people write queries of.
func oneWord(label string) string { return strings.ReplaceAll(label, " ", "_") }

// Collectors returns what to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.connected, m.reconnects, m.events, m.resync, m.requests, m.success}
}

// request counts a request by its outcome.
func (m *Metrics) request(kind string, err error) {
	code := codeError
	if statusErr, ok := errors.AsType[*client.StatusError](err); ok {
		code = strconv.Itoa(statusErr.Code)
	} else if err == nil {
		code = codeOK
		m.heard()
	} else if errors.Is(err, context.Canceled) {
		code = codeCanceled
	}
	m.requests.WithLabelValues(oneWord(kind), code).Inc()
}

// heard notes that LINSTOR is there.
func (m *Metrics) heard() { m.success.SetToCurrentTime() }
