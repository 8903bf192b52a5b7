package drbd_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

func TestPeersNoticeACrashAfterTheDetectionDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.Open(res, "a", false))
		c.Crash("a")
		time.Sleep(drbd.DefaultDetectionDelay - time.Millisecond)
		synctest.Wait()
		if got := state(t, c, "b").Connections["a"]; got != drbd.Connected {
			t.Errorf("connection just before the delay ends = %s, want Connected", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		want := drbd.State{
			Role: drbd.Secondary, MayPromote: true, Score: 10101,
			Connections: map[string]string{"a": drbd.Connecting, "c": drbd.Connected},
			DiskState:   drbd.UpToDate, DiskStates: []string{drbd.UpToDate},
			HasQuorum: true, IO: drbd.IONormal, Quorum: drbd.QuorumMajority,
		}
		if diff := cmp.Diff(want, state(t, c, "b")); diff != "" {
			t.Errorf("survivor (-want +got):\n%s", diff)
		}
	})
}

func TestACrashIsNoticedAtOnceWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{DetectionDelay: drbd.Immediately})
		must(t, c.Open(res, "a", false))
		c.Crash("a")
		if !state(t, c, "b").MayPromote {
			t.Error("the survivor may not be promoted although the loss is known")
		}
	})
}

func TestSurvivorWaitsUntilEveryoneWithinReachNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{Detect: func(observer, _ string) time.Duration {
			return map[string]time.Duration{"b": time.Second, "c": 5 * time.Second}[observer]
		}})
		must(t, c.Open(res, "a", false))
		c.Crash("a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := state(t, c, "b"); s.DiskState != drbd.Consistent || s.MayPromote {
			t.Errorf("while c believes in a: disk %s, may promote %t; want Consistent, false", s.DiskState, s.MayPromote)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s := state(t, c, "b"); s.DiskState != drbd.UpToDate || !s.MayPromote {
			t.Errorf("after c noticed: disk %s, may promote %t; want UpToDate, true", s.DiskState, s.MayPromote)
		}
	})
}

func TestShortPartitionIsNeverNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.Open(res, "a", false))
		before := state(t, c, "b")
		changes := 0
		c.OnChange(func(string, string) { changes++ })
		c.Isolate("a")
		if c.CanWrite(res, "a") {
			t.Error("a write could be committed while the peer's acknowledgement can not arrive")
		}
		time.Sleep(5 * time.Second)
		c.Rejoin("a")
		settle()
		if diff := cmp.Diff(before, state(t, c, "b")); diff != "" || changes != 0 {
			t.Errorf("%d changes, state (-before +after):\n%s", changes, diff)
		}
		if !c.CanWrite(res, "a") {
			t.Error("the Primary can not write after the link healed")
		}
	})
}

func TestPartitionFlapTurnsMayPromoteOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.Open(res, "a", false))
		var got []bool
		c.OnChange(func(_, node string) {
			if node != "b" {
				return
			}
			if may := state(t, c, "b").MayPromote; len(got) == 0 || got[len(got)-1] != may {
				got = append(got, may)
			}
		})
		c.Isolate("a")
		settle()
		if s := state(t, c, "a"); s.IO != drbd.IOSuspended || s.Role != drbd.Primary || c.CanWrite(res, "a") {
			t.Errorf("isolated Primary: IO %s, role %s, can write %t", s.IO, s.Role, c.CanWrite(res, "a"))
		}
		c.Rejoin("a")
		settle()
		if diff := cmp.Diff([]bool{true, false}, got[len(got)-2:]); diff != "" {
			t.Errorf("may promote on b (-want +got):\n%s", diff)
		}
		if !c.CanWrite(res, "a") {
			t.Error("the Primary did not resume")
		}
	})
}

