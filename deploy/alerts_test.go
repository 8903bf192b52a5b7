package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	alertPrefix = "PiraeusHAController"
	runbooks    = "https://github.com/piraeusdatastore/piraeus-ha-controller/blob/main/docs/runbooks.md#"
	promtool    = "../bin/promtool"
)

// alert is a rule of a PrometheusRule.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// alertGroup is a group of rules.
type alertGroup struct {
	Name  string  `json:"name"`
	Rules []alert `json:"rules"`
}

// alertGroups returns the shipped rules.
func alertGroups(t *testing.T) []alertGroup {
	t.Helper()

	content, err := os.ReadFile("../config/extras/monitoring/prometheus_rule.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var rule struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct{ Groups []alertGroup }
	}

	if err := yaml.UnmarshalStrict(content, &rule); err != nil {
		t.Fatal(err)
	}

	return rule.Spec.Groups
}

// alerts returns the shipped rules in their order.
func alerts(t *testing.T) (all []alert) {
	t.Helper()

	for _, group := range alertGroups(t) {
		all = append(all, group.Rules...)
	}

	return all
}

// Whoever is woken by an alert finds its runbook, and every runbook is that of an alert.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}

	var headings, want []string

	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(heading, alertPrefix) {
			continue
		}

		headings = append(headings, heading)

		for _, part := range []string{"**Meaning.**", "**Look.**", "**Do.**", "```console\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("the runbook of %s has no %q", heading, part)
			}
		}
	}

	for _, a := range alerts(t) {
		want = append(want, a.Alert)

		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", a.Alert)
		}

		if anchor := runbooks + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != anchor {
			t.Errorf("the runbook of %s is at %s, want %s", a.Alert, a.Annotations["runbook_url"], anchor)
		}

		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s has the severity %q", a.Alert, a.Labels["severity"])
		}
	}

	if diff := cmp.Diff(want, headings); diff != "" {
		t.Errorf("runbooks in the order of the alerts (-want +got):\n%s", diff)
	}
}

// An alert about a metric that nobody shows never fires.
func TestAlertsAskForMetricsThatThereAre(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}

	asked := 0

	for _, a := range alerts(t) {
		for _, name := range regexp.MustCompile(`[a-z_]+\{`).FindAllString(a.Expr, -1) {
			asked++
			name = strings.TrimSuffix(strings.TrimSuffix(name, "{"), "_bucket")

			if name != "up" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%s asks for %s, of which docs/metrics.md knows nothing", a.Alert, name)
			}
		}

		if strings.Count(a.Expr, "{") != strings.Count(a.Expr, `{job="piraeus-ha-controller"`) {
			t.Errorf("%s asks for metrics of other jobs: %s", a.Alert, a.Expr)
		}
	}

	if asked < len(alerts(t)) {
		t.Errorf("only %d metrics were found in the rules", asked)
	}
}

// Each alert fires when it should, and not in the nearest case in which it should not. The texts of the alerts are left out: promtool
// would have every test repeat them.
func TestWithPromtoolAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()

	const cases = "testdata/alerts.yaml"

	content, err := os.ReadFile(cases)
	if err != nil {
		t.Fatal(err)
	}

	fires, rests := firings(t, content)
	groups := alertGroups(t)

	for _, group := range groups {
		for i, a := range group.Rules {
			if !fires[a.Alert] || !rests[a.Alert] {
				t.Errorf("%s: %s has a case in which it fires: %t, and one in which it does not: %t", cases, a.Alert, fires[a.Alert], rests[a.Alert])
			}

			group.Rules[i].Annotations = nil
		}
	}

	rules, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	for name, text := range map[string][]byte{"rules.yaml": rules, "alerts.yaml": content} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if said, err := tool(t, "test", "rules", filepath.Join(dir, "alerts.yaml")); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// The texts of the alerts are templates.
func TestWithPromtoolTheAlertsAreAccepted(t *testing.T) {
	t.Parallel()

	rules, err := yaml.Marshal(map[string]any{"groups": alertGroups(t)})
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}

	if said, err := tool(t, "check", "rules", "--lint=all", "--lint-fatal", path); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// firings tells which alerts have a case in which they fire, and which have one in which they do not.
func firings(t *testing.T, content []byte) (fires, rests map[string]bool) {
	t.Helper()

	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}

	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}

	fires, rests = map[string]bool{}, map[string]bool{}

	for _, test := range file.Tests {
		for _, rule := range test.AlertRuleTest {
			if len(rule.ExpAlerts) > 0 {
				fires[rule.Alertname] = true
			} else {
				rests[rule.Alertname] = true
			}
		}
	}

	return fires, rests
}

// tool runs promtool and returns what it says.
func tool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	forMaintainers(t, "TestWithPromtool")

	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("%v; run `make bin/promtool` first", err)
	}

	var said bytes.Buffer

	cmd := exec.CommandContext(t.Context(), promtool, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()

	return said.String(), err
}
