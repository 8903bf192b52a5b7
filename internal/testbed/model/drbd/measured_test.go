package drbd_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// draws is how many losses a test of the measured times plays.
const draws = 200

// measured plays a loss many times, each with other draws, in a cluster whose Primary is on a.
func measured(t *testing.T, play func(t *testing.T, c *drbd.Cluster)) {
	t.Helper()
	for seed := range uint64(draws) {
		synctest.Test(t, func(t *testing.T) {
			c := cluster(t, standard(), drbd.Measured(rand.New(rand.NewPCG(seed, 0))))
			must(t, c.Open(res, "a", false))
			play(t, c)
		})
	}
}

// noticing returns after how long each end of a's connections has noticed that it is gone, at the end of a time.
func noticing(t *testing.T, c *drbd.Cluster, wait time.Duration) map[string]time.Duration {
	t.Helper()
	began, took := time.Now(), map[string]time.Duration{}
	note := func(node, peer string) {
		s, ok := c.Replica(res, node)
		if _, known := took[node+peer]; ok && !known && s.Connections[peer] != drbd.Connected {
			took[node+peer] = time.Since(began)
		}
	}
	c.OnChange(func(_, node string) {
		if node == "a" {
			note("a", "b")
			note("a", "c")
		} else {
			note(node, "a")
		}
	})
	time.Sleep(wait)
	synctest.Wait()
	return took
}

// within fails the test unless a time lies in a span.
func within(t *testing.T, what string, took time.Duration, span drbd.Span) {
	t.Helper()
	if took < span.Min || took > span.Max {
		t.Errorf("%s took %s, want %s to %s", what, took, span.Min, span.Max)
	}
}

func TestMeasuredPeersNoticeAPowerLossEachInItsTime(t *testing.T) {
	same := 0
	measured(t, func(t *testing.T, c *drbd.Cluster) {
		c.Crash("a")
		took := noticing(t, c, 12*time.Second)
		for _, node := range []string{"b", "c"} {
			within(t, node, took[node+"a"], drbd.Span{Min: 6300 * time.Millisecond, Max: 11300 * time.Millisecond})
		}
		if took["ba"] == took["ca"] {
			same++
		}
		if !state(t, c, "b").MayPromote {
			t.Error("b may not be promoted in the end")
		}
	})
	if same > draws/10 {
		t.Errorf("both peers noticed at the same time in %d of %d losses", same, draws)
	}
}

func TestMeasuredCutsThatAreShort(t *testing.T) {
	for _, tc := range []struct {
		cut                time.Duration
		atLeast, atMost    int // cuts that leave no trace
		mayPromoteSomewhen bool
	}{
		{3 * time.Second, draws, draws, false},
		{6 * time.Second, draws, draws, false},
		// One of 8 s was recorded, and left none; others were noticed after 6.5 s.
		{8 * time.Second, draws / 8, draws / 2, true},
	} {
		t.Run(tc.cut.String(), func(t *testing.T) {
			traceless, promotable := 0, false
			measured(t, func(t *testing.T, c *drbd.Cluster) {
				changes := 0
				c.OnChange(func(_, node string) {
					changes++
					s, _ := c.Replica(res, node)
					promotable = promotable || s.MayPromote
				})
				c.Isolate("a")
				time.Sleep(tc.cut)
				c.Rejoin("a")
				settle()
				if changes == 0 {
					traceless++
				}
				if !c.CanWrite(res, "a") {
					t.Error("the Primary can not write after the cut")
				}
			})
			if traceless < tc.atLeast || traceless > tc.atMost || promotable != tc.mayPromoteSomewhen {
				t.Errorf("%d of %d cuts left no trace, want %d to %d; a survivor said yes: %t", traceless, draws, tc.atLeast, tc.atMost, promotable)
			}
		})
	}
}

func TestMeasuredCutsOfAPrimary(t *testing.T) {
	soon, believed := 0, time.Duration(0)
	measured(t, func(t *testing.T, c *drbd.Cluster) {
		c.Isolate("a")
		took := noticing(t, c, 12*time.Second)
		for _, peer := range []string{"b", "c"} {
			byPeer, byPrimary := took[peer+"a"], took["a"+peer]
			if byPeer < 8*time.Second {
				soon++
				within(t, "the peer", byPeer, drbd.Span{Min: 6500 * time.Millisecond, Max: 7100 * time.Millisecond})
				within(t, "the Primary", byPrimary, drbd.Span{Min: 6600 * time.Millisecond, Max: 10600 * time.Millisecond})
				believed = max(believed, byPrimary-byPeer)
			} else {
				within(t, "the peer", byPeer, drbd.Span{Min: 8 * time.Second, Max: 11300 * time.Millisecond})
				within(t, "the Primary", byPrimary, drbd.Span{Min: 8 * time.Second, Max: 11300 * time.Millisecond})
			}
		}
		if c.CanWrite(res, "a") || !state(t, c, "b").MayPromote {
			t.Errorf("in the end a can write: %t, b may be promoted: %t", c.CanWrite(res, "a"), state(t, c, "b").MayPromote)
		}
	})
	if share := float64(soon) / (2 * draws); share < 0.4 || share > 0.6 {
		t.Errorf("%.0f %% of all links were noticed soon, want half", 100*share)
	}
	// Recorded was one that its peers noticed after 7 s, and that noticed after 10.6 s itself.
	if believed < 3*time.Second {
		t.Errorf("no Primary believed in its peers for longer than %s after they had given it up, want 3.6 s", believed)
	}
}

func TestMeasuredSurvivorsFlap(t *testing.T) {
	flapped := 0
	measured(t, func(t *testing.T, c *drbd.Cluster) {
		var words []bool
		var at []time.Time
		c.OnChange(func(_, node string) {
			s, _ := c.Replica(res, node)
			if n := len(words); node == "c" && (n == 0 && s.MayPromote || n > 0 && words[n-1] != s.MayPromote) {
				words, at = append(words, s.MayPromote), append(at, time.Now())
			}
		})
		c.Crash("a")
		settle()
		switch got := fmt.Sprint(words); got {
		case "[true]": // it was the last to notice
		case "[true false true]":
			flapped++
			if took := at[2].Sub(at[0]); took > 13*time.Millisecond {
				t.Errorf("c flapped for %s, want 13 ms at most", took)
			}
		default:
			t.Errorf("c said %s, want yes, or yes, no and yes", got)
		}
	})
	if flapped < draws/4 || flapped == draws {
		t.Errorf("c flapped in %d of %d losses, want those in which it is the first to notice", flapped, draws)
	}
}

func TestMeasuredTimesAreThoseOfTheirSeed(t *testing.T) {
	play := func(seed uint64) (took map[string]time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c := cluster(t, standard(), drbd.Measured(rand.New(rand.NewPCG(seed, 0))))
			must(t, c.Open(res, "a", false))
			c.Isolate("a")
			took = noticing(t, c, 12*time.Second)
		})
		return took
	}
	if diff := cmp.Diff(play(1), play(1)); diff != "" {
		t.Errorf("the same seed gives other times:\n%s", diff)
	}
	if cmp.Equal(play(1), play(2)) {
		t.Error("two seeds give the same times")
	}
}