func TestPrimaryThatRejoinsAfterAnotherWasPromoted(t *testing.T) {
	cases := map[string]struct {
		options     []string
		connection  string
		afterClose  string
		forced      bool
		role        string
		wantOpenErr error
	}{
		"stays isolated by default": {
			connection: drbd.StandAlone, afterClose: drbd.StandAlone, role: drbd.Primary,
		},
		"tries again where it shall, and succeeds once it is closed": {
			options:    []string{drbd.OptionRRConflict, drbd.RRConflictRetryConnect},
			connection: drbd.Connecting, afterClose: drbd.Connected, role: drbd.Primary,
		},
		"is demoted by force and fails IO until it is closed": {
			options: []string{
				drbd.OptionRRConflict, drbd.RRConflictRetryConnect,
				drbd.OptionOnSuspendedPrimary, drbd.OnSuspendedPrimaryForceSecond,
			},
			connection: drbd.Connected, afterClose: drbd.Connected, role: drbd.Secondary, forced: true,
			wantOpenErr: drbd.ErrForceIOFailures,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, withOptions(standard(), tc.options...), drbd.Options{})
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
				settle()
				must(t, c.Open(res, "b", false))
				c.Rejoin("a")
				settle()
				s := state(t, c, "a")
				if s.Connections["b"] != tc.connection || s.Role != tc.role || s.ForceIOFailures != tc.forced || s.Score != 0 || s.MayPromote {
					t.Errorf("after rejoining: %+v", s)
				}
				if c.CanWrite(res, "a") || !c.CanWrite(res, "b") || c.Diverged(res) {
					t.Errorf("can write: a %t, b %t; diverged %t", c.CanWrite(res, "a"), c.CanWrite(res, "b"), c.Diverged(res))
				}
				if err := c.Open(res, "a", false); !errors.Is(err, tc.wantOpenErr) {
					t.Errorf("Open = %v, want %v", err, tc.wantOpenErr)
				}
				for range 2 {
					c.Close(res, "a")
				}
				settle()
				s = state(t, c, "a")
				if s.Connections["b"] != tc.afterClose || s.ForceIOFailures || s.Role != drbd.Secondary {
					t.Errorf("after closing: %+v", s)
				}
				must(t, c.Reconnect(res, "a"))
				settle()
				if s = state(t, c, "a"); s.DiskState != drbd.UpToDate || s.Score != 10102 {
					t.Errorf("after reconnecting: %+v", s)
				}
			})
		})
	}
}

func TestRebootedPrimaryResyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{ResyncDuration: 30 * time.Second})
		must(t, c.Open(res, "a", false))
		c.Crash("a")
		settle()
		must(t, c.Open(res, "b", false))
		c.Return("a")
		if s := state(t, c, "a"); s.Role != drbd.Secondary || s.Open != 0 || s.HasQuorum {
			t.Errorf("just booted: %+v", s)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := state(t, c, "a"); s.DiskState != drbd.Inconsistent || s.MayPromote {
			t.Errorf("while it resyncs: disk %s, may promote %t", s.DiskState, s.MayPromote)
		}
		settle()
		if s := state(t, c, "a"); s.DiskState != drbd.UpToDate || s.Score != 10102 {
			t.Errorf("after the resync: disk %s, score %d", s.DiskState, s.Score)
		}
	})
}

// What a Primary was writing when it crashed may differ from its peer's data, although the peer has written nothing since.
func TestAReplicaResyncsAfterACrash(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(*testing.T, *drbd.Cluster)
		want  [3]string
	}{
		"of a Primary": {func(t *testing.T, c *drbd.Cluster) {
			must(t, c.Open(res, "a", false))
			c.Crash("a")
		}, [3]string{drbd.Consistent, drbd.Inconsistent, drbd.UpToDate}},
		"of a Secondary, not": {func(_ *testing.T, c *drbd.Cluster) {
			c.Crash("a")
		}, [3]string{drbd.UpToDate, drbd.UpToDate, drbd.UpToDate}},
		"of a Primary, and once only": {func(t *testing.T, c *drbd.Cluster) {
			must(t, c.Open(res, "a", false))
			c.Crash("a")
			settle()
			c.Return("a")
			settle()
			c.Crash("a")
		}, [3]string{drbd.UpToDate, drbd.UpToDate, drbd.UpToDate}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, standard(), drbd.Options{ResyncDelay: 5 * time.Second, ResyncDuration: 10 * time.Second})
				test.leave(t, c)
				settle()
				c.Return("a")
				var got [3]string
				for i, at := range []time.Duration{4 * time.Second, 10 * time.Second, 10 * time.Second} {
					time.Sleep(at)
					synctest.Wait()
					got[i] = state(t, c, "a").DiskState
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("its disk before, while and after it may resync (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSplitBrainWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, withQuorum(standard(), drbd.QuorumOff), drbd.Options{})
		must(t, c.Open(res, "a", false))
		c.Isolate("a")
		settle()
		must(t, c.Open(res, "b", false))
		if !c.CanWrite(res, "a") || !c.CanWrite(res, "b") || !c.Diverged(res) {
			t.Error("without quorum, both sides of a partition write")
		}
		c.Rejoin("a")
		settle()
		if got := state(t, c, "a").Connections["b"]; got != drbd.StandAlone {
			t.Errorf("connection after the partition = %s, want StandAlone", got)
		}
	})
}

