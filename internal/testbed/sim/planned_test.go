package sim_test

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// leavingNodes are histories in which a node leaves on purpose.
func leavingNodes() map[string]sim.History {
	leaves := []sim.Step{at("20s", sim.Leave, "a", ""), at("21s", sim.SwitchOffSafe, "a", "")}
	disks := func(quorum string) []sim.Volume {
		return []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c"), Quorum: quorum}}
	}
	return map[string]sim.History{
		"a node is not StorageSafe while the others are not connected to each other": {
			World: planned(world(3, disks(""), pod("pod-0", "a", "v0"))),
			Steps: append([]sim.Step{
				{At: 5 * time.Second, What: sim.CutResource, On: "v0", Node: "node-b", Peer: "node-c"},
			}, leaves...),
			Length: 2 * time.Minute,
		},
		"a node is not StorageSafe where a volume needs all of its disks": {
			World: planned(world(3, disks("all"), pod("pod-0", "a", "v0"))), Steps: leaves, Length: 2 * time.Minute,
		},
		"the node of a tie-breaker is not StorageSafe while one of two disks has failed": {
			World: planned(world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("b", "c"), TieBreaker: "node-a"},
			}, pod("pod-0", "b", "v0"))),
			Steps: append([]sim.Step{at("5s", sim.FailDisk, "b", "v0")}, leaves...), Length: 2 * time.Minute,
		},
		"a person has LINSTOR delete a copy that was made for a node which leaves, and LINSTOR is restarted": {
			World: planned(world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a")},
			}, pod("pod-0", "a", "v0"))),
			Steps: []sim.Step{
				at("20s", sim.Leave, "a", ""),
				{At: 60 * time.Second, What: sim.FlagReplica, Node: "node-b", On: "v0", Value: "DELETE"},
				{At: 60 * time.Second, What: sim.FlagReplica, Node: "node-c", On: "v0", Value: "DELETE"},
				at("75s", sim.RestartLinstor, "", ""),
			},
			Length: 2 * time.Minute,
		},
		"an affinity controller makes the PersistentVolume of a lost pod anew, and LINSTOR is blind": {
			World: planned(world(5, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("b", "d"), TieBreaker: "node-e", Pinned: true},
			}, pod("pod-0", "b", "v0"))),
			Steps: []sim.Step{
				{What: sim.AffinityOn},
				at("8.9s", sim.LoseConnector, "", ""), at("10s", sim.Crash, "b", ""),
				at("38s", sim.RemoveReplica, "b", "v0"),
			},
			Length: 90 * time.Second,
		},
		"a node leaves twice within an hour, and LINSTOR balances in between what the first time has left": {
			World: balanced(planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, pod("pod-0", "a", "v0")))),
			Steps: []sim.Step{
				at("10s", sim.Crash, "b", ""), at("20s", sim.Leave, "a", ""), at("100s", sim.Stay, "a", ""), at("104s", sim.Leave, "a", ""),
			},
			Length: 300 * time.Second,
		},
		"a node does not leave whose writes have gone on without the copy, which has not noticed yet": {
			World: slowly(planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), Quorum: "off"},
			}, stopping(pod("pod-0", "a", "v0"), 8*time.Second))), "b", 4*time.Second),
			Steps: []sim.Step{
				at("5s", sim.Leave, "a", ""), at("10s", sim.DrainNode, "a", ""), at("16.5s", sim.IsolateDRBD, "a", ""),
			},
			Length: 90 * time.Second,
		},
		"a node leaves while what was written last is on another one that is off": {
			World: planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), Quorum: "off"},
			}, pod("pod-0", "b", "v0"))),
			Steps: []sim.Step{
				at("10s", sim.IsolateDRBD, "b", ""), at("20s", sim.Crash, "b", ""), at("30s", sim.Leave, "a", ""),
			},
			Length: 100 * time.Second,
		},
		"a node cannot leave whose snapshot LINSTOR leaves there, because others have enough of it": {
			World: planned(world(5, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")},
			}, pod("pod-0", "b", "v0"))),
			Steps: []sim.Step{
				at("5s", sim.TakeSnapshot, "", "v0"), at("10s", sim.Leave, "b", ""), at("25s", sim.DrainNode, "b", ""),
			},
			Length: 290 * time.Second,
		},
		"a node cannot leave whose snapshot is on each other node that could have it": {
			World: planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c"), TieBreaker: "node-d"},
			}, pod("pod-0", "b", "v0"))),
			Steps: []sim.Step{
				at("5s", sim.TakeSnapshot, "", "v0"), at("10s", sim.Leave, "b", ""), at("25s", sim.DrainNode, "b", ""),
			},
			Length: 290 * time.Second,
		},
		"a node leaves after the disk has failed that was cut off with what was written last": {
			World: planned(world(5, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b")},
			}, pod("pod-0", "b", "v0"))),
			Steps: []sim.Step{
				at("10s", sim.DrainNode, "b", ""),
				{At: 11500 * time.Millisecond, What: sim.FlagReplica, Node: "node-a", On: "v0", Value: "DRBD_DELETE"},
				at("20s", sim.Leave, "b", ""), at("24s", sim.FailDisk, "a", "v0"),
			},
			Length: 90 * time.Second,
		},
		"a node is not StorageSafe while a pod's ephemeral volume, which only that node may have, is there": {
			World: listing(planned(world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, scratching(pod("pod-0", "b", "v0")))), "b"),
			Steps:  []sim.Step{at("20s", sim.Leave, "b", "")},
			Length: 240 * time.Second,
		},
		"a node is not StorageSafe while its satellite is late to connect the copy of a pod's ephemeral volume": {
			World: balanced(planned(world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b")},
			}, scratching(pod("pod-0", "b", "v0"))))),
			Steps: []sim.Step{
				{At: 5 * time.Second, What: sim.DelayAdjust, Node: "node-a", For: 200 * time.Second},
				at("10s", sim.Isolate, "a", ""), at("10s", sim.Isolate, "c", ""),
				at("20s", sim.DeletePod, "b", "pod-0"), // another pod there gets a new ephemeral volume, with a disk there only
				at("50s", sim.Rejoin, "a", ""), at("125s", sim.Rejoin, "c", ""),
				{At: 140 * time.Second, What: sim.Leave, Node: "node-a", Value: "last-copies"},
			},
			Length: 300 * time.Second,
		},
		"a node is told to leave while its thin pools hang and it fails over a volume that was open without quorum": {
			World: unlinking(planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Block, Diskful: nodes("a", "b", "c"), Pinned: true},
				{Name: "v1", Handle: "pvc-v1", Kind: sim.ReadOnly, Diskful: nodes("a"), Quorum: "2", Pinned: true},
				{Name: "w", Handle: "pvc-w", Kind: sim.Block, Diskful: nodes("a", "b"), Claim: "data-v0", Released: "alive"},
			}, stopping(pod("pod-0", "b", "v0"), 20*time.Second), pod("pod-1", "a", "v1")))),
			Steps: []sim.Step{
				at("4.262s", sim.IsolateDRBD, "b", ""), at("7.613s", sim.CloseVolume, "b", "v0"), at("10.571s", sim.HangPools, "b", ""),
				at("17.987s", sim.Leave, "b", ""), at("28.795s", sim.FreePools, "b", ""),
			},
			Length: 163 * time.Second,
		},
		"a node is taken out and back with an operator and a LINSTOR that is restarted": {
			World: planned(world(4, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a")},
				{Name: "v1", Handle: "pvc-v1", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"},
			}, pod("pod-0", "a", "v0"), pod("pod-1", "a", "v1"))),
			Steps: []sim.Step{
				at("1s", sim.OperatorOn, "a", ""), at("5s", sim.Leave, "a", ""), at("40s", sim.DrainNode, "a", ""),
				at("55s", sim.RestartLinstor, "a", ""), at("300s", sim.Stay, "a", ""), at("310s", sim.Uncordon, "a", ""),
			},
			Length: 320 * time.Second,
		},
	}
}

