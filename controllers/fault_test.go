package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/cluster"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/virtual"
)

// fault is something around the controller that breaks while a node is lost, and heals later.
type fault struct {
	// begin breaks it, end heals it. They may be nil: what began before the process was started, or heals by itself.
	begin, end func(w *world, p *process)
	// cfg changes the default settings; nil changes nothing.
	cfg func(*Config)
	// stops tells that the workload must not move before the fault ends.
	stops bool
	// limit is how long the move may take: from the crash, or from the end of a fault that stops it.
	limit time.Duration
	// lasts is how long after the crash the fault ends.
	lasts time.Duration
	// seen tells, at the end of the fault, whether its reason could be seen in metrics or Events.
	seen func(w *world, p *process) bool
}

// befalls plays the fault: it begins, half a minute later a node crashes, and later it ends. The workload moves, once, and
// nothing is left of it when the node is back.
func (f fault) befalls(t *testing.T) {
	t.Helper()
	cfg := defaults()
	if f.cfg != nil {
		f.cfg(&cfg)
	}
	sceneWith(t, virtual.Options{}, cfg, func(w *world, p *process) {
		other := w.pod("other-0")
		p.before = p.counted()
		if f.begin != nil {
			f.begin(w, p)
		}
		w.pass(30 * time.Second)
		crashed := time.Now()
		w.Crash(nodeA)
		moved := func() bool { return w.runs("db-0", nodeB) }
		if f.stops {
			w.pass(f.lasts)
			if len(w.removed("db-0")) > 0 {
				t.Errorf("the workload was removed while nobody could know that it may")
			}
		} else {
			t.Logf("moved %s after the crash", w.until(f.limit, "the workload runs on B", moved))
			if left := f.lasts - time.Since(crashed); left > 0 {
				w.pass(left)
			}
		}
		if f.seen != nil && !f.seen(w, p) {
			t.Errorf("while it lasted nobody could see why: %+v\n%s", p.events.events, p.metrics())
		}
		if f.end != nil {
			f.end(w, p)
		}
		if f.stops {
			t.Logf("moved %s after the fault ended", w.until(f.limit, "the workload runs on B", moved))
		}
		w.until(30*time.Second, "the attachment is gone", func() bool { return w.attachment("db", nodeA) == nil })
		w.Return(nodeA)
		w.pass(3 * time.Minute)
		w.wantNothingLeft(p)
		w.wantStill(other)
		w.wantRunning("db-0", nodeB)
	})
}

// wantNothingLeft fails the story if the controller has left anything behind, in a cluster that is well again or in memory.
func (w *world) wantNothingLeft(p *process) {
	w.Helper()
	w.wantUnmarked()
	if lines := (&Memory{p.parts}).Lines(); len(lines) > 0 {
		w.Errorf("%s remembers: %s", p.name, strings.Join(lines, "; "))
	}
	if status := p.feed.Status(); !status.Synced {
		w.Errorf("%s has not got over it: %+v", p.name, status)
	}
}

// wantUnmarked fails the story if a taint or a mark of the controller is left.
func (w *world) wantUnmarked() {
	w.Helper()
	for _, name := range []string{nodeA, nodeB, nodeT} {
		if node := w.node(name); len(node.Spec.Taints) > 0 || node.Annotations[cluster.AnnotationKeepAway] != "" {
			w.Errorf("node %s: taints %v, annotations %v", name, node.Spec.Taints, node.Annotations)
		}
		for _, volume := range []string{"db", "other"} {
			if va := w.attachment(volume, name); va != nil && va.Annotations[cluster.AnnotationFailOver] != "" {
				w.Errorf("attachment %s is marked: %s", va.Name, va.Annotations[cluster.AnnotationFailOver])
			}
		}
	}
}

// metrics returns what is counted of LINSTOR and of fail-overs, one line for each series that is not zero.
func (p *process) metrics() string {
	var lines []string
	for series, value := range p.counted() {
		lines = append(lines, fmt.Sprintf("%s %g", series, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// counted returns the value of each series that is not zero, by its name and labels.
func (p *process) counted() map[string]float64 {
	values, err := valuesOf(p.counters)
	p.world.must(err)
	return values
}

func valuesOf(collectors []prometheus.Collector) (map[string]float64, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			if value := valueOf(m); value != 0 {
				words := []string{family.GetName()}
				for _, label := range m.Label {
					words = append(words, label.GetName()+"="+label.GetValue())
				}
				values[strings.Join(words, " ")] = value
			}
		}
	}
	return values, err
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	default:
		return 0
	}
}

// counts tells whether a series that has all of the words has grown since the fault began.
func counts(words ...string) func(*world, *process) bool { return countsOften(1, words...) }

// countsOften tells whether a series that has all of the words has grown by so much since the fault began.
func countsOften(growth float64, words ...string) func(*world, *process) bool {
	return func(_ *world, p *process) bool {
		for series, value := range p.counted() {
			if containsAll(series, words) && value-p.before[series] >= growth {
				return true
			}
		}
		return false
	}
}

// logs tells whether the log of the feed has a line with all of the words.
func logs(words ...string) func(*world, *process) bool {
	return func(w *world, p *process) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.lines, func(line string) bool {
			return strings.Contains(line, p.name+"/"+logOfFeed+" ") && containsAll(line, words)
		})
	}
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// each tells whether all signs can be seen.
func each(signs ...func(*world, *process) bool) func(*world, *process) bool {
	return func(w *world, p *process) bool {
		return !slices.ContainsFunc(signs, func(sign func(*world, *process) bool) bool { return !sign(w, p) })
	}
}

// disconnected tells whether the metric says that LINSTOR's events are not followed.
func disconnected(_ *world, p *process) bool {
	for series := range p.counted() {
		if strings.Contains(series, "linstor_stream_connected") {
			return false
		}
	}
	return true
}
