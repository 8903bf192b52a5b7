package drbd_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/model/drbd"
)

// config is the configuration of a node with a disk, with some peers.
func config(node, quorum string, peers ...drbd.ReplicaSpec) drbd.Config {
	return drbd.Config{
		Replica: drbd.ReplicaSpec{Node: node}, Options: map[string]string{drbd.OptionQuorum: quorum}, Peers: peers,
	}
}

func TestANodeThatWasNotAdjustedHasItsOldPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Replicas: diskful("a", "b")}, drbd.Options{})
		must(t, c.Open(res, "a", false))
		must(t, c.Adjust(res, drbd.Config{
			Replica: tieBreaker("c"), Options: map[string]string{drbd.OptionQuorum: drbd.QuorumMajority}, Peers: diskful("a", "b"),
		}))
		must(t, c.Adjust(res, config("b", drbd.QuorumMajority, append(diskful("a"), tieBreaker("c"))...)))
		want := map[string]map[string]string{
			"a": {"b": drbd.Connected},
			"b": {"a": drbd.Connected, "c": drbd.Connected},
			"c": {"a": drbd.Connecting, "b": drbd.Connected},
		}
		got := map[string]map[string]string{}
		for node := range want {
			got[node] = state(t, c, node).Connections
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("connections (-want +got):\n%s", diff)
		}
		if a, b := state(t, c, "a").Quorum, state(t, c, "b").Quorum; a != drbd.QuorumOff || b != drbd.QuorumMajority {
			t.Errorf("a runs %s and b runs %s, want off and majority", a, b)
		}

		// The others have a majority without a, which knows nothing of it and writes on: two writers.
		c.Isolate("a")
		settle()
		if !state(t, c, "b").MayPromote || !c.CanWrite(res, "a") {
			t.Errorf("b may be promoted: %t, a can write: %t, want both", state(t, c, "b").MayPromote, c.CanWrite(res, "a"))
		}
		must(t, c.Open(res, "b", false))
		if !c.CanWrite(res, "b") || !c.Diverged(res) {
			t.Errorf("b can write: %t, the data has diverged: %t", c.CanWrite(res, "b"), c.Diverged(res))
		}
	})
}

func TestAReplicaThatItsPeersHaveForgottenWritesOn(t *testing.T) {
	quorums := map[string]bool{drbd.QuorumOff: true, drbd.QuorumMajority: false}
	for quorum, writes := range quorums {
		t.Run(quorum, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster(t, withQuorum(standard(), quorum), drbd.Options{})
				must(t, c.Open(res, "a", false))
				c.Isolate("a")
				settle()
				must(t, c.Adjust(res, config("b", drbd.QuorumMajority, tieBreaker("c"))))
				must(t, c.Adjust(res, drbd.Config{Replica: tieBreaker("c"), Peers: diskful("b")}))
				if _, lists := state(t, c, "b").Connections["a"]; lists {
					t.Error("b lists a connection to a that it has given up")
				}
				if got := c.CanWrite(res, "a"); got != writes {
					t.Errorf("a can write: %t, want %t", got, writes)
				}
				c.Rejoin("a")
				settle()
				if got := state(t, c, "a").Connections["b"]; got != drbd.Connecting {
					t.Errorf("a, of which nobody knows, is %s to b, want Connecting", got)
				}
				if got := c.CanWrite(res, "a"); got != writes {
					t.Errorf("back on the network, a can write: %t, want %t", got, writes)
				}
			})
		})
	}
}

func TestAnAdjustThatEndsAfterTheOptionsLeavesThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Replicas: diskful("a", "b")}, drbd.Options{})
		must(t, c.AdjustOptions(res, config("a", drbd.QuorumMajority)))
		got := state(t, c, "a")
		if got.Quorum != drbd.QuorumMajority || got.Connections["b"] != drbd.Connected {
			t.Errorf("a runs %s and is %q to b, want majority and Connected", got.Quorum, got.Connections["b"])
		}
	})
}

func TestAPeerThatIsGivenUpKnowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Replicas: diskful("a", "b")}, drbd.Options{})
		must(t, c.Open(res, "a", false))
		must(t, c.Adjust(res, config("a", drbd.QuorumOff)))
		if got := state(t, c, "b"); got.Connections["a"] != drbd.Connecting || got.DiskState != drbd.Outdated {
			t.Errorf("b is %s to a and %s, want Connecting and Outdated", got.Connections["a"], got.DiskState)
		}
		if !c.CanWrite(res, "a") {
			t.Error("a can not write without the peer that it has given up")
		}
	})
}

func TestDownTakesTheReplicaFromItsNodeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, standard(), drbd.Options{})
		must(t, c.Open(res, "b", false))
		if err := c.Down(res, "b"); !errors.Is(err, drbd.ErrInUse) {
			t.Errorf("taking down a Primary = %v, want in use", err)
		}
		must(t, c.Down(res, "a"))
		if _, ok := c.Replica(res, "a"); ok {
			t.Error("a has the replica still")
		}
		got := state(t, c, "b")
		if got.Connections["a"] != drbd.Connecting || !c.CanWrite(res, "b") {
			t.Errorf("b is %q to a and can write: %t, want Connecting and true", got.Connections["a"], c.CanWrite(res, "b"))
		}
		must(t, c.Adjust(res, config("a", drbd.QuorumMajority, append(diskful("b"), tieBreaker("c"))...)))
		settle()
		if got := state(t, c, "a"); got.DiskState != drbd.UpToDate || got.Connections["b"] != drbd.Connected {
			t.Errorf("made again, a is %s and %s to b, want UpToDate and Connected", got.DiskState, got.Connections["b"])
		}
	})
}

func TestADiskIsToggled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: append(diskful("a", "b"), diskless("c"))}, drbd.Options{
			ResyncDuration: time.Minute,
		})
		must(t, c.Open(res, "c", false))
		must(t, c.Adjust(res, config("c", drbd.QuorumMajority, diskful("a", "b")...)))
		for _, node := range []string{"a", "b"} {
			other := map[string]string{"a": "b", "b": "a"}[node]
			must(t, c.Adjust(res, config(node, drbd.QuorumMajority, diskful(other, "c")...)))
		}
		if got := state(t, c, "c"); got.DiskState != drbd.Inconsistent || !c.CanWrite(res, "c") {
			t.Errorf("the Primary's new disk is %s, it can write: %t", got.DiskState, c.CanWrite(res, "c"))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := state(t, c, "c"); got.DiskState != drbd.UpToDate || got.Score != 10103 {
			t.Errorf("after the resync the new disk is %s, score %d", got.DiskState, got.Score)
		}
		must(t, c.Adjust(res, drbd.Config{Replica: diskless("c"), Peers: diskful("a", "b")}))
		if got := state(t, c, "c"); got.DiskState != drbd.Diskless || !c.CanWrite(res, "c") || c.Diverged(res) {
			t.Errorf("without its disk the Primary is %s, can write: %t, diverged: %t", got.DiskState, c.CanWrite(res, "c"), c.Diverged(res))
		}
		c.Isolate("a")
		c.Isolate("b")
		settle()
		must(t, c.Adjust(res, config("c", drbd.QuorumOff, diskful("a", "b")...)))
		if got := state(t, c, "c"); got.DiskState != drbd.Inconsistent || c.CanWrite(res, "c") {
			t.Errorf("cut off, the new disk is %s, can write: %t, want Inconsistent, false", got.DiskState, c.CanWrite(res, "c"))
		}
	})
}

// Each of two replicas has lost its disk, and has not been told of the other's.
func TestTwoReplicasTakeEachOtherForDiskful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Quorum: drbd.QuorumMajority, Replicas: diskful("a", "b", "c")}, drbd.Options{})
		must(t, c.Open(res, "c", false))
		must(t, c.Adjust(res, drbd.Config{Replica: diskless("c"), Peers: diskful("a", "b")}))
		must(t, c.Adjust(res, drbd.Config{Replica: diskless("b"), Peers: diskful("a", "c")}))
		if !c.CanWrite(res, "c") {
			t.Error("the Primary cannot write to the disk that is left")
		}
		c.Isolate("a")
		if c.CanWrite(res, "c") {
			t.Error("the Primary does not wait for the disk that was cut off")
		}
	})
}

func TestTheLastUpToDateDiskOfAPrimaryStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Replicas: append(diskful("a"), diskless("b"))}, drbd.Options{})
		must(t, c.Open(res, "a", false))
		if err := c.Adjust(res, drbd.Config{Replica: diskless("a")}); !errors.Is(err, drbd.ErrNoUpToDateDisk) {
			t.Errorf("detaching the only disk = %v, want a refusal", err)
		}
	})
}

func TestANewPeerIsMetAfterTheConnectDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, drbd.Spec{Replicas: diskful("a")}, drbd.Options{ConnectDelay: 300 * time.Millisecond})
		must(t, c.AddReplica(res, drbd.ReplicaSpec{Node: "b"}))
		if got := state(t, c, "a").Connections["b"]; got != drbd.Connecting {
			t.Errorf("at once a is %s to b, want Connecting", got)
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if got := state(t, c, "a").Connections["b"]; got != drbd.Connected {
			t.Errorf("later a is %s to b, want Connected", got)
		}
	})
}
