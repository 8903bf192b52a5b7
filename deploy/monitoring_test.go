package deploy

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// buildExtras builds a folder of config/extras, and returns its objects by kind.
func buildExtras(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../internal/tools/pinned/go.mod",
		"kustomize", "build", "../config/extras/"+folder)

	var complained bytes.Buffer

	cmd.Stderr = &complained

	content, err := cmd.Output()
	if err != nil {
		t.Fatalf("kustomize: %v\n%s", err, complained.String())
	}

	all := map[string]*unstructured.Unstructured{}

	for document := range strings.SplitSeq(string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}

		if o.GetKind() != "ClusterRole" && o.GetNamespace() != namespace {
			t.Errorf("%s %s is in namespace %q", o.GetKind(), o.GetName(), o.GetNamespace())
		}

		all[o.GetKind()] = o
	}

	return all
}

// Prometheus finds the replicas by what the monitors select, and the alerts find them by the job that the monitors give.
func TestTheMonitorsFindTheController(t *testing.T) {
	t.Parallel()

	deployment := load(t).deployment
	pod := deployment.Spec.Template.Labels

	text := func(o *unstructured.Unstructured, path ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, path...)

		return value
	}
	selects := func(o *unstructured.Unstructured, found map[string]string, path ...string) {
		t.Helper()

		selector, _, _ := unstructured.NestedStringMap(o.Object, path...)
		if len(selector) == 0 {
			t.Errorf("%s selects nothing", o.GetKind())
		}

		for key, value := range selector {
			if found[key] != value {
				t.Errorf("%s selects %s=%s, and finds %s=%s", o.GetKind(), key, value, key, found[key])
			}
		}
	}
	jobOf := func(o *unstructured.Unstructured, found map[string]string) {
		t.Helper()

		if job := found[text(o, "spec", "jobLabel")]; job != "piraeus-ha-controller" {
			t.Errorf("%s makes the job %q", o.GetKind(), job)
		}
	}

	secure := buildExtras(t, "monitoring")
	selects(secure["Service"], pod, "spec", "selector")
	selects(secure["ServiceMonitor"], secure["Service"].GetLabels(), "spec", "selector", "matchLabels")
	jobOf(secure["ServiceMonitor"], secure["Service"].GetLabels())

	plain := buildExtras(t, "monitoring-plain")
	selects(plain["PodMonitor"], pod, "spec", "selector", "matchLabels")
	jobOf(plain["PodMonitor"], pod)

	for _, kind := range []string{"Service", "ServiceMonitor", "ClusterRole"} {
		if _, ok := plain[kind]; ok {
			t.Errorf("without encryption there is no need for a %s", kind)
		}
	}

	for _, all := range []map[string]*unstructured.Unstructured{secure, plain} {
		if _, ok := all["PrometheusRule"]; !ok || all["ConfigMap"].GetLabels()["grafana_dashboard"] != "1" {
			t.Error("there are no alerts, or no dashboard that Grafana's sidecar finds")
		}
	}
}
