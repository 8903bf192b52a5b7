package linstor

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Whoever watches the certificates is told of a renewed file without a restart, and of one that can no longer be read.
func TestTheEndOfTheCertificatesIsTold(t *testing.T) {
	t.Parallel()
	authority, dir := newAuthority(t), t.TempDir()
	ca, _ := pairOf(t, authority.issue(t, 48*time.Hour))
	longer, _ := pairOf(t, authority.issue(t, 96*time.Hour))
	cert, key := pairOf(t, authority.issue(t, 24*time.Hour))
	certFile, keyFile := write(t, dir, "tls.crt", cert), write(t, dir, "tls.key", key)

	for name, tc := range map[string]struct {
		env               map[string]string
		client, authority time.Duration
	}{
		"with no certificates there is nothing to end": {client: -1, authority: -1},
		"a client's certificate in a file": {
			env: map[string]string{"LS_USER_CERTIFICATE_FILE": certFile, "LS_USER_KEY_FILE": keyFile}, client: 24 * time.Hour, authority: -1,
		},
		"of two authorities the one that lasts longer counts": {
			env: map[string]string{"LS_ROOT_CA": longer + ca}, client: -1, authority: 96 * time.Hour,
		},
		"of a client's chain its own certificate counts": {
			env:    map[string]string{"LS_USER_CERTIFICATE": cert + longer, "LS_USER_KEY": key},
			client: 24 * time.Hour, authority: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := ConfigFromEnv(func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok })
			if err != nil {
				t.Fatal(err)
			}
			got := certificateEnds(t, cfg)
			for certificate, want := range map[string]time.Duration{"client": tc.client, "authority": tc.authority} {
				switch end := got[certificate]; {
				case want < 0 && !math.IsInf(end, 1):
					t.Errorf("the %s's certificate ends at %v, and there is none", certificate, end)
				case want >= 0 && math.Abs(end-float64(time.Now().Add(want).Unix())) > 60:
					t.Errorf("the %s's certificate ends at %v, want in %s", certificate, end, want)
				}
			}
		})
	}
}

// A file may be exchanged, or damaged, while the process runs.
func TestTheEndOfACertificateFollowsItsFile(t *testing.T) {
	t.Parallel()
	authority, dir := newAuthority(t), t.TempDir()
	first, _ := pairOf(t, authority.issue(t, 24*time.Hour))
	second, _ := pairOf(t, authority.issue(t, 48*time.Hour))
	file := write(t, dir, "ca.crt", first)
	cfg, err := ConfigFromEnv(func(name string) (string, bool) {
		if name != "LS_ROOT_CA_FILE" {
			return "", false
		}
		return file, true
	})
	if err != nil {
		t.Fatal(err)
	}
	before := certificateEnds(t, cfg)["authority"]
	write(t, dir, filepath.Base(file), second)
	if after := certificateEnds(t, cfg)["authority"]; after-before < (23 * time.Hour).Seconds() {
		t.Errorf("the renewed file ends at %v, the one before at %v", after, before)
	}
	write(t, dir, filepath.Base(file), "no certificate")
	if after := certificateEnds(t, cfg)["authority"]; !math.IsNaN(after) {
		t.Errorf("a file without a certificate ends at %v", after)
	}
}

// certificateEnds returns what is shown, by the label.
func certificateEnds(t *testing.T, cfg Config) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Certificates(cfg))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			ends[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return ends
}
