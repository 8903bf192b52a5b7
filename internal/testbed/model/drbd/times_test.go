package drbd_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// recorded are the words of a node, one after the other, as "may promote/score".
func recorded(t *testing.T, c *drbd.Cluster, node string) *[]string {
	t.Helper()
	words := new([]string)
	c.OnChange(func(_, changed string) {
		if changed != node {
			return
		}
		if s, ok := c.Replica(res, node); ok {
			word := fmt.Sprintf("%t/%d", s.MayPromote, s.Score)
			if n := len(*words); n == 0 || (*words)[n-1] != word {
				*words = append(*words, word)
			}
		}
	})
	return words
}

// detection gives each direction of each link its delay, by "observer peer".
func detection(delays map[string]time.Duration) func(observer, peer string) time.Duration {
	return func(observer, peer string) time.Duration { return delays[observer+" "+peer] }
}

func TestAPrimaryThatIsCutOffBelievesLongerThanItsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{NoticeEach: true, Detect: detection(map[string]time.Duration{
			"b a": 7 * time.Second, "c a": 6500 * time.Millisecond, "a b": 10600 * time.Millisecond, "a c": 6800 * time.Millisecond,
		})})
		must(t, c.Open(res, "a", false))
		c.CutLink("a", "b")
		c.CutLink("a", "c")
		type look struct {
			Score      int
			C          string
			MayPromote bool
		}
		got := map[time.Duration]look{}
		begin := time.Now()
		for _, at := range []time.Duration{6400, 6600, 6900, 7100, 10500, 10700} { // in milliseconds
			time.Sleep(time.Until(begin.Add(at * time.Millisecond))) //nolint:durationcheck // as said
			synctest.Wait()
			a := state(t, c, "a")
			got[at] = look{a.Score, a.Connections["c"], state(t, c, "b").MayPromote}
			if c.CanWrite(res, "a") {
				t.Errorf("after %d ms a write on the cut off Primary could be committed", at)
			}
		}
		want := map[time.Duration]look{
			6400:  {10102, drbd.Connected, false},
			6600:  {10102, drbd.Connected, false},
			6900:  {10102, drbd.Connecting, false},
			7100:  {10102, drbd.Connecting, true},
			10500: {10102, drbd.Connecting, true},
			10700: {0, drbd.Connecting, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the Primary, and what b says (-want +got):\n%s", diff)
		}
	})
}

func TestAPrimaryThatTakesTheTieBreakerForAliveDoesNotWriteOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{NoticeEach: true, Detect: detection(map[string]time.Duration{
			"b a": 8 * time.Second, "c a": 9 * time.Second, "a b": 9600 * time.Millisecond, "a c": 10100 * time.Millisecond,
		})})
		must(t, c.Open(res, "a", false))
		c.Isolate("a")
		time.Sleep(9800 * time.Millisecond)
		synctest.Wait()
		if s := state(t, c, "a"); s.Connections["b"] == drbd.Connected || s.Connections["c"] != drbd.Connected || !s.HasQuorum {
			t.Errorf("a is %+v, want it to have noticed b alone", s)
		}
		if c.CanWrite(res, "a") || !c.IOHangs(res, "a") {
			t.Error("a writes on before the tie-breaker has answered")
		}
		must(t, c.Open(res, "b", false))
		time.Sleep(time.Second)
		synctest.Wait()
		if c.CanWrite(res, "a") || !c.CanWrite(res, "b") || c.Diverged(res) {
			t.Errorf("a writes: %t, b: %t, diverged: %t, want b to write", c.CanWrite(res, "a"), c.CanWrite(res, "b"), c.Diverged(res))
		}
	})
}

