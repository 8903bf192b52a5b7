package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/version"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: here}}]
clusters: [{name: here, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: here, user: {token: not-a-secret}}]
`

func TestRESTConfigFromFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}

	o := Default()
	o.Kubeconfig = path

	cfg, err := o.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}

	if cfg.Host != "https://192.0.2.1:6443" || cfg.QPS >= 0 || cfg.UserAgent != version.UserAgent() || cfg.Timeout != 0 ||
		!cfg.DisableCompression {
		t.Errorf("RESTConfig() = host %q, QPS %v, user agent %q, timeout %s, compression off: %t", cfg.Host, cfg.QPS, cfg.UserAgent,
			cfg.Timeout, cfg.DisableCompression)
	}
}

func TestRESTConfigNamesTheMissingFile(t *testing.T) {
	t.Parallel()

	o := Default()
	o.Kubeconfig = filepath.Join(t.TempDir(), "absent")

	if _, err := o.RESTConfig(); err == nil || !strings.Contains(err.Error(), o.Kubeconfig) {
		t.Errorf("RESTConfig() = %v, want an error that names %s", err, o.Kubeconfig)
	}
}
