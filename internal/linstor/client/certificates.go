package client

import (
	"crypto/x509"
	"encoding/pem"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificates shows when the certificates end by which this process and LINSTOR know each other. Whoever asks has the files read as
// they are now: that is what the next connection goes by.
type certificates struct {
	files   tlsFiles
	expires *prometheus.Desc
}

// Certificates returns a collector of when the certificates of a configuration end.
func Certificates(cfg Config) prometheus.Collector {
	return certificates{cfg.tls, prometheus.NewDesc("piraeus_ha_controller_linstor_certificate_expiration_timestamp_seconds",
		"When the client's certificate ends, or the last one of the authority's, as seconds since 1970; +Inf where none is given, "+
			"NaN where it cannot be read.",
		[]string{"certificate"}, nil)}
}

// Describe implements prometheus.Collector.
func (c certificates) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.expires }

// Collect implements prometheus.Collector.
func (c certificates) Collect(collected chan<- prometheus.Metric) {
	for name, given := range map[string]*material{"client": c.files.cert, "authority": c.files.ca} {
		collected <- prometheus.MustNewConstMetric(c.expires, prometheus.GaugeValue, expiration(given, name == "authority"), name)
	}
}

// expiration returns when a certificate ends. Of an authority that is being renewed there are several, of which one suffices; of a
// client the first one is its own, and those of authorities follow.
func expiration(given *material, last bool) float64 {
	if given == nil {
		return math.Inf(1)
	}
	text, err := given.read()
	if err != nil {
		return math.NaN()
	}
	var end time.Time
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return math.NaN()
		}
		if end.IsZero() || last && certificate.NotAfter.After(end) {
			end = certificate.NotAfter
		}
	}
	if end.IsZero() {
		return math.NaN()
	}
	return float64(end.Unix())
}
