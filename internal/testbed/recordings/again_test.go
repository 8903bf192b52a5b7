package recordings_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

func TestTheSimulatedLinstorSaysWhatTheRecordedOneSaid(t *testing.T) {
	t.Parallel()
	for _, s := range stories {
		transcript := recordings.Load(t, s.file)
		t.Run(s.file+": "+s.story, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				simulated := record(t, transcript, scenes[s.file])
				c := compare(s.file, tracksOf(transcript.Lines), tracksOf(simulated))
				for _, name := range slices.Sorted(maps.Keys(c.wrong)) {
					for _, what := range c.wrong[name] {
						t.Errorf("%s: %s", name, what)
					}
				}
				for i, d := range differences {
					if d.file == s.file && !slices.Equal(d.tracks, c.used[i]) {
						t.Errorf("difference %d explains only %q of %q", i, c.used[i], d.tracks)
					}
				}
				t.Logf("%d words are the same", len(c.pairs))
			})
		})
	}
}
