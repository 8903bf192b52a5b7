package recordings_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/linstorsim"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

func TestTheSimulatedLinstorSaysWhatTheRecordedOneSaid(t *testing.T) {
	t.Parallel()
	for _, s := range stories {
		transcript := recordings.Load(t, s.file)
		t.Run(s.file+": "+s.story, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := compare(s.file, tracksOf(transcript.Lines), tracksOf(record(t, transcript, scenes[s.file])))
				for _, failure := range c.failures(s.file) {
					t.Error(failure)
				}
				t.Logf("%d words are the same", len(c.pairs))
			})
		})
	}
}

func TestEveryRecordingHasItsScene(t *testing.T) {
	t.Parallel()
	if names, played := recordings.Names(t), slices.Sorted(maps.Keys(scenes)); !slices.Equal(names, played) {
		t.Errorf("played are %q, recorded %q", played, names)
	}
	for _, d := range differences {
		if _, ok := scenes[d.file]; !ok {
			t.Errorf("there is a difference from %s, which is not played", d.file)
		}
	}
}

func TestARecordingDiffersFromItselfByNothing(t *testing.T) {
	t.Parallel()
	for _, name := range recordings.Names(t) {
		lines := recordings.Load(t, name).Lines
		if c := compare(name, tracksOf(lines), tracksOf(lines)); len(c.wrong) > 0 || len(c.used) > 0 {
			t.Errorf("%s is not itself: %v", name, c.wrong)
		}
	}
}

func TestADifferenceThatIsGoneIsReported(t *testing.T) {
	t.Parallel()
	lines := recordings.Load(t, "20-evicted").Lines
	c := compare("20-evicted", tracksOf(lines), tracksOf(lines))
	if failures := c.failures("20-evicted"); len(failures) != 1 || !strings.Contains(failures[0], "connection to node-d of node-c") {
		t.Errorf("reported are %q, want the listed difference", failures)
	}
}

func TestWhatIsNotAsRecordedIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*scene)
		want   string
	}{
		"LINSTOR notices the loss after DRBD": {
			func(s *scene) { s.linstor.PingTimeout = 12 * time.Second },
			"nodes: status of node-a",
		},
		"an event comes too much": {
			func(s *scene) { s.unasked = []deed{{seconds(-5), func(l *lab) { l.linstor.RestartEvents("node-b") }}} },
			"events: may_promote of node-b",
		},
		"the node does not return": {
			func(s *scene) {
				s.deeds = map[string]func(*lab){"node-a has booted: satellite starts anew, DRBD Secondary": func(*lab) {}}
			},
			"list: score of node-a",
		},
		"the survivor has no tie-breaker": {
			func(s *scene) { s.replicas, s.autoTieBreaker = two, "false" },
			"list: connection to node-c of node-b",
		},
		"a person sets another quorum": {
			func(s *scene) {
				s.unasked = []deed{{seconds(-5), func(l *lab) {
					l.linstor.SetGroupProperty(groupName, linstorsim.PropQuorum, "off")
				}}}
			},
			"groups: DrbdOptions/Resource/quorum of rg-db",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transcript := recordings.Load(t, "03-power-loss")
			changed := scenes["03-power-loss"]
			test.change(&changed)
			synctest.Test(t, func(t *testing.T) {
				c := compare("03-power-loss", tracksOf(transcript.Lines), tracksOf(record(t, transcript, changed)))
				if c.wrong[test.want] == nil {
					t.Errorf("reported is %v, want what differs in %s", c.wrong, test.want)
				}
			})
		})
	}
}

func TestAnotherOrderIsReported(t *testing.T) {
	t.Parallel()
	lines := recordings.Load(t, "03-power-loss").Lines
	early := slices.Clone(lines)
	for i, line := range early {
		// The first survivor says so before LINSTOR has missed the node.
		if line.SSE == "may-promote-change" && strings.Contains(string(line.Data), "true") {
			early[i].T -= seconds(4.5)
			break
		}
	}
	recorded, simulated := tracksOf(lines), tracksOf(early)
	// With all the time in the world the order alone is left.
	c := comparison{wrong: map[string][]string{}}
	for name, r := range recorded {
		found, _ := align(r, simulated[name])
		c.pairs = append(c.pairs, found...)
	}
	c.compareOrder()
	if len(c.wrong) == 0 {
		t.Error("nothing is reported")
	}
}
