package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/failover"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/forecast"
)

const (
	// calm is how long nothing happens before the forecast, so that it is about the next loss and not about the last step.
	calm = 90 * time.Second
	// comesTrue is how long what was foretold has to happen: longer than every grace and the silence of a kubelet together, shorter than
	// Kubernetes' own eviction.
	comesTrue = 2 * time.Minute
)

// Foretold is what a forecast said of a pod before its node crashed, and what became of the pod.
type Foretold struct {
	Pod     string
	Verdict failover.Outlook
	Reason  failover.Reason
	// Removed is set if the pod was removed.
	Removed bool
	// Message is the forecast in words.
	Message string
	// Events are the reasons of the Events that the pod has had since.
	Events []string
}

// True reports whether it has come true; said is false where the forecast said nothing of the removal. NoReadyNode is about what comes after it.
func (f Foretold) True() (is, said bool) {
	switch {
	case f.Reason == failover.NoReadyNode:
	case f.Verdict == failover.Protected:
		return f.Removed, true
	case f.Verdict == failover.Unprotected:
		return !f.Removed, true
	}
	return false, false
}

// Foretell plays the beginning of a history, up to a half of it, and asks the leader for a forecast. Then the node with the most selected pods crashes, and
// nothing else happens. Told is what was foretold for its pods.
func Foretell(t *testing.T, h History, story bool) (told []Foretold, lines []string) {
	t.Helper()
	h.Steps = h.Steps[:len(h.Steps)*int(h.Seed%4)/6]
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWorld(ctx, h, story)
		told = w.foretell()
		w.mend() // so that no request hangs on
		w.pass(calm)
		cancel()
		for _, p := range w.processes {
			p.stops()
		}
		w.Stop()
		lines = w.outcome.Story
	})
	return told, lines
}

func (w *world) foretell() []Foretold {
	w.pass(settling)
	begin := time.Now()
	for _, step := range w.history.Steps {
		w.pass(time.Until(begin.Add(step.At)))
		w.note("STEP " + step.String())
		w.do(step)
		synctest.Wait()
	}
	w.pass(calm)
	leader := w.processes[w.leader]
	if leader == nil || leader.leading.IsZero() {
		return nil
	}
	report := leader.memory.Forecast(w.ctx, forecast.Question{})
	node := busiest(report.Volumes)
	if node == "" {
		return nil
	}
	told := make(map[types.UID]*Foretold)
	for _, row := range report.Volumes {
		pod := w.pod(row.Pod)
		if row.Node != node || pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		w.note(fmt.Sprintf("FORETOLD of %s on %s, volume %s: %s %s: %s", row.Pod, node, row.Volume, row.Verdict, row.Reason, row.Message))
		if f := told[pod.UID]; f == nil || row.Verdict == failover.Unprotected { // which outweighs the others, as in the report's summary
			told[pod.UID] = &Foretold{Pod: row.Pod, Verdict: row.Verdict, Reason: row.Reason, Message: row.Message}
		}
	}
	crash := Step{What: Crash, Node: strings.TrimSuffix(node, domain)}
	w.note("STEP " + crash.String())
	crashed := time.Now()
	w.do(crash)
	w.pass(comesTrue)
	var all []Foretold
	for uid, f := range told {
		for _, reasons := range w.toldSince(uid, crashed) {
			f.Events = append(f.Events, reasons...)
		}
		f.Removed = !slices.ContainsFunc(w.allPods(), func(pod *corev1.Pod) bool { return pod.UID == uid && pod.DeletionTimestamp == nil })
		all = append(all, *f)
	}
	return all
}

// busiest is the node that most rows are about, empty if there is none.
func busiest(rows []forecast.Row) (node string) {
	pods := make(map[string]int)
	for _, row := range rows {
		if pods[row.Node]++; row.Node != "" && pods[row.Node] > pods[node] {
			node = row.Node
		}
	}
	return node
}
