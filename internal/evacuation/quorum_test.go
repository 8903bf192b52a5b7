package evacuation

import (
	"strings"
	"testing"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/evidence"
)

// TestQuorumOfThoseThatAreConnected has whether those that remain have quorum, as they are connected.
func TestQuorumOfThoseThatAreConnected(t *testing.T) {
	t.Parallel()
	outdated := state("Outdated")
	for name, test := range map[string]struct {
		quorum   string
		replicas []Replica
		keeps    bool
	}{
		"two that are connected":             {evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected(nodeC)), disk(nodeC, connected(nodeB))}, true},
		"two of which one says so":           {evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected()), disk(nodeC, connected(nodeB))}, true},
		"two of which the other says so":     {evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected(nodeC)), disk(nodeC, connected())}, true},
		"two that are not":                   {evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected()), disk(nodeC, connected())}, false},
		"a tie-breaker that is not":          {evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected()), diskless(nodeC)}, false},
		"two with old data, and one without": {"2", []Replica{disk(nodeA), disk(nodeB, connected()), disk(nodeC, outdated, connected(nodeD)), disk(nodeD, outdated, connected(nodeC))}, false},
		"old data beside an inactive disk": {
			evidence.Majority, []Replica{disk(nodeA), disk(nodeB, flagged(flagInactive)), disk(nodeC, outdated), disk(nodeD, outdated)}, false,
		},
		"one beside an inactive one":             {evidence.Majority, []Replica{disk(nodeA), disk(nodeB), disk(nodeC, flagged(flagInactive)), diskless(nodeD)}, true},
		"a tie-breaker where two disks must be":  {"2", []Replica{disk(nodeA), disk(nodeB), diskless(nodeC)}, false},
		"two that are not connected to the copy": {"2", []Replica{disk(nodeA, connected(nodeB)), disk(nodeB, connected(nodeA)), disk(nodeC, connected(nodeD)), disk(nodeD, connected(nodeC))}, false},
		"one where one suffices":                 {"1", []Replica{disk(nodeA), disk(nodeB, connected())}, true},
		"two where it is not known":              {"", []Replica{disk(nodeA), disk(nodeB), disk(nodeC)}, true},
		"one where it is not known":              {"", []Replica{disk(nodeA), disk(nodeB, connected())}, false},
		"one and a client, which has no vote":    {evidence.Majority, []Replica{disk(nodeA), disk(nodeB), client(nodeC)}, false},
		"one, a tie-breaker, and a client that is away": {
			evidence.Majority, []Replica{disk(nodeA), disk(nodeB, connected(nodeC)), diskless(nodeC), client(nodeD, connected())}, true,
		},
		"one and a tie-breaker, not known": {"", []Replica{disk(nodeA), disk(nodeB), diskless(nodeC)}, true},
		"one where no quorum is wanted":    {"off", []Replica{disk(nodeA), disk(nodeB, connected())}, true},
	} {
		v := volume("pvc-1", test.replicas...)
		v.Quorum = test.quorum
		if got := assess(tainted(Everything, with(v))).keepsQuorum(v); got != test.keeps {
			t.Errorf("%s: %t, want %t", name, got, test.keeps)
		}
	}
}

// TestAGoodCopyIsConnected has that a copy must be connected to a disk here that has the data, and need not be to one that has not.
func TestAGoodCopyIsConnected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		here, there Replica
		good        bool
	}{
		"a disk here that is UpToDate":               {disk(nodeA, connected()), disk(nodeB, connected()), false},
		"a disk here of which the copy says so":      {disk(nodeA, connected()), disk(nodeB, connected(nodeA)), true},
		"a disk here that says so":                   {disk(nodeA, connected(nodeB)), disk(nodeB, connected()), true},
		"a disk here that denies what the copy says": {disk(nodeA, connected(), apart(nodeB)), disk(nodeB, connected(nodeA)), false},
		"a disk here that says what the copy denies": {disk(nodeA, connected(nodeB)), disk(nodeB, connected(), apart(nodeA)), false},
		"a disk here that denies another one":        {disk(nodeA, connected(nodeB), apart(nodeC)), disk(nodeB, connected(), apart(nodeC)), true},
		"a disk here that has failed":                {disk(nodeA, state("Failed"), connected()), disk(nodeB, connected()), true},
		"a diskless replica here":                    {diskless(nodeA), disk(nodeB, connected()), true},
	} {
		v := volume("pvc-1", test.here, test.there)
		if got := assess(tainted(Everything, with(v))).goodElsewhere(v); got != test.good {
			t.Errorf("%s: %t, want %t", name, got, test.good)
		}
	}
}

// TestQuorumThatNodesMayStillRun has that the volume must have quorum by each setting that its nodes may run, and which one is in the way.
func TestQuorumThatNodesMayStillRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wanted string
		mayRun []string
		says   string
	}{
		"nothing but what LINSTOR wants":         {"off", nil, ""},
		"a quorum that it would not have":        {"off", []string{evidence.Majority}, "by what LINSTOR wants (\"off\") it would, but its nodes may still run majority"},
		"one that it would have":                 {"off", []string{"1"}, ""},
		"one of several that it would not have":  {"1", []string{"off", evidence.All}, "may still run off, all"},
		"what LINSTOR wants, which is no better": {evidence.Majority, []string{"off"}, "without this node it would have no quorum"},
	} {
		v := volume("pvc-1", disk(nodeA), disk(nodeB))
		v.Quorum, v.OtherQuorums = test.wanted, test.mayRun
		state := PlanFor(tainted(LastCopies, with(v))).Volumes[0]
		if blocked := state.Reason == QuorumWouldBeLost; blocked != (test.says != "") || !strings.Contains(state.Message, test.says) {
			t.Errorf("%s: %+v", name, state)
		}
		if still := strings.Contains(state.Message, "may still run"); still && test.wanted == evidence.Majority {
			t.Errorf("%s: %q", name, state.Message)
		}
	}
}
