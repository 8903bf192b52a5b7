package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// board is what is asked for by the shipped dashboard.
type board struct {
	Panels []struct {
		Title   string
		Targets []target
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

// target is a query of a panel: its value of now, or over time.
type target struct {
	Expr    string
	Instant bool
}

// answers are what Prometheus said to the queries of the dashboard, in its order: those of the panels, and those of the annotations.
// "make dashboard-picture" draws them.
type answers struct {
	From        time.Time       `json:"from"`
	To          time.Time       `json:"to"`
	Step        float64         `json:"step"` // seconds
	Panels      [][]model.Value `json:"panels"`
	Annotations []model.Value   `json:"annotations"`
}

// The dashboard is asked while one workload has been moved and another one cannot be.
func TestDashboardShowsWhatMovedAndWhatDidNot(t *testing.T) {
	file := os.Getenv("DASHBOARD_ANSWERS")
	if file == "" {
		t.Skip("it writes what is drawn: run make dashboard-picture")
	}
	w := watch(t, "dashboard")
	safe, _ := w.workloads()
	for _, act := range losses(safe) {
		if !act.run(t, w) {
			return
		}
	}
	content, err := json.Marshal(w.seen)
	must(t, err)
	must(t, os.WriteFile(file, content, 0o600))
}

func (w *watched) board() board {
	w.T.Helper()
	content, err := os.ReadFile(filepath.Join(w.root, "config", "extras", "monitoring", "dashboard.json"))
	w.Must(err)
	var b board
	w.Must(json.Unmarshal(content, &b))
	return b
}

// asked fills in what Grafana does where that range is shown.
func asked(expr string, shown promv1.Range) string {
	return strings.NewReplacer("$__range", model.Duration(shown.End.Sub(shown.Start).Round(time.Second)).String(),
		"$__rate_interval", "1m", "$job", job, "$namespace", bed.ControllerNamespace).Replace(expr)
}

// shown is all that has happened so far.
func (w *watched) shown() promv1.Range {
	return promv1.Range{Start: w.began, End: time.Now(), Step: scraped}
}

// wantDashboard has every query of the panels answered, and keeps the answers.
func (w *watched) wantDashboard() {
	w.T.Helper()
	queries, shown := 0, w.shown()
	w.seen.From, w.seen.To, w.seen.Step = shown.Start, shown.End, shown.Step.Seconds()
	board := w.board()
	for _, panel := range board.Panels {
		panelAnswers := []model.Value{}
		for _, target := range panel.Targets {
			queries++
			expr := asked(target.Expr, shown)
			answer, err := w.prometheus.ask(w.Ctx, expr, target.Instant, shown)
			w.Must(err)
			if empty(answer) {
				w.T.Errorf("panel %q shows nothing: %s", panel.Title, expr)
			}
			panelAnswers = append(panelAnswers, answer)
		}
		w.seen.Panels = append(w.seen.Panels, panelAnswers)
	}
	if queries < 20 {
		w.T.Errorf("only %d queries were found", queries)
	}
	for _, a := range board.Annotations.List {
		w.seen.Annotations = append(w.seen.Annotations, w.marks(a.Expr, shown))
	}
}

// wantAnnotations looks for a mark of each kind in all that has happened.
func (w *watched) wantAnnotations() {
	w.T.Helper()
	shown := w.shown()
	for _, a := range w.board().Annotations.List {
		if a.Expr != "" && empty(w.marks(a.Expr, shown)) {
			w.T.Errorf("nothing is marked as %q: %s", a.Name, asked(a.Expr, shown))
		}
	}
}

// marks are when something was so that the dashboard marks.
func (w *watched) marks(expr string, shown promv1.Range) model.Value {
	w.T.Helper()
	answer, err := w.prometheus.ask(w.T.Context(), asked(expr, shown), false, shown)
	w.Must(err)
	return answer
}

// wantMetrics compares what the running controller shows with what its page says.
func (w *watched) wantMetrics() {
	w.T.Helper()
	page, err := os.ReadFile(filepath.Join(w.root, "docs", "metrics.md"))
	w.Must(err)
	var want []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`.* \\|").FindAllSubmatch(page, -1) {
		want = append(want, string(match[1]))
	}
	names, _, _, err := w.prometheus.LabelValues(w.T.Context(), model.MetricNameLabel, nil, time.Now().Add(-time.Hour), time.Now())
	w.Must(err)
	var shown []string
	for _, name := range names {
		shown = append(shown, regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(string(name), ""))
	}
	const ofNodes = "piraeus_ha_controller_evacuation_volumes" // has a series for each node that is evacuated, and here none is
	for _, name := range want {
		if !slices.Contains(shown, name) && name != ofNodes {
			w.T.Errorf("docs/metrics.md tells of %s, which the controller does not show", name)
		}
	}
	for _, name := range shown {
		if strings.HasPrefix(name, "piraeus_ha_controller_") && !slices.Contains(want, name) {
			w.T.Errorf("the controller shows %s, of which docs/metrics.md does not tell", name)
		}
	}
}