func TestPartialMeshGivesNoFalseYes(t *testing.T) {
	cases := map[string]struct {
		replicas []drbd.ReplicaSpec
		primary  string
		cut      [][2]string
		quorum   string
	}{
		"a diskful replica lost the Primary that a third still has":   {diskful("a", "b", "c"), "a", [][2]string{{"a", "b"}}, drbd.QuorumMajority},
		"a diskless replica lost the Primary that its peer still has": {append(diskful("a", "b"), diskless("c")), "a", [][2]string{{"a", "c"}}, drbd.QuorumMajority},
		"the Primary is seen only two hops away":                      {diskful("a", "b", "c", "d"), "a", [][2]string{{"a", "c"}, {"a", "d"}, {"b", "d"}}, drbd.QuorumOff},
		"two disks lost a diskless Primary's third":                   {append(diskful("a", "b", "c"), diskless("d")), "d", [][2]string{{"d", "a"}, {"d", "b"}}, drbd.QuorumMajority},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, drbd.Spec{Quorum: tc.quorum, Replicas: tc.replicas}, drbd.Options{})
				must(t, c.Open(res, tc.primary, false))
				for _, link := range tc.cut {
					c.CutLink(link[0], link[1])
				}
				settle()
				for node, w := range words(c) {
					if w.MayPromote {
						t.Errorf("%s may be promoted beside the Primary: %+v", node, state(t, c, node))
					}
				}
				if !c.CanWrite(res, tc.primary) {
					t.Error("the Primary can not write")
				}
				for _, link := range tc.cut {
					c.HealLink(link[0], link[1])
				}
				settle()
				for node, w := range words(c) {
					if w.Score == 0 {
						t.Errorf("%s did not recover: %+v", node, state(t, c, node))
					}
				}
			})
		})
	}
}

func TestQuorumSettingThatDidNotReachANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, withQuorum(standard(), drbd.QuorumOff), drbd.Options{})
		must(t, c.Open(res, "a", false))
		must(t, c.SetQuorum(res, drbd.QuorumMajority, "b", "c"))
		c.Isolate("a")
		settle()
		if s := state(t, c, "a"); s.Quorum != drbd.QuorumOff || !c.CanWrite(res, "a") {
			t.Errorf("a runs quorum %s and can write %t; want off, true", s.Quorum, c.CanWrite(res, "a"))
		}
		if s := state(t, c, "b"); s.Quorum != drbd.QuorumMajority || !s.MayPromote {
			t.Errorf("b runs quorum %s and may promote %t; want majority, true", s.Quorum, s.MayPromote)
		}
	})
}

func TestReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.AddReplica(res, diskless("d")))
		must(t, c.Open(res, "d", false))
		want := map[string]string{"a": drbd.Connected, "b": drbd.Connected}
		if diff := cmp.Diff(want, state(t, c, "d").Connections); diff != "" {
			t.Errorf("connections of a diskless replica (-want +got):\n%s", diff)
		}
		if err := c.DeleteReplica(res, "d"); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("deleting an open replica = %v, want in use", err)
		}
		if err := c.DeleteResource(res); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("deleting an open resource = %v, want in use", err)
		}
		c.Close(res, "d")
		must(t, c.DeleteReplica(res, "d"))
		must(t, c.AddReplica(res, drbd.ReplicaSpec{Node: "e"}))
		settle()
		if s := state(t, c, "e"); s.DiskState != drbd.UpToDate || s.Score != 10103 {
			t.Errorf("new diskful replica: %+v", s)
		}
		must(t, c.DeleteResource(res))
		if _, ok := c.Replica(res, "a"); ok {
			t.Error("a deleted resource has a replica")
		}
	})
}

func TestOneVolumeWithoutDataTakesTheScoreButNotTheWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := standard()
		spec.Volumes = 2
		c := cluster(t, spec, drbd.Options{})
		must(t, c.Open(res, "a", false))
		if got := state(t, c, "a").Score; got != 10202 {
			t.Errorf("score of two volumes = %d, want 10202", got)
		}
		must(t, c.SetDisk(res, "a", 1, drbd.Failed))
		must(t, c.SetDisk(res, "b", 1, drbd.Failed))
		if s := state(t, c, "a"); s.Score != 0 || !c.CanWrite(res, "a") {
			t.Errorf("score %d, can write %t; want 0, true", s.Score, c.CanWrite(res, "a"))
		}
	})
}

func TestADiskCoversAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Quorum: drbd.QuorumOff, Replicas: append(diskful("a", "b"), diskless("c"))}, drbd.Options{})
		must(t, c.Open(res, "a", false))
		if !c.Covers(res, "a", "b") || !c.Covers(res, "b", "a") {
			t.Error("of two disks that are connected one lacks what the other has")
		}
		if c.Covers(res, "a", "c") || c.Covers(res, "a", "e") || c.Covers("another", "a", "b") {
			t.Error("what is no disk has what a disk has")
		}
		c.CutLink("a", "b")
		settle()
		if c.Covers(res, "a", "b") || !c.Covers(res, "b", "a") {
			t.Error("a disk that was cut off has what was written since, or the other one lacks what it has")
		}
	})
}
