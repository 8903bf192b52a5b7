package recordings_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/recordings"
)

// end is one end of a connection: a node and the peer that it had.
type end struct{ node, peer string }

// reportedWithin is how late LINSTOR may show what DRBD has noticed, and an event arrive.
const reportedWithin = 100 * time.Millisecond

// noticedWhen returns between which moments after the fault each end of the connections of A noticed it.
func noticedWhen(t *testing.T, name string) map[end]drbd.Span {
	t.Helper()
	all := map[end]drbd.Span{}
	var before time.Duration // when the answer before was last confirmed
	for _, line := range recordings.Load(t, name).Lines {
		if line.Get != listPath || line.End {
			continue
		}
		if line.Same > 0 {
			before = time.Duration(line.SameUntil)
		}
		at := time.Duration(line.T)
		for of, connected := range connections(t, line.Body) {
			if _, known := all[of]; !known && !connected && at > 0 {
				all[of] = drbd.Span{Min: before - reportedWithin, Max: at}
			}
		}
		before = at
	}
	return all
}

// connections are those that a list of replicas shows between node-a and its peers.
func connections(t *testing.T, body json.RawMessage) map[end]bool {
	t.Helper()
	var replicas []struct {
		Node  string `json:"node_name"`
		Layer struct {
			DRBD struct {
				Connections map[string]struct {
					Connected bool `json:"connected"`
				} `json:"connections"`
			} `json:"drbd"`
		} `json:"layer_object"`
	}
	if err := json.Unmarshal(body, &replicas); err != nil {
		t.Fatal(err)
	}
	all := map[end]bool{}
	for _, r := range replicas {
		for peer, connection := range r.Layer.DRBD.Connections {
			if r.Node == "node-a" || peer == "node-a" {
				all[end{r.Node, peer}] = connection.Connected
			}
		}
	}
	return all
}

// overlap tells whether what was seen is possible by the profile.
func overlap(seen, profile drbd.Span) bool { return seen.Min <= profile.Max && profile.Min <= seen.Max }

func TestTheMeasuredProfileOfDRBDHasTheTimesOfTheRecordings(t *testing.T) {
	t.Parallel()
	t.Run("a power loss", func(t *testing.T) {
		t.Parallel()
		seen := noticedWhen(t, "04-real-crash")
		for _, of := range []end{{"node-b", "node-a"}, {"node-c", "node-a"}} {
			if span, ok := seen[of]; !ok || !overlap(span, drbd.MeasuredLoss) {
				t.Errorf("%v noticed after %v, the profile has %v", of, span, drbd.MeasuredLoss)
			}
		}
	})
	for name, peers := range map[string][]string{"05-real-links-cut": {"node-b", "node-c"}, "07-real-one-link-cut": {"node-b"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := noticedWhen(t, name)
			if len(seen) != 2*len(peers) {
				t.Fatalf("noticed was %v, want both ends of the links to %v", seen, peers)
			}
			for _, peer := range peers {
				byPeer, byPrimary := seen[end{peer, "node-a"}], seen[end{"node-a", peer}]
				soon := overlap(byPeer, drbd.MeasuredCutPeer) && overlap(byPrimary, drbd.MeasuredCutPrimary)
				late := overlap(byPeer, drbd.MeasuredCutLate) && overlap(byPrimary, drbd.MeasuredCutLate)
				if soon == late {
					t.Errorf("%s noticed after %v and the Primary after %v, which the profile has as soon: %t, late: %t",
						peer, byPeer, byPrimary, soon, late)
				}
			}
		})
	}
	t.Run("a cut of 3 s", func(t *testing.T) {
		t.Parallel()
		if seen := noticedWhen(t, "06-real-short-cut"); len(seen) > 0 || drbd.MeasuredLoss.Min <= 3*time.Second {
			t.Errorf("noticed was %v, the profile begins with %s", seen, drbd.MeasuredLoss.Min)
		}
	})
	for _, name := range []string{"04-real-crash", "05-real-links-cut"} {
		t.Run("survivors of "+name, func(t *testing.T) {
			t.Parallel()
			words, began := "", time.Duration(0)
			for _, line := range recordings.Load(t, name).Lines {
				var word struct {
					Node       string `json:"node_name"`
					MayPromote *bool  `json:"may_promote"`
				}
				if line.SSE != "may-promote-change" || json.Unmarshal(line.Data, &word) != nil || word.Node != "node-c" || line.T <= 0 {
					continue
				}
				if words += map[bool]string{true: "+", false: "-"}[*word.MayPromote]; words == "+" {
					began = time.Duration(line.T)
				}
				if took := time.Duration(line.T) - began; words == "+-+" && took > drbd.MeasuredFlap.Max+10*time.Millisecond {
					t.Errorf("c flaps for %s, the profile for %s at most", took, drbd.MeasuredFlap.Max)
				}
			}
			if len(words) < 3 || words[:3] != "+-+" {
				t.Errorf("the words of c are %q, want yes, no, yes", words)
			}
		})
	}
}
