package recordings_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// tolerances are how much earlier or later than the recorded LINSTOR the simulated one may say the same, by the beginnings of tracks:
// the lab's machines were shared, and LINSTOR's own times are as they came.
var tolerances = []struct {
	of string
	by time.Duration
	// file is the one recording that this is for, where it is not for all.
	file string
}{
	{of: "events: the stream", by: time.Second},
	{of: "events:", by: 300 * time.Millisecond, file: "21-adjust-fails-again"}, // LINSTOR was busy when that began
	{of: "events:", by: 250 * time.Millisecond},
	{of: "nodes:", by: 250 * time.Millisecond},
	{of: "list:", by: 250 * time.Millisecond},
	{of: "view:", by: 250 * time.Millisecond},
	// These are asked for every five seconds, in most recordings.
	{of: "definition:", by: 500 * time.Millisecond},
	{of: "groups:", by: 500 * time.Millisecond},
	{of: "controller:", by: 500 * time.Millisecond},
}

func toleranceOf(file, name string) recordings.Seconds {
	for _, t := range tolerances {
		if strings.HasPrefix(name, t.of) && (t.file == "" || t.file == file) {
			return recordings.Seconds(t.by)
		}
	}
	return 0
}

// pair is a word of the recorded LINSTOR with that of the simulated one.
type pair struct {
	track               *track
	recorded, simulated word
}

// align finds to each recorded word the simulated one. Words that the recorder can have missed, because they lasted shorter than its
// answers are apart, need not be recorded; each other word must be, in this order.
func align(recorded, simulated *track) (pairs []pair, ok bool) {
	var match func(i, j int) bool
	match = func(i, j int) bool {
		switch {
		case j == len(simulated.words):
			return i == len(recorded.words)
		case i < len(recorded.words) && recorded.words[i].says == simulated.words[j].says:
			pairs = append(pairs, pair{recorded, recorded.words[i], simulated.words[j]})
			if match(i+1, j+1) {
				return true
			}
			pairs = pairs[:len(pairs)-1]
		}
		if simulated.events() { // the recorder misses none
			return false
		}
		missed := simulated.lasts(j)-simulated.gap <= recorded.gap
		// After a word that was missed there may come the one before it again.
		again := i > 0 && recorded.words[i-1].says == simulated.words[j].says
		return (missed || again) && match(i, j+1)
	}
	ok = match(0, 0)
	return pairs, ok
}

// comparison is what came of comparing all tracks.
type comparison struct {
	pairs []pair
	// wrong is what the simulated LINSTOR does not say as the recorded one did, by track.
	wrong map[string][]string
	// used are the tracks that a difference explains, by its number.
	used map[int][]string
}

// compare compares what the simulated LINSTOR says with a recording.
func compare(file string, recorded, simulated map[string]*track) comparison {
	c := comparison{wrong: map[string][]string{}, used: map[int][]string{}}
	for _, name := range namesOf(recorded, simulated) {
		r, s := recorded[name], simulated[name]
		switch {
		case r == nil && !alwaysNothing(s):
			c.add(name, "only the simulated one says %v", s)
		case s == nil && !alwaysNothing(r):
			c.add(name, "only the recorded one says %v", r)
		case r != nil && s != nil:
			c.compareTrack(file, r, s)
		}
	}
	if len(c.wrong) == 0 { // else more would be out of order as well
		c.compareOrder()
	}
	return c
}

func (c *comparison) add(name, format string, arguments ...any) {
	c.wrong[name] = append(c.wrong[name], fmt.Sprintf(format, arguments...))
}

// failures are all that is wrong, with the listed differences that are not there.
func (c *comparison) failures(file string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(c.wrong)) {
		for _, what := range c.wrong[name] {
			all = append(all, name+": "+what)
		}
	}
	for i, d := range differences {
		if d.file == file && !slices.Equal(d.tracks, c.used[i]) {
			all = append(all, fmt.Sprintf("of the difference in %q there is only %q", d.tracks, c.used[i]))
		}
	}
	return all
}

// compareTrack compares what is said of one thing, and when.
func (c *comparison) compareTrack(file string, r, s *track) {
	found, ok := align(r, s)
	if !ok {
		explained := known(file, r.name, r, s)
		for _, i := range explained {
			c.used[i] = append(c.used[i], r.name)
		}
		if len(explained) == 0 {
			c.add(r.name, "recorded is %v; simulated %v", r, s)
		}
		return
	}
	tolerance := toleranceOf(file, r.name)
	for _, p := range found {
		if p.simulated.by < p.recorded.after-tolerance || p.simulated.after > p.recorded.by+tolerance {
			c.add(r.name, "recorded is %v, simulated %v", p.recorded, p.simulated)
		}
	}
	c.pairs = append(c.pairs, found...)
}

func alwaysNothing(t *track) bool {
	return !t.events() && !slices.ContainsFunc(t.words, func(w word) bool { return w.says != nothing })
}

// compareOrder compares in which order things are said, wherever the recording tells it.
func (c *comparison) compareOrder() {
	for _, first := range c.pairs {
		for _, second := range c.pairs {
			if first.track != second.track && first.recorded.before(second.recorded, first.track, second.track) &&
				second.simulated.before(first.simulated, second.track, first.track) {
				c.add(second.track.name, "simulated is %v before %s is %v, recorded %v and %v",
					second.simulated, first.track.name, first.simulated, second.recorded, first.recorded)
			}
		}
	}
}

// before tells whether it is certain that a word was said before another: because the last answer without the other one came after
// the first answer with it.
func (w word) before(other word, of, otherOf *track) bool {
	if of.path == otherOf.path && !of.events() {
		return w.answer < other.answer
	}
	return w.by < other.after
}
