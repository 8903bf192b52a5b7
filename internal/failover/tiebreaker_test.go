package failover

import (
	"testing"
	"time"
)

func TestTieBreakerGone(t *testing.T) {
	t.Parallel()
	online, away := held(true, time.Hour), held(false, time.Minute)
	disk := func(node string) Replica { return Replica{Node: node, Online: online} }
	diskless := func(node string, is Fact[bool]) Replica { return Replica{Node: node, Diskless: true, Online: is} }
	leaving := diskless("x", online)
	leaving.Leaving = true
	forgotten := diskless("x", online)
	forgotten.Gone = true
	for name, tc := range map[string]struct {
		replicas []Replica
		want     string
	}{
		"the tie-breaker is there":                       {[]Replica{disk("b"), disk("c"), diskless("a", online)}, ""},
		"the tie-breaker's node is away":                 {[]Replica{disk("b"), disk("c"), diskless("a", away)}, "a"},
		"nobody knows of the tie-breaker's node":         {[]Replica{disk("b"), disk("c"), diskless("a", Fact[bool]{})}, ""},
		"another one breaks the tie":                     {[]Replica{disk("b"), disk("c"), diskless("a", away), diskless("d", online)}, ""},
		"another one is about to go":                     {[]Replica{disk("b"), disk("c"), diskless("a", away), leaving}, "a"},
		"another one is forgotten":                       {[]Replica{disk("b"), disk("c"), diskless("a", away), forgotten}, "a"},
		"no disk":                                        {[]Replica{diskless("a", away)}, ""},
		"there is no tie to break":                       {[]Replica{disk("b"), disk("c"), disk("d"), diskless("a", away)}, ""},
		"one disk":                                       {[]Replica{disk("b"), diskless("a", away)}, ""},
		"no tie-breaker":                                 {[]Replica{disk("b"), disk("c")}, ""},
		"four disks, and the tie-breaker's node is away": {[]Replica{disk("b"), disk("c"), disk("d"), disk("e"), diskless("a", away)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := Resource{Known: true, DRBD: true, Replicas: tc.replicas}
			if got, gone := r.TieBreakerGone(); got != tc.want || gone != (tc.want != "") {
				t.Errorf("TieBreakerGone() = %q, %t, want %q", got, gone, tc.want)
			}
			r.Known = false
			if _, gone := r.TieBreakerGone(); gone {
				t.Error("a resource that is not known has lost its tie-breaker")
			}
			r.Known, r.DRBD = true, false
			if _, gone := r.TieBreakerGone(); gone {
				t.Error("a resource without DRBD has lost its tie-breaker")
			}
		})
	}
}

func TestAttachable(t *testing.T) {
	t.Parallel()
	r := Resource{Replicas: []Replica{{Node: "disk"}, {Node: "leaving", Leaving: true}, {Node: "gone", Gone: true}}}
	for _, tc := range []struct {
		node           string
		noTarget, want bool
	}{
		{"disk", false, true},
		{"disk", true, true},
		{"other", false, true},
		{"other", true, false},
		{"leaving", false, false},
		{"gone", false, true},
		{"gone", true, false},
	} {
		if got := r.Attachable(tc.node, tc.noTarget); got != tc.want {
			t.Errorf("Attachable(%s, %t) = %t, want %t", tc.node, tc.noTarget, got, tc.want)
		}
	}
}
