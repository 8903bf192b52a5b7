package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

// BuildInfo tells which build runs.
func BuildInfo() prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1, labelled with the version, the commit and the Go release of the build that runs.",
	}, []string{"version", "commit", "goversion"})
	info.WithLabelValues(version.Version(), version.Commit(), runtime.Version()).Set(1)
	return info
}
