package drbd_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// rate fills the default size, 1 GiB, in 10 s and 240 ms.
const rate = 100 * 1024

// synced is what a replica shows of an initial sync.
type synced struct {
	Disk  string
	Syncs map[string]drbd.Sync
}

func syncOf(t *testing.T, c *drbd.Cluster, node string) synced {
	t.Helper()
	s := state(t, c, node)
	return synced{s.DiskState, s.Syncs}
}

// add gives the standard resource another disk on node d.
func add(t *testing.T, c *drbd.Cluster) {
	t.Helper()
	c.AddNode("d")
	must(t, c.AddReplica(res, drbd.ReplicaSpec{Node: "d"}))
}

func TestAnInitialSyncTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{SyncRate: rate})
		add(t, c)
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		const half = 100 * 5 * rate / float64(drbd.DefaultSizeKiB)
		want := map[string]synced{
			"d": {drbd.Inconsistent, map[string]drbd.Sync{"a": {Target: true, Percent: half}}},
			"a": {drbd.UpToDate, map[string]drbd.Sync{"d": {Percent: half}}},
			"b": {drbd.UpToDate, nil},
		}
		for node, w := range want {
			if diff := cmp.Diff(w, syncOf(t, c, node)); diff != "" {
				t.Errorf("after 5 s %s shows (-want +got):\n%s", node, diff)
			}
		}
		time.Sleep(5200 * time.Millisecond)
		if got := syncOf(t, c, "d").Disk; got != drbd.Inconsistent {
			t.Errorf("after 10.2 s of 10.24 s the new disk is %s", got)
		}
		time.Sleep(100 * time.Millisecond)
		if diff := cmp.Diff(synced{Disk: drbd.UpToDate}, syncOf(t, c, "d")); diff != "" {
			t.Errorf("after 10.3 s the new disk shows (-want +got):\n%s", diff)
		}
	})
}

func TestAnInitialSyncThatIsDisturbed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		disturb func(*testing.T, *drbd.Cluster)
		// doneAt is when the new disk is UpToDate; 0 is never.
		doneAt time.Duration
	}{
		"nothing disturbs it": {func(*testing.T, *drbd.Cluster) {}, 10240 * time.Millisecond},
		"its source dies: it begins anew from the other one, once that is noticed": {
			func(_ *testing.T, c *drbd.Cluster) { c.Crash("a") }, (5+10)*time.Second + 10240*time.Millisecond,
		},
		"a replica that is not its source dies": {func(_ *testing.T, c *drbd.Cluster) { c.Crash("b") }, 10240 * time.Millisecond},
		"both sources die": {func(_ *testing.T, c *drbd.Cluster) {
			c.Crash("a")
			c.Crash("b")
		}, 0},
		"the connection is broken for a moment: it begins anew": {
			func(_ *testing.T, c *drbd.Cluster) { c.ResetConnections("a", "d") }, 5*time.Second + 10240*time.Millisecond,
		},
		"the disk is taken away": {func(t *testing.T, c *drbd.Cluster) {
			t.Helper()
			must(t, c.Adjust(res, drbd.Config{Replica: drbd.ReplicaSpec{Node: "d", Diskless: true}, Peers: diskful("a", "b")}))
		}, 0},
		"the replica is taken away": {func(t *testing.T, c *drbd.Cluster) {
			t.Helper()
			must(t, c.Down(res, "d"))
		}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, standard(), drbd.Options{SyncRate: rate})
				add(t, c)
				begin := time.Now()
				time.Sleep(5 * time.Second)
				tc.disturb(t, c)
				var doneAt time.Duration
				for doneAt == 0 && time.Since(begin) < time.Minute {
					time.Sleep(10 * time.Millisecond)
					if s, ok := c.Replica(res, "d"); ok && s.DiskState == drbd.UpToDate {
						doneAt = time.Since(begin)
					}
				}
				if (doneAt - tc.doneAt).Abs() > 20*time.Millisecond {
					t.Errorf("the new disk is UpToDate after %v, want %v", doneAt, tc.doneAt)
				}
			})
		})
	}
}

func TestAPrimaryThatGetsADiskWorksOnItsPeersDataMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{SyncRate: rate})
		must(t, c.Open(res, "c", false))
		for _, node := range []string{"a", "b"} {
			peers := diskful("c", "a", "b")
			peers = append(peers[:1], peers[map[string]int{"a": 2, "b": 1}[node]])
			must(t, c.Adjust(res, drbd.Config{Replica: drbd.ReplicaSpec{Node: node}, Peers: peers}))
		}
		must(t, c.Adjust(res, drbd.Config{Replica: drbd.ReplicaSpec{Node: "c"}, Peers: diskful("a", "b")}))
		time.Sleep(5 * time.Second)
		if s := state(t, c, "c"); s.DiskState != drbd.Inconsistent || !c.CanWrite(res, "c") {
			t.Errorf("its disk is %s, it writes: %t", s.DiskState, c.CanWrite(res, "c"))
		}
		time.Sleep(6 * time.Second)
		if s := state(t, c, "c"); s.DiskState != drbd.UpToDate || s.Role != drbd.Primary {
			t.Errorf("after the sync its disk is %s, its role %s", s.DiskState, s.Role)
		}
	})
}
