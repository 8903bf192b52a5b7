package sim_test

import (
	"time"

	"github.com/piraeusdatastore/piraeus-ha-controller/internal/testbed/sim"
)

// untidyWorlds are histories of worlds that are less neat than most: quorum that somebody changed, claims and volumes beside the one in use,
// names that differ. Each broke an invariant once.
func untidyWorlds() map[string]sim.History {
	abc := []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b", "c")}}
	tie := []sim.Volume{{Name: "v0", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c"}}
	return map[string]sim.History{
		"quorum is switched on while a crashed node is away, and the node is back without its peers before it hears of it": {
			World: world(3, []sim.Volume{
				{Name: "v0", Handle: "pvc-v0", Kind: sim.Block, Diskful: nodes("a", "b", "c"), Quorum: "1"},
			}, pod("pod-0", "c", "v0")),
			Steps: []sim.Step{
				at("3.644s", sim.Crash, "c", ""),
				{At: 14708 * time.Millisecond, What: sim.ChangeLeader},
				at("35.969s", sim.Isolate, "c", ""),
				set("37.537s", sim.SetQuorum, "majority"), at("52.158s", sim.Return, "c", ""),
			},
			Length: 90 * time.Second,
		},
		"quorum is switched on while the node is cut off and writes, and the leader starts again": {
			World: world(3, without(abc), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				at("5.1s", sim.Isolate, "a", ""), set("20.1s", sim.SetQuorum, "majority"),
				{At: 25100 * time.Millisecond, What: sim.ChangeLeader},
			},
			Length: 120 * time.Second,
		},
		"quorum is switched on right after the loss, while LINSTOR still takes the node for ONLINE": {
			World: world(3, without(abc), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{at("5.1s", sim.Isolate, "a", ""), set("7.1s", sim.SetQuorum, "majority")}, Length: 90 * time.Second,
		},
		"quorum is set on the controller, and no node is told": {
			World: world(3, bare(abc), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				set("5.1s", sim.SetControllerQuorum, "off"), set("6.1s", sim.SetQuorum, "off"), set("7.1s", sim.SetQuorum, ""),
				set("70.1s", sim.SetControllerQuorum, "majority"), at("90.1s", sim.Isolate, "a", ""),
			},
			Length: 150 * time.Second,
		},
		"quorum is set to majority on the definition, and the adjust of the node fails": {
			World: world(3, without(abc), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				{At: 5100 * time.Millisecond, What: sim.BreakAdjust, Node: "node-a", On: "v0", Value: "at the options"},
				set("6.1s", sim.SetQuorum, "majority"), at("30.1s", sim.Isolate, "a", ""),
			},
			Length: 90 * time.Second,
		},
		"quorum is switched on while the node is OFFLINE and writes, and then the node is given up as lost": {
			World: world(3, without(tie), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				at("5.1s", sim.Isolate, "a", ""), set("20.1s", sim.SetQuorum, "majority"), at("22.1s", sim.LoseNode, "a", ""),
			},
			Length: 120 * time.Second,
		},
		"quorum is off and on again, of which the node hears the first": {
			World: world(3, abc, pod("pod-0", "a", "v0")),
			Steps: []sim.Step{
				set("5.1s", sim.SetQuorum, "off"), at("75.1s", sim.Isolate, "a", ""), set("76.1s", sim.SetQuorum, "majority"),
				{At: 100 * time.Second, What: sim.ChangeLeader},
			},
			Length: 200 * time.Second,
		},
		"two claims are bound to one handle, and the volume is released under the second pod": {
			World: world(3, append(append([]sim.Volume{}, tie...), sim.Volume{
				Name: "v0y", Handle: "pvc-v0", Kind: sim.Filesystem, Diskful: nodes("a", "b"), TieBreaker: "node-c",
			}), pod("pod-0", "a", "v0"), unselected(pod("pod-y", "a", "v0y"))),
			Steps: []sim.Step{at("5.1s", sim.Crash, "a", "")}, Length: 90 * time.Second,
		},
		"a claim was created anew beside a Released volume, whose resource is lost with a living node": {
			World: world(3, append(append([]sim.Volume{}, abc...), sim.Volume{
				Name: "old", Handle: "pvc-old", Kind: sim.Filesystem, Diskful: nodes("b", "c"), TieBreaker: "node-a", Claim: "data-v0",
				Released: sim.Alive,
			}), pod("pod-0", "a", "v0")),
			Steps: []sim.Step{at("5.1s", sim.CutSatellite, "a", ""), {
				At: 5200 * time.Millisecond, What: sim.CutResource, Node: "node-a", Peer: "node-b", On: "old",
			}, {At: 5300 * time.Millisecond, What: sim.CutResource, Node: "node-a", Peer: "node-c", On: "old"}},
			Length: 120 * time.Second,
		},
		"nodes have qualified names in Kubernetes and short ones in LINSTOR": {
			World: qualified(world(3, abc, pod("pod-0", "a", "v0"))),
			Steps: []sim.Step{at("5.1s", sim.Crash, "a", "")}, Length: 60 * time.Second,
		},
		"a pod has an export of NFS beside its own volume": {
			World: world(3, append(append([]sim.Volume{}, abc...), sim.Volume{
				Name: "v1", Handle: "pvc-v1", Kind: sim.NFSExport, Diskful: nodes("b"),
			}), pod("pod-0", "a", "v0", "v1")),
			Steps: []sim.Step{at("5.1s", sim.Crash, "a", "")}, Length: 60 * time.Second,
		},
		"storage is lost under a long init container": {
			World: initializing(world(3, abc, pod("pod-0", "a", "v0")), 150*time.Second),
			Steps: []sim.Step{at("5.1s", sim.IsolateDRBD, "a", "")}, Length: 60 * time.Second,
		},
	}
}

// set sets a quorum.
func set(when string, what sim.Deed, value string) sim.Step {
	s := at(when, what, "", "v0")
	s.Node, s.Value = "", value
	return s
}

// without are the volumes with quorum off, bare those of which nobody has set it.
func without(volumes []sim.Volume) []sim.Volume {
	changed := bare(volumes)
	for i := range changed {
		changed[i].Quorum = "off"
	}
	return changed
}

func bare(volumes []sim.Volume) []sim.Volume { return append([]sim.Volume{}, volumes...) }

func unselected(p sim.Workload) sim.Workload {
	p.Selected = false
	return p
}

func qualified(w sim.World) sim.World {
	w.Qualified = true
	return w
}

func initializing(w sim.World, d time.Duration) sim.World {
	w.Workloads[0].Init = d
	return w
}