// balanced is a cluster in which LINSTOR removes disks that are too many.
func balanced(w sim.World) sim.World {
	w.Planned.Balancing = true
	return w
}

// listing is a cluster whose resource group has disks on some nodes only.
func listing(w sim.World, letters ...string) sim.World {
	w.Planned.Group = nodes(letters...)
	return w
}

// scratching gives a pod a generic ephemeral volume.
func scratching(w sim.Workload) sim.Workload {
	w.Ephemeral = true
	return w
}

// planned is a cluster in which nodes may leave, and a disk is filled in ten seconds.
func planned(w sim.World) sim.World {
	w.Planned = sim.Planned{Is: true, SyncRate: 100 * 1024, MaxNodes: 1, MaxCopies: 4}
	w.TieBreakers = true
	return w
}

// unlinking is a cluster in which each end of a link takes its own time to notice that the other one is gone, and LINSTOR a bit less.
func unlinking(w sim.World) sim.World {
	w.Clients, w.PingTimeout, w.Replay = true, 5548*time.Millisecond, 300*time.Millisecond
	w.Links = map[string]time.Duration{
		"node-a node-b": 11187 * time.Millisecond, "node-b node-a": 9806 * time.Millisecond, "node-c node-b": 10546 * time.Millisecond,
		"node-b node-c": 7802 * time.Millisecond,
	}
	w.Planned.MaxCopies = 4
	return w
}
