package monitoring_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// operator is the release of the Prometheus Operator whose custom resources the monitors and rules must fit.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// install brings the Prometheus Operator's custom resources and then what users apply, as strictly as the API server can look at it.
func install(t *testing.T, b *bed.Bed) {
	t.Helper()
	root, err := bed.Root()
	must(t, err)
	var module struct{ Dir string }
	must(t, json.Unmarshal(output(t, root, nil, "go", "mod", "download", "-json", operator), &module))
	kubectl := func(input []byte, args ...string) {
		output(t, root, input, filepath.Join("bin", "kubectl"), append([]string{"--kubeconfig=" + b.Kubeconfig}, args...)...)
	}
	for _, kind := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		kubectl(nil, "create", "--filename",
			filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+kind+".yaml"))
		kubectl(nil, "wait", "--for=condition=Established", "--timeout=30s", "crd/"+kind+".monitoring.coreos.com")
	}
	for _, folder := range []string{"monitoring-plain", "monitoring"} {
		built := output(t, root, nil, "go", "tool", "-modfile=internal/tools/pinned/go.mod",
			"kustomize", "build", filepath.Join("config", "extras", folder))
		kubectl(built, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
		if folder == "monitoring" {
			kubectl(built, "apply", "--server-side", "--validate=strict", "--filename=-")
			kubectl(built, "apply", "--server-side", "--validate=strict", "--filename=-") // again
		}
	}
}

// output runs a command and returns what it prints.
func output(t *testing.T, dir string, input []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	if strings.Contains(name, "/") {
		cmd.Path = filepath.Join(dir, name)
	}
	var complained bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.WaitDelay = dir, bytes.NewReader(input), &complained, time.Second
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, complained.String())
	}
	return said
}
