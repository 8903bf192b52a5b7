package drbd_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// step is one thing that happens, and how long it is quiet afterwards.
type step struct {
	What string
	A, B string
	Wait time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s(%s,%s)+%s", s.What, s.A, s.B, s.Wait) }

func do(c *drbd.Cluster, s step) {
	switch s.What {
	case "open":
		_ = c.Open(res, s.A, false)
	case "close":
		c.Close(res, s.A)
	case "crash":
		c.Crash(s.A)
	case "shutdown":
		c.Shutdown(s.A)
	case "return":
		c.Return(s.A)
	case "isolate":
		c.Isolate(s.A)
	case "rejoin":
		c.Rejoin(s.A)
	case "cut":
		c.CutLink(s.A, s.B)
	case "heal":
		c.HealLink(s.A, s.B)
	}
	time.Sleep(s.Wait)
	synctest.Wait()
}

// broken looks for what must never be with quorum majority.
func broken(c *drbd.Cluster) string {
	all := c.Inspect(res)
	var writers, candidates []string
	for _, node := range slices.Sorted(maps.Keys(all)) {
		if all[node].CanWrite {
			writers = append(writers, node)
		}
		if all[node].MayPromote && !all[node].Unnoticed {
			candidates = append(candidates, node)
		}
	}
	switch {
	case len(writers) > 1:
		return fmt.Sprintf("%v can all write", writers)
	case len(writers) > 0 && len(candidates) > 0:
		return fmt.Sprintf("%v may be promoted while %v can write", candidates, writers)
	case c.Diverged(res):
		return "the data diverged"
	}
	return ""
}

// TestMajorityFencesInAnyHistory lets anything happen to a resource with quorum majority: never do two nodes
// write, never does its data diverge, and never is a replica promotable while another node can write, except before
// it has noticed that it lost that one.
func TestMajorityFencesInAnyHistory(t *testing.T) {
	layouts := [][]drbd.ReplicaSpec{
		append(diskful("a", "b"), tieBreaker("c")),
		diskful("a", "b", "c"),
		append(diskful("a", "b"), diskless("c"), diskless("d")),
		append(diskful("a", "b", "c"), diskless("d")),
		append(diskful("a", "b", "c", "d"), tieBreaker("e")),
	}
	rapid.Check(t, func(rt *rapid.T) {
		layout := rapid.SampledFrom(layouts).Draw(rt, "layout")
		force := rapid.Bool().Draw(rt, "force secondary")
		delays := map[[2]string]time.Duration{}
		names := []string{"a", "b", "c", "d", "e"}[:len(layout)]
		name := rapid.SampledFrom(names)
		for _, a := range names {
			for _, b := range names {
				delays[[2]string{a, b}] = time.Duration(rapid.IntRange(0, 10).Draw(rt, "delay")) * time.Second
			}
		}
		what := rapid.SampledFrom([]string{
			"open", "open", "open", "close", "crash", "shutdown", "return", "return", "isolate", "rejoin", "cut", "heal", "heal",
		})
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				what.Draw(rt, "what"), name.Draw(rt, "a"), name.Draw(rt, "b"),
				time.Duration(rapid.SampledFrom([]int{0, 1, 3, 7, 20}).Draw(rt, "wait")) * time.Second,
			}
		}), 1, 25).Draw(rt, "steps")

		var failure string
		synctest.Test(t, func(t *testing.T) {
			spec := withOptions(drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: layout}, drbd.OptionRRConflict, drbd.RRConflictRetryConnect)
			if force {
				spec.Options[drbd.OptionOnSuspendedPrimary] = drbd.OnSuspendedPrimaryForceSecond
			}
			c := cluster(t, spec, drbd.Options{Detect: func(observer, peer string) time.Duration {
				return delays[[2]string{observer, peer}]
			}})
			c.OnChange(func(string, string) {
				if failure == "" {
					failure = broken(c)
				}
			})
			for i, s := range steps {
				do(c, s)
				if failure == "" {
					failure = broken(c)
				}
				if failure != "" {
					failure = fmt.Sprintf("after %v: %s", steps[:i+1], failure)
					return
				}
			}
			// Whatever happened: once all is well again and everything is closed, the resource is whole.
			for _, a := range names {
				c.Return(a)
				c.Rejoin(a)
				for _, b := range names {
					c.HealLink(a, b)
				}
			}
			settle()
			for _, a := range names {
				for range steps {
					c.Close(res, a)
				}
				must(t, c.Reconnect(res, a))
			}
			settle()
			if failure != "" {
				failure = fmt.Sprintf("after %v, while all is mended: %s", steps, failure)
				return
			}
			for _, a := range names {
				if s := state(t, c, a); !s.MayPromote {
					failure = fmt.Sprintf("%v, all mended, and %s may not be promoted: %+v", steps, a, s)
				}
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}
