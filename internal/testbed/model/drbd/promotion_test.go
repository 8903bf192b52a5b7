package drbd_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

const res = "pvc-1"

// diskful lists replicas with a disk.
func diskful(nodes ...string) []drbd.ReplicaSpec {
	var list []drbd.ReplicaSpec
	for _, node := range nodes {
		list = append(list, drbd.ReplicaSpec{Node: node})
	}
	return list
}

func tieBreaker(node string) drbd.ReplicaSpec { return drbd.ReplicaSpec{Node: node, TieBreaker: true} }

func diskless(node string) drbd.ReplicaSpec { return drbd.ReplicaSpec{Node: node, Diskless: true} }

// cluster returns a cluster with nodes a to e and one resource.
func cluster(t *testing.T, spec drbd.Spec, options drbd.Options) *drbd.Cluster {
	t.Helper()
	c := drbd.NewCluster(options)
	t.Cleanup(c.Stop)
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		c.AddNode(node)
	}
	spec.Name = res
	must(t, c.CreateResource(spec))
	return c
}

// standard is two diskful replicas, a and b, and a tie-breaker, c.
func standard() drbd.Spec {
	return drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: append(diskful("a", "b"), tieBreaker("c"))}
}

func withQuorum(spec drbd.Spec, quorum string) drbd.Spec {
	spec.Quorum = quorum
	return spec
}

