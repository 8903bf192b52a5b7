package failover

import (
	"testing"
	"time"
)

// A replica that DRBD counts nowhere must not be counted here either: neither does its silence take the majority from a survivor, nor its word the
// quorum from the node.
func TestAReplicaWithoutAVoteChangesNoDecision(t *testing.T) {
	t.Parallel()
	clients := map[string]func(*Replica){
		"denies that it is connected": func(r *Replica) {
			r.Connections, r.MayPromote = map[string]Fact[bool]{nodeA: held(false, time.Minute)}, held(true, time.Minute)
		},
		"is silent": func(r *Replica) { *r = Replica{Node: r.Node, Diskless: true, Blind: true} },
		"was lost with its node, and is being deleted": func(r *Replica) {
			*r = Replica{Node: r.Node, Diskless: true, Leaving: true, Online: held(false, time.Minute)}
		},
	}
	for from, begin := range map[string]func() Input{"crashed": crashed, "isolated": isolated, "healthy": healthy} {
		for among, edit := range map[string]edit{
			"all speak":                            func(*Input) {},
			"the tie-breaker is silent":            silent(nodeT),
			"and so is the kubelet":                edited(silent(nodeT), theLease(time.Minute)),
			"the other disk is silent":             silent(nodeB),
			"there is no tie-breaker":              withoutTieBreaker,
			"there is no tie-breaker, but a third": edited(withoutTieBreaker, withThirdDisk),
		} {
			without := begin()
			edit(&without)
			want := Decide(without)
			for does, client := range clients {
				in := begin()
				edit(&in)
				c := tieBreaker("node-x")
				client(&c)
				c.Client = true
				in.Resource.Replicas = append(in.Resource.Replicas, c)
				for i := range in.Resource.Replicas {
					if survivor := &in.Resource.Replicas[i]; survivor.Node != nodeA && survivor.Node != c.Node && survivor.Connections != nil {
						survivor.Connections[c.Node] = held(does == "denies that it is connected", time.Minute)
					}
				}
				if got := Decide(in); got.Verdict != want.Verdict || got.Reason != want.Reason {
					t.Errorf("%s, %s, and the client %s: %s %s, want %s %s", from, among, does, got.Verdict, got.Reason, want.Verdict, want.Reason)
				}
			}
		}
	}
}
