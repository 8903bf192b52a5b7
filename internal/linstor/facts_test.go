package linstor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/linstor/client"
)

func TestObserve(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }
	// confirmed says "yes" since 0, last at 10.
	confirmed := Fact[bool]{Value: true, Known: true, Since: at(0), Confirmed: at(10)}
	unknown := Fact[bool]{Since: at(0), Confirmed: at(10)}
	for name, tc := range map[string]struct {
		before Fact[bool]
		value  *bool
		at     span
		want   Fact[bool]
	}{
		"the first word starts the clock at the end of the read": {
			Fact[bool]{}, new(false), span{start: at(1), end: at(3)}, Fact[bool]{Known: true, Since: at(3), Confirmed: at(1)},
		},
		"the first word may be unknown": {
			Fact[bool]{}, nil, instant(at(1)), Fact[bool]{Since: at(1), Confirmed: at(1)},
		},
		"the same word within the gap confirms": {
			confirmed, new(true), span{start: at(20), end: at(21)}, Fact[bool]{Value: true, Known: true, Since: at(0), Confirmed: at(20)},
		},
		"the same word after the gap restarts": {
			confirmed, new(true), span{start: at(20.001), end: at(21)}, Fact[bool]{Value: true, Known: true, Since: at(21), Confirmed: at(20.001)},
		},
		"the same value within the shorter gap confirms if it is unsure what happened": {
			confirmed, new(true), span{start: at(13), end: at(14), unsure: true}, Fact[bool]{Value: true, Known: true, Since: at(0), Confirmed: at(13)},
		},
		"the same value after the shorter gap restarts if it is unsure what happened": {
			confirmed, new(true), span{start: at(13.001), end: at(14), unsure: true}, Fact[bool]{Value: true, Known: true, Since: at(14), Confirmed: at(13.001)},
		},
		"another word restarts": {
			confirmed, new(false), span{start: at(11), end: at(11.5)}, Fact[bool]{Known: true, Since: at(11.5), Confirmed: at(11)},
		},
		"unknown restarts": {
			confirmed, nil, instant(at(11)), Fact[bool]{Since: at(11), Confirmed: at(11)},
		},
		"unknown confirms unknown": {
			unknown, nil, instant(at(11)), Fact[bool]{Since: at(0), Confirmed: at(11)},
		},
		"false is not unknown": {
			unknown, new(false), instant(at(11)), Fact[bool]{Known: true, Since: at(11), Confirmed: at(11)},
		},
		"an older read changes nothing": {
			confirmed, new(false), span{start: at(9), end: at(12)}, confirmed,
		},
		"an older read does not confirm either": {
			confirmed, new(true), span{start: at(9), end: at(12)}, confirmed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, observe(tc.before, tc.value, tc.at)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEffectiveQuorum(t *testing.T) {
	read := func(value string) level { return level{value: value, since: stampOf(time.Unix(1, 0))} }
	for name, tc := range map[string]struct {
		definition, group, controller level
		want                          string
	}{
		"set nowhere is off":                      {read(""), read(""), read(""), "off"},
		"the controller alone":                    {read(""), read(""), read("majority"), "majority"},
		"the group over the controller":           {read(""), read("2"), read("majority"), "2"},
		"the definition over the group":           {read("off"), read("2"), read("majority"), "off"},
		"unknown while the definition is unread":  {level{}, read("majority"), read("majority"), ""},
		"unknown while the group is unread":       {read("majority"), level{}, read(""), ""},
		"unknown even where a higher level is so": {read("majority"), read(""), level{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := effectiveQuorum(tc.definition, tc.group, tc.controller); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A time survives being kept, with its reading of the monotonic clock: a step of the machine's clock changes no grace.
func TestAStampIsATime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, at := range map[string]time.Time{
		"now": now, "long ago": now.Add(-24 * time.Hour), "without a monotonic clock": now.Round(0), "2000": time.Date(2000, 1, 1, 0, 0, 0, 1, time.UTC),
	} {
		if kept := stampOf(at).time(); !kept.Equal(at) {
			t.Errorf("%s: %v is kept as %v", name, at, kept)
		}
	}
	if kept := stamp(0).time(); !kept.IsZero() || stampOf(time.Time{}) != 0 {
		t.Errorf("the zero time is kept as %v", kept)
	}
	if kept := stampOf(now).time(); !strings.Contains(kept.String(), " m=") {
		t.Errorf("%v has no reading of the monotonic clock", kept)
	}
}

// Readings up to ten seconds apart are no gap, unless an event brought news or could not come. Then three seconds are.
func TestReadingsTenSecondsApartAreNoGapWhileNothingIsMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(s *storeTest)
		held      bool
	}{
		"nothing happened":        {func(*storeTest) {}, true},
		"the stream ended":        {func(s *storeTest) { s.deafens() }, false},
		"the stream was replaced": {func(s *storeTest) { s.deafens(); s.hears(s.at(3)) }, false},
		"an event that changed nothing": {func(s *storeTest) {
			s.ApplyEvent(client.Event{Resource: "R", Node: "a", MayPromote: new(false)}, s.at(3))
		}, true},
		"an event that changed something": {func(s *storeTest) {
			s.ApplyEvent(client.Event{Resource: "R", Node: "b", MayPromote: new(true)}, s.at(3))
			s.ApplyEvent(client.Event{Resource: "R", Node: "b", MayPromote: new(false)}, s.at(3.1))
		}, false},
	} {
		for _, again := range []float64{4, 11} {
			t.Run(fmt.Sprintf("%s, read again after %v s", name, again-1), func(t *testing.T) {
				s := newStoreTest()
				s.settings(0, "majority", "a", "b")
				s.hears(s.at(0.5))
				list := []client.Resource{resource("R", "a", true, 0, false), resource("R", "b", false, 1, false)}
				s.applyResources("R", list, s.read(1))
				s.applyNodes(nodesOnline("a", "b"), s.read(1))
				tc.meanwhile(s)
				s.applyResources("R", list, s.read(again))
				s.applyNodes(nodesOnline("a", "b"), s.read(again))
				held := tc.held || again == 4
				if got := s.replica(t, "a"); got.Score.Since.Equal(s.at(1)) != held || got.InUse.Since.Equal(s.at(1)) != held {
					t.Errorf("score since %s, in use since %s", got.Score.Since.Sub(s.t0), got.InUse.Since.Sub(s.t0))
				}
				if got := s.replica(t, "a"); !strings.Contains(name, "event") && got.Online.Since.Equal(s.at(0)) != held {
					t.Errorf("ONLINE since %s", got.Online.Since.Sub(s.t0))
				}
			})
		}
	}
}

func nodesOnline(names ...string) (nodes []client.Node) {
	for _, name := range names {
		nodes = append(nodes, client.Node{Name: name, ConnectionStatus: client.StatusOnline})
	}
	return nodes
}