func withOptions(spec drbd.Spec, options ...string) drbd.Spec {
	spec.Options = map[string]string{}
	for i := 0; i < len(options); i += 2 {
		spec.Options[options[i]] = options[i+1]
	}
	return spec
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func state(t *testing.T, c *drbd.Cluster, node string) drbd.State {
	t.Helper()
	s, ok := c.Replica(res, node)
	if !ok {
		t.Fatalf("no replica on running node %s", node)
	}
	return s
}

// word is a replica's promotion information.
type word struct {
	Score      int
	MayPromote bool
}

func words(c *drbd.Cluster) map[string]word {
	all := map[string]word{}
	for _, node := range c.Nodes() {
		if s, ok := c.Replica(res, node); ok {
			all[node] = word{s.Score, s.MayPromote}
		}
	}
	return all
}

// settle lets everything that waits for time happen.
func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

func TestPromotionOfTwoReplicasWithTieBreaker(t *testing.T) {
	cases := map[string]struct {
		quorum string
		do     func(*testing.T, *drbd.Cluster)
		want   map[string]word
	}{
		"nobody uses the volume": {
			do:   func(*testing.T, *drbd.Cluster) {},
			want: map[string]word{"a": {10102, true}, "b": {10102, true}, "c": {2, true}},
		},
		"a healthy Primary": {
			do:   func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", false)) },
			want: map[string]word{"a": {10102, false}, "b": {10102, false}, "c": {2, false}},
		},
		"a Primary that stops": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Close(res, "a")
			},
			want: map[string]word{"a": {10102, true}, "b": {10102, true}, "c": {2, true}},
		},
		"the Primary crashes": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Crash("a")
			},
			want: map[string]word{"b": {10101, true}, "c": {1, true}},
		},
		"the Primary is isolated": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
			},
			want: map[string]word{"a": {0, false}, "b": {10101, true}, "c": {1, true}},
		},
		"the Primary is isolated and quorum is off": {
			quorum: drbd.QuorumOff,
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
			},
			want: map[string]word{"a": {10101, false}, "b": {10101, true}, "c": {1, true}},
		},
		"a Secondary is isolated and quorum is off": {
			quorum: drbd.QuorumOff,
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Isolate("b")
			},
			want: map[string]word{"a": {10101, false}, "b": {10101, true}, "c": {1, false}},
		},
		"everybody is isolated": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
				c.Isolate("b")
			},
			want: map[string]word{"a": {0, false}, "b": {0, false}, "c": {0, false}},
		},
		"the Primary's link to the other disk is cut but both see the tie-breaker": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.CutLink("a", "b")
			},
			want: map[string]word{"a": {10101, false}, "b": {0, false}, "c": {1, false}},
		},
		"the Primary loses the tie-breaker only": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.CutLink("a", "c")
			},
			want: map[string]word{"a": {10102, false}, "b": {10102, false}, "c": {1, false}},
		},
		"a Primary that was isolated comes back before anybody else is promoted": {
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
				settle()
				c.Rejoin("a")
			},
			want: map[string]word{"a": {10102, false}, "b": {10102, false}, "c": {2, false}},
		},
		"the tie-breaker itself is Primary": {
			do:   func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "c", false)) },
			want: map[string]word{"a": {10102, false}, "b": {10102, false}, "c": {2, false}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := standard()
				if tc.quorum != "" {
					spec.Quorum = tc.quorum
				}
				c := cluster(t, spec, drbd.Options{})
				tc.do(t, c)
				settle()
				if diff := cmp.Diff(tc.want, words(c)); diff != "" {
					t.Errorf("promotion (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestQuorum(t *testing.T) {
	three := drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: diskful("a", "b", "c")}
	two := drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: diskful("a", "b")}
	cases := map[string]struct {
		spec drbd.Spec
		do   func(*drbd.Cluster)
		want map[string]bool
	}{
		"two of three keep quorum": {
			spec: three, do: func(c *drbd.Cluster) { c.Isolate("a") },
			want: map[string]bool{"a": false, "b": true, "c": true},
		},
		"one of two has none, on either side": {
			spec: two, do: func(c *drbd.Cluster) { c.Isolate("a") },
			want: map[string]bool{"a": false, "b": false},
		},
		"one of two is enough when quorum is 1": {
			spec: withQuorum(two, "1"), do: func(c *drbd.Cluster) { c.Isolate("a") },
			want: map[string]bool{"a": true, "b": true},
		},
		"all means all": {
			spec: withQuorum(three, drbd.QuorumAll), do: func(c *drbd.Cluster) { c.Isolate("a") },
			want: map[string]bool{"a": false, "b": false, "c": false},
		},
		"the tie-breaker keeps a quorum": {
			spec: standard(), do: func(c *drbd.Cluster) { c.Crash("a") },
			want: map[string]bool{"b": true, "c": true},
		},
		"the tie-breaker does not give a rebooted node a quorum": {
			spec: standard(), do: func(c *drbd.Cluster) {
				c.Crash("a")
				c.Crash("b")
				settle()
				c.Return("b")
			},
			want: map[string]bool{"b": false, "c": false},
		},
		"the tie-breaker does not give back a quorum that was lost": {
			spec: standard(), do: func(c *drbd.Cluster) {
				c.Isolate("b")
				settle()
				c.Crash("a")
				settle()
				c.Rejoin("b")
			},
			want: map[string]bool{"b": false, "c": false},
		},
		"the other disk gives it back": {
			spec: standard(), do: func(c *drbd.Cluster) {
				c.Crash("a")
				c.Crash("b")
				settle()
				c.Return("b")
				settle()
				c.Return("a")
			},
			want: map[string]bool{"a": true, "b": true, "c": true},
		},
		"a diskless client without a vote is no tie-breaker": {
			spec: drbd.Spec{
				Quorum: drbd.QuorumMajority, Replicas: append(diskful("a", "b"), drbd.ReplicaSpec{Node: "c", Client: true}),
			},
			do:   func(c *drbd.Cluster) { c.Crash("a") },
			want: map[string]bool{"b": false, "c": false},
		},
		"of two tie-breakers one is no majority": {
			spec: drbd.Spec{
				Quorum: drbd.QuorumMajority, Replicas: append(diskful("a", "b"), tieBreaker("c"), diskless("d")),
			},
			do: func(c *drbd.Cluster) {
				c.Crash("a")
				c.Crash("d")
			},
			want: map[string]bool{"b": false, "c": false},
		},
		"who left in an orderly way does not count": {
			spec: two, do: func(c *drbd.Cluster) { c.Shutdown("a") },
			want: map[string]bool{"b": true},
		},
		"who is left behind by a quorate group does not count": {
			spec: standard(), do: func(c *drbd.Cluster) {
				c.Isolate("a")
				settle()
				c.Crash("c")
			},
			want: map[string]bool{"a": false, "b": true},
		},
		"who is left behind gets no quorum from the tie-breaker": {
			spec: standard(), do: func(c *drbd.Cluster) {
				c.CutLink("a", "b")
				c.CutLink("a", "c")
				settle()
				c.CutLink("b", "c")
				c.HealLink("a", "c")
			},
			want: map[string]bool{"a": false, "b": true, "c": false},
		},
		"a removed replica does not count": {
			spec: three, do: func(c *drbd.Cluster) {
				_ = c.DeleteReplica(res, "c")
				settle()
				c.Crash("b")
			},
			want: map[string]bool{"a": false},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, tc.spec, drbd.Options{})
				tc.do(c)
				settle()
				got := map[string]bool{}
				for _, node := range c.Nodes() {
					if s, ok := c.Replica(res, node); ok {
						got[node] = s.HasQuorum
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("quorum (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestOpen(t *testing.T) {
	cases := map[string]struct {
		spec     drbd.Spec
		do       func(*testing.T, *drbd.Cluster)
		node     string
		readOnly bool
		want     error
	}{
		"an idle replica can be opened": {spec: standard(), node: "b"},
		"a second writer on the Primary is welcome": {
			spec: standard(), node: "a",
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", false)) },
		},
		"a second Primary is refused": {
			spec: standard(), node: "b", want: drbd.ErrPeerPrimary,
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", false)) },
		},
		"a reader beside a Primary is refused": {
			spec: standard(), node: "b", readOnly: true, want: drbd.ErrPeerPrimary,
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", false)) },
		},
		"a Primary beside a reader is refused": {
			spec: standard(), node: "b", want: drbd.ErrPeerOpen,
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", true)) },
		},
		"readers do not disturb each other": {
			spec: standard(), node: "b", readOnly: true,
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", true)) },
		},
		"a second Primary is allowed where two are": {
			spec: withOptions(standard(), drbd.OptionAllowTwoPrimaries, "yes"), node: "b",
			do: func(t *testing.T, c *drbd.Cluster) { must(t, c.Open(res, "a", false)) },
		},
		"a second Primary is refused where two are, but it reaches the first one through others only": {
			spec: withOptions(drbd.Spec{Quorum: drbd.QuorumOff, Replicas: diskful("a", "b", "c")}, drbd.OptionAllowTwoPrimaries, "yes"),
			node: "b", want: drbd.ErrWeaklyConnected,
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.CutLink("a", "b")
				settle()
			},
		},
		"a second Primary is allowed where two are, and neither has a disk": {
			spec: withOptions(drbd.Spec{Quorum: drbd.QuorumOff, Replicas: append(diskful("c"), diskless("a"), diskless("b"))}, drbd.OptionAllowTwoPrimaries, "yes"),
			node: "b",
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.CutLink("a", "b")
				settle()
			},
		},
		"nobody is promoted without quorum": {
			spec: standard(), node: "b", want: drbd.ErrNoQuorum,
			do: func(_ *testing.T, c *drbd.Cluster) { c.Isolate("b"); settle() },
		},
		"nobody is promoted before the loss is noticed": {
			spec: standard(), node: "b", want: drbd.ErrUnresponsive,
			do: func(_ *testing.T, c *drbd.Cluster) { c.Crash("a") },
		},
		"an outdated replica is not promoted beside a Primary it lost": {
			spec: drbd.Spec{Quorum: drbd.QuorumOff, Replicas: diskful("a", "b", "c")}, node: "b", want: drbd.ErrPeerPrimary,
			do: func(t *testing.T, c *drbd.Cluster) {
				must(t, c.Open(res, "a", false))
				c.CutLink("a", "b")
				settle()
			},
		},
		"a node that is down opens nothing": {
			spec: standard(), node: "a", want: drbd.ErrNodeDown,
			do: func(_ *testing.T, c *drbd.Cluster) { c.Crash("a") },
		},
		"a node without replica has nothing to open": {spec: standard(), node: "e", want: drbd.ErrNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, tc.spec, drbd.Options{})
				if tc.do != nil {
					tc.do(t, c)
				}
				if err := c.Open(res, tc.node, tc.readOnly); !errors.Is(err, tc.want) {
					t.Errorf("Open = %v, want %v", err, tc.want)
				}
			})
		})
	}
}
