package soak

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Report is what came of it.
type Report struct {
	// Rounds is how many there were, Quiet those of them in which nothing was lost.
	Rounds, Quiet int
	// Moved is how many fail-overs there were, by what caused them.
	Moved map[string]int
	// Disturbed is how often what happened besides.
	Disturbed map[string]int
	// Times are how long the fail-overs took, from the loss to the replacement Ready.
	Times []time.Duration
	// Wrong has each pod that was removed, and each volume that was detached, although its node could write it or nobody
	// had selected the pod, and each volume whose data diverged. Missed has each loss whose workload did not run elsewhere
	// in time. Leftover is what did not get well again once the fault was over. Ended are the processes of the controller
	// that ended though nothing gave them a reason. Growing are those that take more and more.
	Wrong, Missed, Leftover, Ended, Growing []string
	// Lives is what the controller's processes took while they lived, of those that lived long enough to tell.
	Lives []Life
}

// OK tells whether nothing happened that must not.
func (r *Report) OK() bool {
	return len(r.Wrong)+len(r.Missed)+len(r.Leftover)+len(r.Ended)+len(r.Growing) == 0
}

// Write writes it for people.
func (r *Report) Write(w io.Writer) {
	total := 0
	for _, n := range r.Moved {
		total += n
	}
	_, _ = fmt.Fprintf(w, "\n%d rounds, %d of them without a loss; %d fail-overs %v\n", r.Rounds, r.Quiet, total, r.Moved)
	if times := slices.Sorted(slices.Values(r.Times)); len(times) > 0 {
		_, _ = fmt.Fprintf(w, "until the replacement was ready: median %s, slowest %s\n", times[len(times)/2], times[len(times)-1])
	}
	_, _ = fmt.Fprintf(w, "besides: %v\n", r.Disturbed)
	_, _ = fmt.Fprintf(w, "wrong %d, missed %d, left behind %d, ended by themselves %d, growing %d\n",
		len(r.Wrong), len(r.Missed), len(r.Leftover), len(r.Ended), len(r.Growing))
	for _, list := range []struct {
		what  string
		lines []string
	}{{"wrong", r.Wrong}, {"missed", r.Missed}, {"left", r.Leftover}, {"ended", r.Ended}, {"growing", r.Growing}} {
		for _, line := range list.lines {
			_, _ = fmt.Fprintf(w, "%s: %s\n", list.what, line)
		}
	}
	for _, life := range r.Lives {
		_, _ = fmt.Fprintf(w, "%s\n", life)
	}
}
