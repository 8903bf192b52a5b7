package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Write is what a write of a fail-over does, as a label value.
type Write string

// The writes whose age is recorded. Each but the mark takes something away.
const (
	WriteMark    Write = "mark_attachment"
	WriteRemove  Write = "delete_pod"
	WriteRelease Write = "release_volumes"
	WriteDetach  Write = "delete_attachment"
)

func newWriteAges() *prometheus.HistogramVec {
	ages := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "write_age_seconds",
		Help:    "Time from the oldest request of a look to a write that rests on it, by what is written; none is sent after 2 s.",
		Buckets: []float64{.05, .1, .25, .5, .75, 1, 1.25, 1.5, 1.75, 2},
	}, []string{"write"})
	for _, write := range []Write{WriteMark, WriteRemove, WriteRelease, WriteDetach} {
		ages.WithLabelValues(string(write))
	}
	return ages
}

// WriteSent records how old what a write rests on was when it was sent.
func (m *Metrics) WriteSent(write Write, age time.Duration) {
	m.ages.WithLabelValues(string(write)).Observe(age.Seconds())
}
