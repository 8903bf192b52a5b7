package bench

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Skip(err) // no Linux
	}
	after := before
	for err == nil && after == before { // work until it counts
		_ = procField("/proc/self/status", "VmRSS")
		after, err = cpuTime(os.Getpid())
	}
	if err != nil || after < before || after > before+10*time.Second {
		t.Errorf("processor time went from %s to %s (%v) in a moment of work", before, after, err)
	}
	rss, err := memory(os.Getpid(), "VmRSS")
	if err != nil || rss < 1 || rss > 10000 {
		t.Errorf("RSS is %v MiB, %v", rss, err)
	}
	if _, err := memory(os.Getpid(), "VmNone"); err == nil {
		t.Error("a field that does not exist was read")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	texts := []string{`
# TYPE requests_total counter
requests_total{kind="view"} 1
requests_total{kind="nodes"} 2
# TYPE took_seconds histogram
took_seconds_bucket{name="a",le="0.1"} 50
took_seconds_bucket{name="a",le="1"} 50
took_seconds_bucket{name="a",le="+Inf"} 50
took_seconds_sum{name="a"} 1
took_seconds_count{name="a"} 50
`, `
# TYPE took_seconds histogram
took_seconds_bucket{name="a",le="0.1"} 148
took_seconds_bucket{name="a",le="1"} 150
took_seconds_bucket{name="a",le="+Inf"} 151
took_seconds_sum{name="a"} 3
took_seconds_count{name="a"} 151
`}
	var scraped []metrics
	for _, text := range texts {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		m, err := scrape(t.Context(), server.URL)
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		scraped = append(scraped, m)
	}
	before, after := scraped[0], scraped[1]
	if all, nodes := before.value("requests_total", ""), before.value("requests_total", "kind=nodes"); all != 3 || nodes != 2 {
		t.Errorf("%v requests, %v of them of nodes; want 3 and 2", all, nodes)
	}
	// Of 101 new ones 98 are in the first bucket and 100 in the second.
	for q, want := range map[float64]float64{0.5: 0.1, 0.97: 0.1, 0.99: 1, 1: 1} {
		if got := after.quantile(q, before, "took_seconds", "name=a"); got != want {
			t.Errorf("quantile %v is at most %v, want %v", q, got, want)
		}
	}
	if got := after.quantile(0.99, after, "took_seconds", "name=a"); !math.IsNaN(got) {
		t.Errorf("the quantile of nothing is %v", got)
	}
	if before.has("none") || !before.has("took_seconds") {
		t.Error("has does not tell what there is")
	}
}