func TestSurvivorsFlap(t *testing.T) {
	cases := map[string]struct {
		spec drbd.Spec
		c    []string
	}{
		"a tie-breaker": {standard(), []string{"false/1", "true/1", "false/0", "true/1"}},
		"a third disk": {
			drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: diskful("a", "b", "c")},
			[]string{"false/10001", "true/10001", "false/0", "true/10102"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, tc.spec, drbd.Options{
					NoticeEach: true, Flap: 8 * time.Millisecond,
					Detect: detection(map[string]time.Duration{"b a": 9 * time.Second, "c a": 8 * time.Second}),
				})
				must(t, c.Open(res, "a", false))
				b, words := recorded(t, c, "b"), recorded(t, c, "c")
				c.Crash("a")
				time.Sleep(9*time.Second + 7*time.Millisecond)
				synctest.Wait()
				if err := c.Open(res, "c", false); err == nil {
					t.Error("c is promoted before b has agreed")
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if diff := cmp.Diff(tc.c, *words); diff != "" {
					t.Errorf("words of c (-want +got):\n%s", diff)
				}
				// The one that lost the Primary last never says yes too soon.
				if last := (*b)[len(*b)-1]; last[:4] != "true" || (*b)[len(*b)-2][:5] != "false" {
					t.Errorf("words of b: %v", *b)
				}
			})
		})
	}
}

func TestAReplicaCutFromThePrimaryAloneNeverSaysYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{NoticeEach: true, Flap: 8 * time.Millisecond})
		must(t, c.Open(res, "a", false))
		words := recorded(t, c, "b")
		c.CutLink("a", "b")
		settle()
		for _, word := range *words {
			if word[:4] == "true" {
				t.Errorf("words of b: %v, want none that is true", *words)
			}
		}
	})
}

func TestAnOutdatedReplicaSaysYesForAMomentAtAHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{HealFlap: 600 * time.Microsecond})
		must(t, c.Open(res, "a", false))
		c.CutLink("a", "b")
		settle()
		if got := state(t, c, "b").DiskState; got != drbd.Outdated {
			t.Fatalf("the disk of b is %s, want Outdated", got)
		}
		words := recorded(t, c, "b")
		c.HealLink("a", "b")
		settle()
		if diff := cmp.Diff([]string{"true/10102", "false/10102"}, *words); diff != "" {
			t.Errorf("words of b (-want +got):\n%s", diff)
		}
	})
}

func TestTheSecondConnectionComesLongAfterTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{Reconnect: func(a, b string) time.Duration {
			return map[string]time.Duration{"a b": 11 * time.Second, "a c": time.Second}[a+" "+b]
		}})
		must(t, c.Open(res, "a", false))
		c.Isolate("a")
		settle()
		c.Rejoin("a")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := map[string]string{"b": drbd.Connecting, "c": drbd.Connected}
		if diff := cmp.Diff(want, state(t, c, "a").Connections); diff != "" {
			t.Errorf("connections of a after 10 s (-want +got):\n%s", diff)
		}
		settle()
		want["b"] = drbd.Connected
		if diff := cmp.Diff(want, state(t, c, "a").Connections); diff != "" {
			t.Errorf("connections of a at last (-want +got):\n%s", diff)
		}
	})
}

func TestAResetConnectionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.Open(res, "a", false))
		c.ResetConnections("a", "b", "another")
		if got := state(t, c, "a").Connections["b"]; got != drbd.Connected {
			t.Errorf("the reset of another resource: a is %s to b", got)
		}
		c.ResetConnections("a", "b")
		if a, b := state(t, c, "a"), state(t, c, "b"); a.Connections["b"] != drbd.Connecting || b.Connections["a"] != drbd.Connecting || b.MayPromote {
			t.Errorf("a is %s to b and b is %s to a, b may be promoted: %t", a.Connections["b"], b.Connections["a"], b.MayPromote)
		}
		if !c.CanWrite(res, "a") {
			t.Error("the Primary with its tie-breaker can not write")
		}
		time.Sleep(drbd.DefaultReconnectDelay)
		synctest.Wait()
		if a, b := state(t, c, "a"), state(t, c, "b"); a.Connections["b"] != drbd.Connected || b.DiskState != drbd.UpToDate {
			t.Errorf("later a is %s to b, b is %s", a.Connections["b"], b.DiskState)
		}

		// A cut right after a reset is noticed by nobody: the connection is down already.
		c.ResetConnections("a", "b")
		c.CutLink("a", "b")
		time.Sleep(drbd.DefaultReconnectDelay)
		synctest.Wait()
		if got := state(t, c, "a").Connections["b"]; got != drbd.Connecting {
			t.Errorf("cut off after the reset, a is %s to b, want Connecting", got)
		}
	})
}
