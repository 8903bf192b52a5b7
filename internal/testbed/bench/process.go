package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ticksPerSecond is the unit of processor time in /proc, the same on all Linux systems.
const ticksPerSecond = 100

// cpuTime returns the processor time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	// After the name, which may contain anything, the fields begin with the third.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, errors.New("processor time: /proc/PID/stat is too short")
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// memory returns a size of a process in MiB: its VmRSS, or VmHWM, the greatest it ever had.
func memory(pid int, field string) (float64, error) {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(procField(fmt.Sprintf("/proc/%d/status", pid), field), " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("%s of process %d: %w", field, pid, err)
	}
	return kib / 1024, nil
}

// resetPeak lets the greatest size of a process begin anew with what it has now.
func resetPeak(pid int) error {
	const peak = "5" // proc(5), clear_refs
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peak), 0); err != nil {
		return fmt.Errorf("greatest size of process %d: %w", pid, err)
	}
	return nil
}

// metrics are what a process says of itself.
type metrics map[string]*dto.MetricFamily

// scrape reads the metrics of a process.
func scrape(ctx context.Context, url string) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return families, nil
}

// has tells whether there is a metric of that name.
func (m metrics) has(name string) bool { return m[name] != nil }

// matching calls f for the series of a metric with a label, "name=value", or for all without one.
func (m metrics) matching(name, label string, f func(*dto.Metric)) {
	key, value, _ := strings.Cut(label, "=")
	family := m[name]
	if family == nil {
		return
	}
	for _, series := range family.GetMetric() {
		match := label == ""
		for _, l := range series.GetLabel() {
			match = match || l.GetName() == key && l.GetValue() == value
		}
		if match {
			f(series)
		}
	}
}

// value returns the sum of a counter's or gauge's series with a label, or of the observations of a histogram.
func (m metrics) value(name, label string) float64 {
	sum := 0.0
	m.matching(name, label, func(series *dto.Metric) {
		sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
	})
	return sum
}

// quantile returns an upper bound of a quantile of what a histogram has observed since an earlier scrape: the
// upper end of the bucket that it is in, or of the last one that has an end. NaN if nothing was observed.
func (m metrics) quantile(q float64, since metrics, name, label string) float64 {
	counts, all := map[float64]float64{}, 0.0
	add := func(of metrics, sign float64) {
		of.matching(name, label, func(series *dto.Metric) {
			for _, bucket := range series.GetHistogram().GetBucket() {
				counts[bucket.GetUpperBound()] += sign * float64(bucket.GetCumulativeCount())
			}
			all += sign * float64(series.GetHistogram().GetSampleCount())
		})
	}
	add(m, 1)
	add(since, -1)
	bounds := slices.Sorted(maps.Keys(counts))
	bounds = slices.DeleteFunc(bounds, func(bound float64) bool { return math.IsInf(bound, 1) })
	if all == 0 || len(bounds) == 0 {
		return math.NaN()
	}
	for _, bound := range bounds {
		if counts[bound] >= q*all {
			return bound
		}
	}
	return bounds[len(bounds)-1]
}
