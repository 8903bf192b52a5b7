package failover

import (
	"testing"
	"time"
)

func TestGuard(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	healthy := func(name string) Satellite { return Satellite{Name: name, Online: true, LastOnline: now} }
	gone := func(name string, since time.Duration) Satellite {
		return Satellite{Name: name, LastOnline: now.Add(-since)}
	}
	sick := func(name string) Satellite {
		return Satellite{Name: name, Online: true, LastOnline: now, LostVolume: true}
	}
	half := Limit{Percent: true, Value: 50}

	for name, tc := range map[string]struct {
		satellites          []Satellite
		up                  time.Duration // how long ago LINSTOR came back; negative: it is away
		replicas, reporting int
		limit               Limit
		tripped             bool
	}{
		"one lost node of three is let pass": {
			satellites: []Satellite{healthy("a"), healthy("b"), gone("c", time.Minute)}, up: time.Hour, limit: half,
		},
		"two lost nodes of three are suspect": {
			satellites: []Satellite{healthy("a"), gone("b", time.Minute), gone("c", time.Minute)}, up: time.Hour, limit: half, tripped: true,
		},
		"half of the nodes is not more than half": {
			satellites: []Satellite{healthy("a"), gone("b", time.Minute)}, up: time.Hour, limit: half,
		},
		"a node that is online and lost a volume counts": {
			satellites: []Satellite{healthy("a"), sick("b"), sick("c")}, up: time.Hour, limit: half, tripped: true,
		},
		"a node that has been away for more than an hour does not count": {
			satellites: []Satellite{healthy("a"), gone("b", time.Minute), gone("c", 2*time.Hour), {Name: "d"}}, up: time.Hour, limit: half,
		},
		"a number limits as well as a percentage": {
			satellites: []Satellite{healthy("a"), healthy("b"), healthy("c"), gone("d", time.Minute)}, up: time.Hour, limit: Limit{}, tripped: true,
		},
		"a hundred per cent never trips": {
			satellites: []Satellite{gone("a", time.Minute), gone("b", time.Minute)}, up: time.Hour, limit: Limit{Percent: true, Value: 100},
		},
		"after LINSTOR has come back nodes never seen count as lost": {
			satellites: []Satellite{healthy("a"), {Name: "b"}, {Name: "c"}}, up: time.Minute, limit: half, tripped: true,
		},
		"after LINSTOR has come back replicas without state are suspect": {
			satellites: []Satellite{healthy("a"), healthy("b")}, up: time.Minute, replicas: 10, reporting: 4, limit: half, tripped: true,
		},
		"once LINSTOR has been back for a while they are not": {
			satellites: []Satellite{healthy("a"), healthy("b")}, up: GuardWarmUp, replicas: 10, reporting: 4, limit: half,
		},
		"while LINSTOR is away nodes never seen count as lost": {
			satellites: []Satellite{healthy("a"), {Name: "b"}, {Name: "c"}}, up: -1, limit: half, tripped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			v := View{Now: now, Satellites: tc.satellites, Replicas: tc.replicas, Reporting: tc.reporting}
			if tc.up >= 0 {
				v.Up = now.Add(-tc.up)
			}
			if got := Guard(v, tc.limit); (got != "") != tc.tripped {
				t.Errorf("Guard says %q, want tripped: %v", got, tc.tripped)
			}
		})
	}
}

func TestParseLimit(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]Limit{
		"0": {}, "3": {Value: 3}, "0%": {Percent: true}, "50%": {Percent: true, Value: 50}, "100%": {Percent: true, Value: 100},
	} {
		if got, err := ParseLimit(text); err != nil || got != want || got.String() != text {
			t.Errorf("ParseLimit(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "-1", "101%", "many", "1.5", "50 %"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("ParseLimit(%q) = %v, want an error", text, got)
		}
	}
}
