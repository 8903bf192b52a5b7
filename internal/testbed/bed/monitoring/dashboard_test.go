package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
)

// board is what is asked for by the shipped dashboard.
type board struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

func (w *watched) board(root string) board {
	w.T.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "extras", "monitoring", "dashboard.json"))
	w.Must(err)
	var b board
	w.Must(json.Unmarshal(content, &b))
	return b
}

// asked fills in what Grafana does.
func asked(expr string) string {
	return strings.NewReplacer("$__range", "15m", "$__rate_interval", "1m", "$job", job, "$namespace", bed.ControllerNamespace).Replace(expr)
}

// wantDashboard has every query of the panels answered.
func (w *watched) wantDashboard(root string) {
	w.T.Helper()
	queries := 0
	for _, panel := range w.board(root).Panels {
		for _, target := range panel.Targets {
			queries++
			answer, err := w.prometheus.value(w.Ctx, asked(target.Expr))
			w.Must(err)
			if answer == "" {
				w.T.Errorf("panel %q shows nothing: %s", panel.Title, asked(target.Expr))
			}
			w.T.Logf("panel %q: %s", panel.Title, strings.ReplaceAll(answer, "\n", "; "))
		}
	}
	if queries < 20 {
		w.T.Errorf("only %d queries were found", queries)
	}
}

// wantAnnotations looks for a mark of each kind in all that has happened.
func (w *watched) wantAnnotations(root string, since time.Time) {
	w.T.Helper()
	for _, a := range w.board(root).Annotations.List {
		if a.Expr == "" {
			continue
		}
		answer, _, _, err := w.prometheus.QueryRange(w.T.Context(), asked(a.Expr), promv1.Range{Start: since, End: time.Now(), Step: scraped})
		w.Must(err)
		if matrix, ok := answer.(model.Matrix); !ok || len(matrix) == 0 {
			w.T.Errorf("nothing is marked as %q: %s", a.Name, asked(a.Expr))
		}
	}
}

// wantMetrics compares what the running controller shows with what its page says.
func (w *watched) wantMetrics(root string) {
	w.T.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
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
	for _, name := range want {
		if !slices.Contains(shown, name) {
			w.T.Errorf("docs/metrics.md tells of %s, which the controller does not show", name)
		}
	}
	for _, name := range shown {
		if strings.HasPrefix(name, "piraeus_ha_controller_") && !slices.Contains(want, name) {
			w.T.Errorf("the controller shows %s, of which docs/metrics.md does not tell", name)
		}
	}
}
