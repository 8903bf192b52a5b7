package linstor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
			Fact[bool]{}, new(false), span{at(1), at(3)}, Fact[bool]{Known: true, Since: at(3), Confirmed: at(1)},
		},
		"the first word may be unknown": {
			Fact[bool]{}, nil, instant(at(1)), Fact[bool]{Since: at(1), Confirmed: at(1)},
		},
		"the same word within the gap confirms": {
			confirmed, new(true), span{at(12), at(13)}, Fact[bool]{Value: true, Known: true, Since: at(0), Confirmed: at(12)},
		},
		"the same word after the gap restarts": {
			confirmed, new(true), span{at(12.001), at(13)}, Fact[bool]{Value: true, Known: true, Since: at(13), Confirmed: at(12.001)},
		},
		"another word restarts": {
			confirmed, new(false), span{at(11), at(11.5)}, Fact[bool]{Known: true, Since: at(11.5), Confirmed: at(11)},
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
			confirmed, new(false), span{at(9), at(12)}, confirmed,
		},
		"an older read does not confirm either": {
			confirmed, new(true), span{at(9), at(12)}, confirmed,
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
