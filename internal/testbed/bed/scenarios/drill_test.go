package scenarios_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/bed/bedtest"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/page"
)

const (
	// drillPage is the page that TestDrill follows, in the repository.
	drillPage = "docs/drill.md"
	// drillSlack is how long after the time that the page says nobody waits for something any more. How fast it is, the benchmarks say.
	drillSlack = 2 * time.Minute
	// drillLook is the time between two looks at the same thing.
	drillLook = time.Second
	// drillBlink is how much later than what follows from it something may be seen: each program that shows something has a delay of its
	// own, and a look takes its time.
	drillBlink = 10 * time.Second
)

// drill is somebody who follows the page with a workload and a node of their own.
type drill struct {
	*bedtest.Scenario
	workload bed.Workload
	pod      corev1.Pod // as it was before its node was lost
	node     string     // that is lost
	bootID   string     // of that node before
	resource string
	shell    []string // the environment of the commands
	common   []string // the environment of all that the reader runs
	lost     time.Time

	pods, events, attachments *terminal
}

// TestDrill follows docs/drill.md: its commands in their order, and its tables with what is seen, for each way to lose a node. What the page
// has and the test does not know is an error, and the reverse.
//
// The three are lost at the same time, each as a cluster of its own: they share no volume.
func TestDrill(t *testing.T) {
	t.Parallel()
	chapters := drillChapters(t)
	compareCommands(t, beforeDrill, chapters[drillBefore])
	compareCommands(t, afterDrill, chapters[drillAfter])
	seconds := map[string][]string{}
	for _, w := range drillWays {
		seconds[w.title] = w.compare(t, chapters)
	}
	b := bedtest.Shared(t)
	for _, w := range drillWays {
		t.Run(w.title, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t, b)
			d.play(beforeDrill)
			d.play(w.lose)
			d.watch(seconds[w.title], w.sights)
			d.play(w.meanwhile)
			if w.console != nil {
				w.console(d)
			}
			d.play(w.back)
			d.play(afterDrill)
			d.leavesNothing()
		})
	}
}

// newDrill begins a drill with a pod that runs.
func newDrill(t *testing.T, b *bed.Bed) *drill {
	t.Helper()
	s := bedtest.New(t, b, 3)
	d := &drill{Scenario: s, workload: s.Workload("db"), node: s.Nodes[0]}
	d.resource = volumeOf(d.workload)
	d.pod = s.Start(d.workload)
	d.bootID = b.Node(d.node).BootID()
	d.prepareShell()
	return d
}

// play plays steps in their order.
func (d *drill) play(steps []drillStep) {
	d.T.Helper()
	for _, s := range steps {
		s.play(d, d.fill(s.command))
	}
}

// lose loses the node.
func (d *drill) lose(how func(nodes ...string)) {
	d.lost = time.Now()
	how(d.node)
}

// watch looks at the rows of a table until all were seen. Each must be seen in time, and none before those above it.
func (d *drill) watch(seconds []string, sights []sight) {
	d.T.Helper()
	seen, missed := make([]time.Time, len(sights)), make([]time.Time, len(sights))
	look := func() {
		for i, s := range slices.Backward(sights) { // what happens between two looks of one round is not seen in the wrong order
			if began := time.Now(); !seen[i].IsZero() {
				continue
			} else if d.sees(s) {
				seen[i] = began
			} else {
				missed[i] = began
			}
		}
	}
	var due, early time.Duration
	for i, second := range seconds {
		due, early = d.due(due, second)
		for look(); seen[i].IsZero(); look() {
			if since := time.Since(d.lost); since > due+drillSlack {
				d.T.Fatalf("%.0f s after the loss, the row %q of %s is not seen: %s\n%s", since.Seconds(), second, drillPage, sights[i].what, d.told())
			}
			pass(d.Scenario, drillLook)
		}
		after := seen[i].Sub(d.lost)
		d.T.Logf("%5.1f s after the loss (the page: %s): %s", after.Seconds(), second, sights[i].what)
		if after < early {
			d.T.Errorf("this was seen %s after the loss, and %s says %s", after, drillPage, second)
		}
		for j := range sights[:i] {
			if missed[j].After(seen[i].Add(drillBlink)) {
				d.T.Errorf("this was seen before what stands above it: %s", sights[j].what)
			}
		}
	}
}

// due returns when the row of a table is due after the loss, by when the one above it is and what the page says: "6 to 11", "5 later", "at
// once". Early is when it is too early.
func (d *drill) due(above time.Duration, text string) (due, early time.Duration) {
	d.T.Helper()
	match := drillSecond.FindStringSubmatch(text)
	if match == nil {
		d.T.Fatalf("%s says %q where seconds are expected", drillPage, text)
	}
	if match[1] == "" {
		return above, 0
	}
	number, err := strconv.ParseFloat(match[1], 64)
	d.Must(err)
	after := time.Duration(number * float64(time.Second))
	if match[2] == " later" {
		return above + after, 0
	}
	return after, after / 2
}

// sees tells whether what a row of a table tells of is seen now: its Events, and what the row looks at.
func (d *drill) sees(s sight) bool {
	d.T.Helper()
	var shown []string
	for _, code := range page.Code(s.where) {
		if isNoCommand(code) {
			if !d.events.told(with(code)) {
				return false
			}
			continue
		}
		out, err := d.show(d.fill(code))
		if err != nil {
			return false // as when LINSTOR waits for a satellite that is gone
		}
		shown = append(shown, out)
	}
	return s.seen(d, shown)
}

// told returns what the reader's terminals have told of the drill.
func (d *drill) told() string {
	return fmt.Sprintf("pods:\n%s\nattachments:\n%s\nEvents:\n%s", d.pods, d.attachments, d.events)
}

// leavesNothing checks what the drill has left behind: one pod with one attachment, the data, and nothing of the controller's.
func (d *drill) leavesNothing() {
	d.T.Helper()
	waitUntil(d.Scenario, "the process of the old pod to have closed its volume", func() bool {
		state, up := d.DRBD.Replica(d.resource, d.node)
		return up && state.Open+state.OpenReadOnly == 0 && !inUse(d.Scenario, d.node, d.resource)
	})
	movedCleanly(d.Scenario, d.workload, d.node)
	if n := podsCreated(d.Scenario); n != 2 {
		d.T.Errorf("%d pods were created, want one and one replacement", n)
	}
	waitUnannotated(d.Scenario)
}
