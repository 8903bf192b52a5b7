package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"
)

// register makes the kinds of panels and queries known that are read back.
var register = sync.OnceFunc(plugins.RegisterDefaultPlugins)

// shipped reads the dashboard that users get.
func shipped(t *testing.T) (content []byte, board dashboard.Dashboard) {
	t.Helper()
	content, err := os.ReadFile("../../../../config/extras/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	register()
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	return content, board
}

// What Grafana's own types do not know would be lost when they are written again.
func TestGrafanaUnderstandsAllOfTheDashboard(t *testing.T) {
	t.Parallel()
	content, board := shipped(t)
	var read bytes.Buffer
	if err := write(&read, board); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, read.Bytes()) {
		t.Error("the dashboard is another one after it was read")
	}
}

func TestTheShippedDashboardIsTheOneOfThisProgram(t *testing.T) {
	t.Parallel()
	built, err := controllerBoard().Build()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := write(&want, built); err != nil {
		t.Fatal(err)
	}
	if content, _ := shipped(t); !bytes.Equal(content, want.Bytes()) {
		t.Error(`config/extras/monitoring/dashboard.json is not current: run "make dashboard"`)
	}
}

// What the panels ask Prometheus for can be asked, and is restricted to the installation that was chosen.
func TestThePanelsAskForTheChosenInstallation(t *testing.T) {
	t.Parallel()
	_, board := shipped(t)
	panels := 0
	for _, row := range board.Panels {
		if row.Panel == nil {
			continue
		}
		panels++
		for _, target := range row.Panel.Targets {
			text, err := json.Marshal(target)
			if err != nil {
				t.Fatal(err)
			}
			var query struct{ Expr string }
			if err := json.Unmarshal(text, &query); err != nil {
				t.Fatal(err)
			}
			expr := strings.NewReplacer("$__range", "6h", "$__rate_interval", "2m", "$job", "j", "$namespace", "n").Replace(query.Expr)
			parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
			if err != nil {
				t.Errorf("panel %q asks what Prometheus does not understand: %v", *row.Panel.Title, err)
				continue
			}
			for _, selector := range parser.ExtractSelectors(parsed) {
				asked := map[string]bool{}
				for _, matcher := range selector {
					asked[matcher.Name] = true
				}
				if !asked["job"] || !asked["namespace"] {
					t.Errorf("panel %q asks for all installations: %s", *row.Panel.Title, query.Expr)
				}
			}
		}
	}
	if panels < 20 {
		t.Errorf("there are only %d panels", panels)
	}
}
